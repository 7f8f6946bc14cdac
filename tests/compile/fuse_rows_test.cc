// Loops over rows: what they hold, and that they give the bits of the ops one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_rows.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

std::string ops_of(const Graph& graph) {
  std::string ops;
  for (const auto& node : graph.nodes())
    if (!node->is<Input>()) ops += (ops.empty() ? "" : " ") + std::string(node->op->name());
  return ops;
}

Graph fused_graph(const Graph& graph) {
  Graph fused = graph.clone();
  run_pipeline(fused, *make_backend("cpu"), {.verify_each = true});
  return fused;
}

// Outputs of the graph with nothing but the required passes.
NamedTensors plain_results(const Graph& graph, const NamedTensors& inputs, Backend& backend) {
  Graph plain = graph.clone();
  run_pipeline(plain, backend, {.off = {"all"}});
  return evaluate(plain, backend, inputs);
}

// The fused graph gives the bits of the plain one with any number of threads and instruction set.
void expect_same_bits(const Graph& graph, const NamedTensors& inputs, const std::string& what) {
  const auto cpu = make_backend("cpu");
  const Graph fused = fused_graph(graph);
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has_isa(isa)) continue;
    cpu::set_isa(isa);
    set_num_threads(1);
    const NamedTensors wanted = plain_results(graph, inputs, *cpu);
    for (const int threads : {1, 2, 5}) {
      set_num_threads(threads);
      ASSERT_EQ(bit_difference(wanted, evaluate(fused, *cpu, inputs)), "")
          << what << ", " << threads << " threads\n"
          << print(fused);
    }
    const auto last = [](const Node&, const std::vector<Choice>& choices) {
      return choices.size() - 1;
    };
    ASSERT_EQ(bit_difference(wanted, evaluate(fused, *cpu, inputs, last)), "") << what;
  }
  cpu::set_isa(cpu::choose_isa("auto"));
  set_num_threads(2);
}

TEST(FuseRows, SoftmaxIsOneLoop) {
  CaseBuilder b(DType::kF32, 1);
  b.finish({softmax(b.input({3, 4, 37}))});
  EXPECT_EQ(ops_of(fused_graph(b.graph())), "fused");
  expect_same_bits(b.graph(), b.tensors(), "softmax");
}

TEST(FuseRows, LayerNormBackwardIsOneLoop) {
  CaseBuilder b(DType::kF32, 2);
  const Value x = b.input({5, 31, 70}), gamma = b.input({70}), beta = b.input({70});
  const Value dy = b.input({5, 31, 70});
  const Value y = layer_norm(x, gamma, beta);
  b.finish(vector_jacobian_product(
      std::vector<Value>{y}, std::vector<Value>{dy}, std::vector<Value>{x, gamma, beta}));
  const Graph fused = fused_graph(b.graph());
  EXPECT_EQ(ops_of(fused), "fused") << print(fused);
  expect_same_bits(b.graph(), b.tensors(), "layer norm");
}

// Loss and gradient of the logits: one loop, and no value of it but the gradient has their size.
TEST(FuseRows, CrossEntropyIsOneLoopForwardAndBackward) {
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    CaseBuilder b(DType::kF32, 3);
    const Value logits = b.input({6, 2500}, -8.0, 8.0);
    const Value targets = b.given({DType::kI64, {6}}, {0, 2499, 7, -100, 2048, 2047});
    const Value loss = reduce_sum(cross_entropy(logits, targets, {.label_smoothing = smoothing}));
    b.finish({loss, gradients(loss, std::vector<Value>{logits})[0]});
    const Graph fused = fused_graph(b.graph());
    EXPECT_EQ(ops_of(fused), "fused") << print(fused);
    expect_same_bits(b.graph(), b.tensors(), fmt::format("smoothing {}", smoothing));
  }
}

