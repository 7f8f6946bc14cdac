// Products and the loops that read them, as one node: which join, what later loops read, and what
// comes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ridge/compile/pipeline.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/nn/model.h"
#include "ridge/nn/training.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"
#include "tests/support/list_backend.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// A device that stores 16 bits, and runs products with the loops that it accepts.
class JointBackend final : public ListBackend {
 public:
  using Accepts = std::function<bool(const Node&)>;
  explicit JointBackend(Accepts accepts = nullptr) : accepts_(std::move(accepts)) {}
  bool stores_16_bits() const override { return true; }

 protected:
  bool runs(const Node& node) const override {
    return node.is<FusedMatMul>() && (accepts_ == nullptr || accepts_(node));
  }

 private:
  Accepts accepts_;
};

Graph compiled(const Graph& graph,
               PipelineOptions options = {},
               JointBackend::Accepts accepts = {}) {
  JointBackend device(std::move(accepts));
  Graph made = graph.clone();
  options.precision = DType::kBF16;
  options.verify_each = true;
  run_pipeline(made, device, options);
  return made;
}

Graph apart(const Graph& graph) { return compiled(graph, {.off = {"fuse_products"}}); }

std::vector<const Node*> joint_nodes(const Graph& graph) {
  std::vector<const Node*> found;
  for (const auto& node : graph.nodes())
    if (node->is<FusedMatMul>()) found.push_back(node.get());
  return found;
}

int count_ops(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes().begin(),
                                        graph.nodes().end(),
                                        [&](const auto& node) { return node->op->name() == op; }));
}

// The body's ops, in order, and how many results it has.
std::string body_of(const Node& node) {
  const Graph& body = read_body(node.op_as<FusedMatMul>().loop).graph;
  std::string ops;
  for (const auto& each : body.nodes())
    if (!each->is<Input>() && !each->is<Reshape>()) ops += std::string(each->op->name()) + " ";
  return ops + fmt::format("-> {}", node.outputs.size());
}

// ---- a layer and its gradient ----

struct LayerOptions {
  int64_t rows = 6, in = 5, out = 8;
  GeluForm form = GeluForm::kTanh;
  bool has_bias = true;
};

// y = gelu(x a + bias) b, and the gradients of the sum of its squares.
CaseBuilder layer(const LayerOptions& options, uint64_t seed = 1) {
  CaseBuilder c(DType::kF32, seed);
  const Value x = c.input({2, options.rows / 2, options.in}),
              a = c.input({options.in, options.out});
  const Value b = c.input({options.out, options.in}), bias = c.input({options.out});
  Value h = matmul(x, a);
  if (options.has_bias) h = h + broadcast(bias, h.shape());
  const Value y = matmul(gelu(h, options.form), b);
  std::vector<Value> outputs{reduce_sum(y * y)};
  std::vector<Value> wrt{x, a, b};
  if (options.has_bias) wrt.push_back(bias);
  for (const Value& gradient : gradients(outputs[0], wrt)) outputs.push_back(gradient);
  c.finish(outputs);
  return c;
}

TEST(FuseProducts, ALayerAndItsGradient) {
  const CaseBuilder c = layer({});
  const Graph graph = compiled(const_cast<CaseBuilder&>(c).graph());
  const auto nodes = joint_nodes(graph);
  ASSERT_EQ(nodes.size(), 2u) << print(graph);
  // GELU, and what it reads; the slope of that times the gradient, which reads no bias.
  EXPECT_EQ(body_of(*nodes[0]), "cast broadcast add gelu cast cast -> 2");
  EXPECT_EQ(nodes[0]->inputs.size(), 3u);
  EXPECT_EQ(nodes[1]->inputs[2], (Value{const_cast<Node*>(nodes[0]), 1}));
  EXPECT_EQ(nodes[1]->inputs.size(), 3u) << print(*nodes[1]);
  EXPECT_EQ(nodes[1]->outputs.size(), 1u);
  EXPECT_EQ(nodes[1]->op_as<FusedMatMul>().loop.rows, 0);
  // The bias's gradient is the sum of what it makes.
  const auto& all = graph.nodes();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& node) {
    return node->template is<Fused>() && node->inputs[0] == Value{const_cast<Node*>(nodes[1]), 0};
  })) << print(graph);
}

