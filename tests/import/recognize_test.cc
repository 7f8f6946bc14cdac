// A block of a transformer as exporters write it: sessions run each of its formulas as one op.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/compile/plan.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/model_session.h"
#include "tests/compile/pattern_cases.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"

namespace ridge::test {
namespace {

constexpr int64_t kTokens = 5, kWidth = 8, kLongest = 16;
constexpr float kLowest = -3.4028234663852886e38f;

// The nodes of a model by the names of their results.
class BlockBytes {
 public:
  std::string add(std::string_view op,
                  const std::vector<std::string>& inputs,
                  const std::vector<ProtoBytes>& attributes = {}) {
    std::string name = "v" + std::to_string(parts_.nodes.size());
    parts_.nodes.push_back(node_bytes(op, inputs, {name}, attributes));
    return name;
  }
  std::string number(float value) { return initializer(floats_bytes(next(), {}, {value})); }
  std::string integers(const std::vector<int64_t>& values) {
    return initializer(integers_bytes(next(), values));
  }
  std::string weights(const std::vector<int64_t>& dims) {
    std::vector<float> values(static_cast<size_t>(numel(dims)));
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return initializer(floats_bytes(next(), dims, values));
  }
  std::string triangle() {
    std::vector<uint8_t> values(kLongest * kLongest);
    for (int64_t i = 0; i < kLongest * kLongest; ++i)
      values[static_cast<size_t>(i)] = i % kLongest <= i / kLongest ? 1 : 0;
    return initializer(tensor_bytes(next(), kBool, {1, 1, kLongest, kLongest}, values));
  }

  std::string norm(const std::string& x) {
    const ProtoBytes last = ints_attribute("axes", {-1});
    const std::string c = add("Sub", {x, add("ReduceMean", {x}, {last})});
    const std::string variance = add("ReduceMean", {add("Pow", {c, number(2)})}, {last});
    const std::string root = add("Sqrt", {add("Add", {variance, number(1e-5f)})});
    const std::string scaled = add("Mul", {add("Div", {c, root}), weights({kWidth})});
    return add("Add", {scaled, weights({kWidth})});
  }
  std::string linear(const std::string& x, int64_t from, int64_t to) {
    return add("Add", {weights({to}), add("MatMul", {x, weights({from, to})})});
  }
  std::string heads(const std::string& x, const std::vector<int64_t>& perm) {
    const std::string wide = add("Reshape", {linear(x, kWidth, kWidth), integers({0, 0, 2, 4})});
    return add("Transpose", {wide}, {ints_attribute("perm", perm)});
  }
  std::string gelu(const std::string& x) {
    const std::string erf = add("Erf", {add("Div", {x, number(std::sqrt(2.0f))})});
    const std::string gate = add("Add", {erf, number(1)});
    return add("Mul", {add("Mul", {x, gate}), number(0.5f)});
  }

  std::string finish(const std::vector<ProtoBytes>& inputs, const std::string& y) {
    parts_.nodes.push_back(node_bytes("Identity", {y}, {"y"}));
    parts_.inputs = inputs;
    parts_.outputs = {value_bytes("y", kFloat, {"N", "T", kWidth})};
    return model_bytes(parts_);
  }

 private:
  std::string next() const { return "w" + std::to_string(parts_.initializers.size()); }
  std::string initializer(ProtoBytes bytes) {
    std::string name = next();
    parts_.initializers.push_back(std::move(bytes));
    return name;
  }

