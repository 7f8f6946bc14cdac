// Batch norms take the activation that alone reads them.
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/elementwise.h"
#include "tests/compile/pattern_cases.h"

namespace ridge::test {
namespace {

using Activation = std::function<Value(Value)>;

// The activation of the norm behind the pass, "gone" where there is no norm; `is_read` adds an
// output for the norm's result.
std::string fused_activation(const Activation& activation, bool is_read = false) {
  const Graph graph = run_pass(fuse_norm_activations, [&](Graph& made) {
    const Value x = data(made, "x", {4, 3, 5}, DType::kF32);
    const auto channels = [&](const char* name) { return data(made, name, {5}, DType::kF32); };
    // Wide enough to reach both bounds of relu6.
    const BatchNormResult norm = batch_norm(x, channels("g") * 9.0, channels("b"));
    made.add_output("y", activation(norm.y));
    made.add_output("mean", norm.mean);
    made.add_output("variance", norm.variance + 1.0);
    if (is_read) made.add_output("norm", norm.y);
  });
  std::string found = "gone";
  for (const auto& node : graph.nodes())
    if (node->is<BatchNorm>()) found = node->op_as<BatchNorm>().activation;
  return found;
}

Value clamped(Value x, double high) {
  return minimum(maximum(x, constant_like(x, 0)), constant_like(x, high));
}

TEST(FuseNormActivations, TakesReluAndRelu6) {
  EXPECT_EQ(fused_activation([](Value x) { return relu(x); }), "relu");
  EXPECT_EQ(fused_activation([](Value x) { return maximum(constant_like(x, 0), x); }), "relu");
  EXPECT_EQ(fused_activation([](Value x) { return clamped(x, 6); }), "relu6");
  EXPECT_EQ(fused_activation([](Value x) { return relu(minimum(x, constant_like(x, 6))); }),
            "relu6");
  EXPECT_EQ(fused_activation([](Value x) { return relu(x) * 2.0; }), "relu");
}

TEST(FuseNormActivations, LeavesWhatOthersReadAndOtherBounds) {
  EXPECT_EQ(fused_activation([](Value x) { return relu(x); }, /*is_read=*/true), "none");
  EXPECT_EQ(fused_activation([](Value x) { return relu(x) + x; }), "none");
  EXPECT_EQ(fused_activation([](Value x) { return maximum(x, constant_like(x, 1)); }), "none");
  EXPECT_EQ(fused_activation([](Value x) { return clamped(x, 5); }), "relu");
  EXPECT_EQ(fused_activation([](Value x) { return relu(relu(x) - 1.0); }), "relu");
}

}  // namespace
}  // namespace ridge::test