TEST(FuseProducts, WithoutABiasThePlainProductIsKept) {
  const CaseBuilder c = layer({.has_bias = false});
  const Graph graph = compiled(const_cast<CaseBuilder&>(c).graph());
  const auto nodes = joint_nodes(graph);
  ASSERT_EQ(nodes.size(), 2u) << print(graph);
  EXPECT_EQ(body_of(*nodes[0]), "cast gelu cast cast -> 2");
  EXPECT_EQ(nodes[1]->inputs[2], (Value{const_cast<Node*>(nodes[0]), 1}));
}

// A value that is recomputed where memory is short has the bits of the kept one: a limit changes
// only which nodes are recomputed.
TEST(FuseProducts, AreTheSameWithALimit) {
  const CaseBuilder c = layer({});
  const Graph& graph = const_cast<CaseBuilder&>(c).graph();
  EXPECT_EQ(print(compiled(graph, {.arena_limit = 1, .off = {"recompute"}})),
            print(compiled(graph)));
}

TEST(FuseProducts, NothingWhereTheDeviceRunsNone) {
  const CaseBuilder c = layer({});
  const Graph& graph = const_cast<CaseBuilder&>(c).graph();
  EXPECT_EQ(print(compiled(graph, {}, [](const Node&) { return false; })), print(apart(graph)));
}

// A device may take one and not the other; later loops then read what they read before.
TEST(FuseProducts, EachIsAskedFor) {
  const CaseBuilder c = layer({});
  const Graph& graph = const_cast<CaseBuilder&>(c).graph();
  const Graph forward =
      compiled(graph, {}, [](const Node& node) { return node.outputs.size() == 2; });
  EXPECT_EQ(joint_nodes(forward).size(), 1u);
  const Graph backward =
      compiled(graph, {}, [](const Node& node) { return node.outputs.size() == 1; });
  const auto nodes = joint_nodes(backward);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]->inputs.size(), 4u)
      << "the product and the bias are read: " << print(*nodes[0]);
}

// ---- what stays apart ----

Graph forward(const std::function<std::vector<Value>(CaseBuilder&, Value product)>& write) {
  CaseBuilder c(DType::kF32, 1);
  const Value x = c.input({6, 5}), w = c.input({5, 8});
  c.finish(write(c, matmul(x, w)));
  return c.graph().clone();
}

TEST(FuseProducts, WhatStaysApart) {
  const auto joint = [](const Graph& graph) { return joint_nodes(compiled(graph)).size(); };
  EXPECT_EQ(joint(forward([](CaseBuilder&, Value y) {
              return std::vector<Value>{matmul(gelu(y), transpose(y, {1, 0}))};
            })),
            0u)
      << "another product reads it";
  EXPECT_EQ(joint(forward([](CaseBuilder&, Value y) {
              const Value e = exp(y);
              return std::vector<Value>{e / broadcast(reduce_sum(e, {1}, true), y.shape())};
            })),
            0u)
      << "a loop over rows";
  EXPECT_EQ(joint(forward([](CaseBuilder&, Value y) {
              return std::vector<Value>{exp(y) + y, reduce_sum(y * y)};
            })),
            0u)
      << "a total";
  EXPECT_EQ(joint(forward([](CaseBuilder& c, Value y) {
              return std::vector<Value>{y * c.input({6, 8}) + y};
            })),
            1u);
}