  GraphParts parts_;
  std::mt19937 random_{3};
};

using MaskScores = std::string (*)(BlockBytes& b, const std::string& scores);

// (1 - mask) * lowest, of a mask of integers.
std::string with_integers(BlockBytes& b, const std::string& scores) {
  const std::string wide = b.add("Unsqueeze", {"mask", b.integers({1, 2})});
  const std::string numbers = b.add("Cast", {wide}, {int_attribute("to", kFloat)});
  const std::string closed = b.add("Sub", {b.number(1), numbers});
  return b.add("Add", {scores, b.add("Mul", {closed, b.number(kLowest)})});
}

// The nodes that PyTorch's exporter writes for scaled_dot_product_attention with a mask of bool.
std::string with_bools(BlockBytes& b, const std::string& scores) {
  const std::string wide = b.add("Unsqueeze", {"mask", b.integers({1, 2})});
  const std::string allowed = b.add("Cast", {wide}, {int_attribute("to", kBool)});
  const std::string added = b.add("Where", {allowed, b.number(0), b.number(-INFINITY)});
  const std::string weights =
      b.add("Softmax", {b.add("Add", {scores, added})}, {int_attribute("axis", -1)});
  return b.add("Where", {b.add("IsNaN", {weights}), b.number(0), weights});
}

// The part for T tokens of a triangle that is stored for the most that there may be.
std::string with_triangle(BlockBytes& b, const std::string& scores) {
  const std::string shape = b.add("Shape", {"x"});
  const std::string tokens = b.add("Slice", {shape, b.integers({1}), b.integers({2})});
  const std::string ends = b.add("Concat", {tokens, tokens}, {int_attribute("axis", 0)});
  const std::string part =
      b.add("Slice", {b.triangle(), b.integers({0, 0}), ends, b.integers({2, 3})});
  return b.add("Where", {part, scores, b.number(kLowest)});
}

// The same made by Trilu, and added.
std::string with_trilu(BlockBytes& b, const std::string& scores) {
  const std::string shape = b.add("Shape", {"x"});
  const std::string tokens = b.add("Slice", {shape, b.integers({1}), b.integers({2})});
  const std::string square = b.add("Concat", {tokens, tokens}, {int_attribute("axis", 0)});
  const std::string ones = b.add("Expand", {b.number(1), square});
  const std::string lower = b.add("Trilu", {ones}, {int_attribute("upper", 0)});
  const std::string closed = b.add("Equal", {lower, b.number(0)});
  return b.add("Add", {scores, b.add("Where", {closed, b.number(-INFINITY), b.number(0)})});
}

std::string block_with(MaskScores mask, bool has_mask_input) {
  BlockBytes b;
  const std::string h = b.norm("x");
  const std::string q = b.heads(h, {0, 2, 1, 3}), k = b.heads(h, {0, 2, 3, 1});
  const std::string v = b.heads(h, {0, 2, 1, 3});
  std::string weights = mask(b, b.add("Div", {b.add("MatMul", {q, k}), b.number(2)}));
  if (mask != with_bools) weights = b.add("Softmax", {weights}, {int_attribute("axis", -1)});
  const std::string y =
      b.add("Transpose", {b.add("MatMul", {weights, v})}, {ints_attribute("perm", {0, 2, 1, 3})});
  const std::string joined = b.add("Reshape", {y, b.integers({0, 0, kWidth})});
  const std::string sum = b.add("Add", {b.linear(joined, kWidth, kWidth), "x"});
  const std::string inner = b.gelu(b.linear(b.norm(sum), kWidth, 2 * kWidth));
  std::vector<ProtoBytes> inputs{value_bytes("x", kFloat, {"N", "T", kWidth})};
  if (has_mask_input) inputs.push_back(value_bytes("mask", kInt64, {"N", "T"}));
  return b.finish(inputs, b.add("Add", {b.linear(inner, 2 * kWidth, kWidth), sum}));
}

NamedTensors data_of(bool has_mask_input) {
  NamedTensors data;
  Tensor x({DType::kF32, {2, kTokens, kWidth}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * 37 % 101) / 50 - 1);
  data.emplace("x", std::move(x));
  if (!has_mask_input) return data;
  Tensor mask({DType::kI64, {2, kTokens}});
  for (int64_t i = 0; i < mask.elements(); ++i) mask.set(i, i % kTokens < 3 || i < kTokens ? 1 : 0);
  data.emplace("mask", std::move(mask));
  return data;
}

// The graph behind the passes of patterns.
Graph recognized(const std::string& bytes) {
  ProgramGraphs program = model_of(bytes).import({{"N", 2}, {"T", kTokens}});
  const auto backend = make_cpu_backend();
  const PipelineOptions options;
  PassContext context{*backend, options};
  for (const RunPass pass :
       {cancel_transposes, recognize_norms, recognize_activations, recognize_attention})
    pass(program.entries[0], context);
  verify(program.entries[0]);
  return std::move(program.entries[0]);
}

struct Written {
  const char* name;
  MaskScores mask;
  bool has_mask_input, is_causal;
};

class ExportedBlock : public testing::TestWithParam<Written> {};

TEST_P(ExportedBlock, RunsAsFewOps) {
  const Written& written = GetParam();
  const std::string bytes = block_with(written.mask, written.has_mask_input);
  const Graph graph = recognized(bytes);
  EXPECT_EQ(count_of(graph, "layer_norm"), 2) << print(graph);
  EXPECT_EQ(count_of(graph, "gelu"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "softmax") + count_of(graph, "erf") + count_of(graph, "sqrt"), 0);
  for (const auto& node : graph.nodes())
    if (node->is<Attention>()) {
      EXPECT_EQ(node->op_as<Attention>().causal, written.is_causal);
    }
}

TEST_P(ExportedBlock, SessionsHaveItsNumbers) {
  const Written& written = GetParam();
  const std::string bytes = block_with(written.mask, written.has_mask_input);
  const NamedTensors data = data_of(written.has_mask_input);
  ModelSession session({.source = std::make_shared<const OnnxSource>(model_of(bytes)),
                        .state = make_state(make_cpu_backend()),
                        .weights = {}});
  const Tensor expected = run_model(model_of(bytes), data).at("y");
  EXPECT_EQ(difference(session.run(data).at("y"), expected, 1e-5), "");
  const auto plan = session.bind({{"N", 2}, {"T", kTokens}});
  const auto& steps = plan->entries.at(0).steps;
  EXPECT_EQ(
      std::count_if(
          steps.begin(), steps.end(), [](const auto& step) { return step.op == "attention"; }),
      1)
      << print(*plan);
}

INSTANTIATE_TEST_SUITE_P(Masks,
                         ExportedBlock,
                         testing::Values(Written{"integers", with_integers, true, false},
                                         Written{"bools", with_bools, true, false},
                                         Written{"triangle", with_triangle, false, true},
                                         Written{"trilu", with_trilu, false, true}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ridge::test
