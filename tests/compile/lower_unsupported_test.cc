// Devices without kernels for convolutions, pools and batch norms, and with those of attention in
// 16 bits alone: plain forms take their place where they have to, and nowhere else.
#include <gtest/gtest.h>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/list_backend.h"

namespace ridge::test {
namespace {

class FullDevice : public ListBackend {
 public:
  bool stores_16_bits() const override { return true; }
};

class BareDevice final : public FullDevice {
 public:
  std::vector<Choice> candidates(const Node& node) const override {
    const bool is_attention = node.is<Attention>() || node.is<AttentionGrad>();
    if (is_attention && size_of(node.outputs[0].dtype) > 2) return {};
    if (is_image_op(node)) return {};
    return FullDevice::candidates(node);
  }
  static bool is_image_op(const Node& node) {
    return node.is<Conv2d>() || node.is<Conv2dGradInput>() || node.is<Conv2dGradWeight>() ||
           node.is<BatchNorm>() || node.is<BatchNormGrad>() || node.is<BatchNormStats>() ||
           node.is<MaxPool2d>() || node.is<MaxPool2dGrad>() || node.is<AvgPool2d>() ||
           node.is<AvgPool2dGrad>();
  }
};

// A network of all of them, with the gradients of its weights.
void build_network(CaseBuilder& b) {
  const Value x = b.input({2, 9, 11, 4}), w = b.input({3, 3, 4, 6}), v = b.input({1, 1, 6, 4});
  const Value gamma = b.input({6}, 0.5, 2.0), beta = b.input({6});
  WindowFields around;
  around.padding = {1, 1, 1, 1};
  const Value y = batch_norm(conv2d(x, w, around), gamma, beta, 1e-5, NormActivation::kRelu).y;
  WindowFields half = around;
  half.stride = {2, 2};
  const Value z = conv2d(avg_pool2d(max_pool2d(y, {{3, 3}, half}), {{2, 2}, {}}, true), v);
  const Value sum = reduce_sum(z * z);
  std::vector<Value> results = gradients(sum, std::vector<Value>{w, v, gamma, beta});
  results.insert(results.begin(), sum);
  b.finish(results);
}

Graph compiled(const Graph& graph, Backend& device, DType precision) {
  Graph made = graph.clone();
  run_pipeline(made, device, {.precision = precision, .verify_each = true});
  return made;
}

TEST(LowerUnsupported, ImagesRunByProductsAndLoops) {
  for (const DType precision : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(name_of(precision));
    CaseBuilder b(DType::kF32, 3);
    build_network(b);
    BareDevice bare;
    const Graph graph = compiled(b.graph(), bare, precision);
    int products = 0;
    for (const auto& node : graph.nodes()) {
      EXPECT_FALSE(BareDevice::is_image_op(*node)) << node->site.name;
      if (!node->is<MatMul>() && !node->is<FusedMatMul>()) continue;
      ++products;
      EXPECT_EQ(node->inputs[0].dtype(), precision) << node->site.name;
    }
    EXPECT_EQ(products, 5);  // w's own and its gradient, and three for v
    FullDevice full;
    const NamedTensors want = evaluate(compiled(b.graph(), full, precision), full, b.tensors()),
                       got = evaluate(graph, bare, b.tensors());
    for (const auto& [name, tensor] : want)
      EXPECT_EQ(difference(got.at(name), tensor, precision == DType::kF32 ? 1e-5 : 0x1p-7), "")
          << name;
  }
}

TEST(LowerUnsupported, AttentionIsLeftToTheKernelThatItWillHave) {
  for (const DType precision : {DType::kF32, DType::kBF16, DType::kF16}) {
    CaseBuilder b(DType::kF32, 4);
    const Value x = b.input({2, 6, 3 * 16});
    const Value y = packed_attention(x, 1, {.causal = true});
    b.finish({y, gradients(reduce_sum(y * y), std::vector<Value>{x})[0]});
    BareDevice device;
    const Graph graph = compiled(b.graph(), device, precision);
    int attentions = 0;
    for (const auto& node : graph.nodes())
      attentions += node->is<Attention>() || node->is<AttentionGrad>() ? 1 : 0;
    EXPECT_EQ(attentions, precision == DType::kF32 ? 0 : 2) << name_of(precision);
  }
}

}  // namespace
}  // namespace ridge::test