// Such a body is nothing that passes write.
TEST(FuseProducts, ALoopThatReadsTheProductTwiceStaysApart) {
  for (const bool twice : {false, true}) {
    Graph graph("g"), body("fused");
    const Value x = input(graph, "x", {DType::kBF16, {4, 4}}), y = matmul(x, x);
    const Value one = input(body, "0", y.type()), other = input(body, "1", y.type());
    body.add_output("0", one + other);
    graph.add_output("z", {&fused(graph, body, {y, twice ? y : x}, Site{"loop"}), 0});
    EXPECT_EQ(joint_nodes(compiled(graph)).size(), twice ? 0u : 1u);
  }
}

// ---- numbers ----

NamedTensors run(const Graph& graph, const NamedTensors& inputs) {
  return evaluate(graph, *make_backend("ref"), inputs);
}

// The plain form rounds as the two nodes do where nothing is kept for others and nothing summed.
TEST(FuseProducts, AForwardLayerKeepsItsBits) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(test::cases(40)); ++seed) {
    Random random(seed);
    CaseBuilder c(DType::kF32, seed);
    const int64_t m = random.integer(2, 9), k = random.integer(1, 9), n = random.integer(2, 9);
    const Value y = matmul(c.input({m, k}), c.input({k, n}));
    Value z = y + broadcast(c.input({n}), y.shape());
    if (random.chance(0.5)) z = gelu(z, random.chance(0.5) ? GeluForm::kTanh : GeluForm::kErf);
    if (random.chance(0.5)) z = z * c.input({m, n}) - c.input({m, n});
    if (random.chance(0.5)) z = matmul(relu(z), c.input({n, 3}));
    c.finish({z});
    const Graph fused = compiled(c.graph());
    ASSERT_GE(joint_nodes(fused).size(), 1u) << seed;
    ASSERT_EQ(bit_difference(run(apart(c.graph()), c.tensors()), run(fused, c.tensors())), "")
        << seed;
  }
}

// With gradients what is kept is rounded with the bias, and sums are of what is rounded: as far off
// as one more rounding to 8 bits makes it.
TEST(FuseProducts, GradientsAreThoseOfTheLayerWithinRoundings) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(test::cases(40)); ++seed) {
    Random random(seed);
    CaseBuilder c = layer({.rows = 2 * random.integer(2, 9),
                           .in = random.integer(2, 9),
                           .out = random.integer(2, 9),
                           .form = random.chance(0.5) ? GeluForm::kTanh : GeluForm::kErf,
                           .has_bias = random.chance(0.7)},
                          seed);
    const Graph fused = compiled(c.graph());
    ASSERT_GE(joint_nodes(fused).size(), 2u) << seed;
    const NamedTensors got = run(fused, c.tensors()), want = run(apart(c.graph()), c.tensors());
    for (const auto& [name, tensor] : want)
      ASSERT_EQ(difference(got.at(name), tensor, 0x1p-5), "") << seed << ", " << name;
  }
}

// ---- a model ----

TEST(FuseProducts, AGptJoinsThreeProductsALayer) {
  constexpr int64_t kLayers = 2;
  nn::ModelOptions model;
  model.kind = nn::ModelKind::kGpt;
  model.gpt = {.vocab = 40, .context = 16, .layers = kLayers, .heads = 2, .width = 24};
  const TensorType tokens{DType::kI64, {16}};
  const Graph step = nn::Training(nn::make_model(model, {tokens, tokens}), {}).step(3);
  const Graph fused = compiled(step), plain = apart(step);
  const auto nodes = joint_nodes(fused);
  // The projection with its bias, what goes up with GELU, and GELU's gradient.
  ASSERT_EQ(nodes.size(), 3u * kLayers);
  EXPECT_EQ(count_ops(fused, "matmul"), count_ops(plain, "matmul") - 3 * kLayers);
  EXPECT_EQ(
      std::count_if(
          nodes.begin(), nodes.end(), [](const Node* node) { return node->outputs.size() == 2; }),
      kLayers);
  for (const Node* node : nodes)
    for (const TensorType& type : node->outputs) EXPECT_EQ(type.dtype, DType::kBF16);
}

}  // namespace
}  // namespace ridge::test