TEST(FuseRows, ATargetOutsideIsRefusedWithItsPlace) {
  CaseBuilder b(DType::kF32, 4);
  const Value targets = b.given({DType::kI32, {2, 3}}, {0, 1, 2, 3, 9, 4});
  b.finish({reduce_sum(cross_entropy(b.input({2, 3, 9}), targets))});
  const Graph fused = fused_graph(b.graph());
  const auto cpu = make_backend("cpu");
  EXPECT_EQ(ops_of(fused), "fused");
  EXPECT_THAT(user_error([&] { evaluate(fused, *cpu, b.tensors()); }),
              testing::HasSubstr("index 9 at [1,1] is out of range; expected 0 to 8"));
}

TEST(FuseRows, SquaresAreSummedInTheLoopThatMakesThem) {
  CaseBuilder b(DType::kF64, 5);
  const Value x = b.input({70, 90}), w = b.input({90});
  const Value y = tanh(x * w);
  b.finish({y, reduce_sum(y * y), reduce_mean(y)});
  EXPECT_EQ(ops_of(fused_graph(b.graph())), "fused");
  expect_same_bits(b.graph(), b.tensors(), "squares");
}

TEST(FuseRows, ABiasGradientJoinsTheLoopThatReadsTheSame) {
  CaseBuilder b(DType::kF32, 6);
  const Value dy = b.input({300, 40}), y = b.input({300, 40});
  b.finish({reduce_sum(dy, {0}), dy * (1.0 - y * y)});
  EXPECT_EQ(ops_of(fused_graph(b.graph())), "fused");
  expect_same_bits(b.graph(), b.tensors(), "bias");
}

// Values that backward computes from forward's values alone are computed in backward, not kept.
TEST(FuseRows, ForwardDoesNotComputeForBackward) {
  CaseBuilder b(DType::kF32, 8);
  const Value x = b.input({6, 5}), w = b.input({5, 5}), v = b.input({5, 5});
  const Value hidden = matmul(x, w) * 0.5;
  const Value loss = reduce_sum(matmul(gelu(hidden), v));
  b.finish({loss, gradients(loss, std::vector<Value>{w})[0]});
  const Graph fused = fused_graph(b.graph());
  for (const auto& node : fused.nodes()) {
    if (!node->is<Fused>()) continue;
    EXPECT_LE(node->outputs.size(), 2u) << print(fused);
  }
}

// A result may take the place of an input only when nothing reads the input after it is written.
TEST(FuseRows, InPlaceOnlyWhereNothingReadsLater) {
  CaseBuilder b(DType::kF32, 7);
  const Value x = b.input({4, 8}), z = b.input({4, 8});
  const Value early = exp(x);
  const Value late = z * reduce_sum(early, {1}, true) + x;
  b.finish({early, late, tanh(z) * early});
  const Graph graph = fused_graph(b.graph());
  const Node& node = *graph.nodes().back();
  ASSERT_TRUE(node.is<Fused>()) << print(graph);
  const size_t from_x = node.inputs[0].node->op_as<Input>().input_name == "x0" ? 0 : 1;
  std::vector<bool> over_x, over_z;
  for (const Output& output : graph.outputs()) {
    const auto result = static_cast<size_t>(output.value.index);
    over_x.push_back(node.op->may_overwrite(result, from_x));
    over_z.push_back(node.op->may_overwrite(result, 1 - from_x));
  }
  EXPECT_EQ(over_x, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(over_z, (std::vector<bool>{false, true, false}));
}

TEST(FuseRows, RandomBodiesGiveTheBitsOfTheirOps) {
  int with_rows = 0;
  for (int seed = 0; seed < cases(120); ++seed) {
    const DType dtype = seed % 3 == 2 ? DType::kF64 : DType::kF32;
    RandomRows body(dtype, static_cast<uint64_t>(seed));
    CaseBuilder& b = body.build();
    const Graph graph = b.graph().clone();
    const Graph fused = fused_graph(graph);
    for (const auto& node : fused.nodes())
      with_rows += node->is<Fused>() && node->op_as<Fused>().rows > 1;
    expect_same_bits(graph, b.tensors(), fmt::format("seed {}", seed));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(with_rows, cases(100));
}

}  // namespace
}  // namespace ridge::test
