// Small ONNX models with random weights, written by hand, and samples for them.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ridge/compress/editable_model.h"
#include "ridge/compress/quantize_model.h"
#include "tests/import/model_bytes.h"

namespace ridge::test {

/// Normal numbers times `scale`.
inline std::vector<float> normal_numbers(std::mt19937& random, int64_t count, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(normal(random)));
  return numbers;
}

inline int64_t count_of(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

/// A tensor of normal numbers.
inline ProtoBytes random_tensor(std::mt19937& random,
                                std::string_view name,
                                const std::vector<int64_t>& dims,
                                double scale) {
  return floats_bytes(name, dims, normal_numbers(random, count_of(dims), scale));
}

/// x f32[N,3,8,8] -> y f32[N,5]: a convolution with its batch norm, a pooling, a depthwise
/// convolution, a residual connection, an average over pixels and a product.
inline GraphParts conv_parts(uint32_t seed = 1) {
  std::mt19937 random(seed);
  GraphParts parts;
  const auto add = [&](std::string_view name, const std::vector<int64_t>& dims, double scale) {
    parts.initializers.push_back(random_tensor(random, name, dims, scale));
  };
  add("w1", {8, 3, 3, 3}, 0.3);
  add("norm_scale", {8}, 1);
  add("norm_shift", {8}, 0.2);
  add("norm_mean", {8}, 0.3);
  std::vector<float> variances = normal_numbers(random, 8);
  for (float& variance : variances) variance = 0.2f + variance * variance;
  parts.initializers.push_back(floats_bytes("norm_variance", {8}, variances));
  add("w2", {8, 1, 3, 3}, 0.4);
  add("b2", {8}, 0.2);
  add("w3", {8, 8, 1, 1}, 0.4);
  add("w4", {8, 5}, 0.5);
  add("b4", {5}, 0.2);
  const auto pads = ints_attribute("pads", {1, 1, 1, 1});
  parts.nodes = {
      node_bytes("Conv", {"x", "w1"}, {"c1"}, {pads}, "first"),
      node_bytes("BatchNormalization",
                 {"c1", "norm_scale", "norm_shift", "norm_mean", "norm_variance"},
                 {"n1"}),
      node_bytes("Relu", {"n1"}, {"r1"}),
      node_bytes("MaxPool",
                 {"r1"},
                 {"p1"},
                 {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})}),
      node_bytes("Conv", {"p1", "w2", "b2"}, {"c2"}, {pads, int_attribute("group", 8)}, "deep"),
      node_bytes("Relu", {"c2"}, {"r2"}),
      node_bytes("Conv", {"r2", "w3"}, {"c3"}, {}, "point"),
      node_bytes("Add", {"c3", "p1"}, {"sum"}),
      node_bytes("Relu", {"sum"}, {"r3"}),
      node_bytes("GlobalAveragePool", {"r3"}, {"mean"}),
      node_bytes("Flatten", {"mean"}, {"flat"}),
      node_bytes("Gemm", {"flat", "w4", "b4"}, {"y"}, {}, "last")};
  parts.inputs = {value_bytes("x", kFloat, {"N", 3, 8, 8})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 5})};
  return parts;
}

/// x f32[N,16] -> y f32[N,4]: three products with biases, the second with transposed weights.
inline GraphParts mlp_parts(uint32_t seed = 2) {
  std::mt19937 random(seed);
  GraphParts parts;
  parts.initializers = {random_tensor(random, "w1", {16, 24}, 0.3),
                        random_tensor(random, "b1", {24}, 0.2),
                        random_tensor(random, "w2", {24, 24}, 0.25),
                        random_tensor(random, "b2", {24}, 0.2),
                        random_tensor(random, "w3", {24, 4}, 0.3)};
  parts.nodes = {
      node_bytes("Gemm", {"x", "w1", "b1"}, {"h1"}, {}, "first"),
      node_bytes("Relu", {"h1"}, {"r1"}),
      node_bytes("Gemm", {"r1", "w2", "b2"}, {"h2"}, {int_attribute("transB", 1)}, "second"),
      node_bytes("Relu", {"h2"}, {"r2"}),
      node_bytes("MatMul", {"r2", "w3"}, {"y"}, {}, "third")};
  parts.inputs = {value_bytes("x", kFloat, {"N", 16})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 4})};
  return parts;
}

/// x f32[N,6,16] -> y f32[N,6,16]: attention with one head, and a residual connection. Two of its
/// products have no constant.
inline GraphParts attention_parts(uint32_t seed = 3) {
  std::mt19937 random(seed);
  GraphParts parts;
  for (const char* name : {"wq", "wk", "wv", "wo"})
    parts.initializers.push_back(random_tensor(random, name, {16, 16}, 0.25));
  parts.nodes = {node_bytes("MatMul", {"x", "wq"}, {"q"}, {}, "query"),
                 node_bytes("MatMul", {"x", "wk"}, {"k"}, {}, "key"),
                 node_bytes("MatMul", {"x", "wv"}, {"v"}, {}, "value"),
                 node_bytes("Transpose", {"k"}, {"kt"}, {ints_attribute("perm", {0, 2, 1})}),
                 node_bytes("MatMul", {"q", "kt"}, {"scores"}, {}, "scores"),
                 node_bytes("Softmax", {"scores"}, {"shares"}, {int_attribute("axis", -1)}),
                 node_bytes("MatMul", {"shares", "v"}, {"mixed"}, {}, "mix"),
                 node_bytes("MatMul", {"mixed", "wo"}, {"out"}, {}, "project"),
                 node_bytes("Add", {"out", "x"}, {"y"})};
  parts.inputs = {value_bytes("x", kFloat, {"N", 6, 16})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 6, 16})};
  return parts;
}

inline compress::EditableModel editable(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return {as_bytes(*kept), kept, "model"};
}

/// Samples of one input, x, of normal numbers; `shape` is that of one sample.
inline compress::QuantizeData normal_data(const Shape& shape, size_t count, uint32_t seed = 7) {
  std::mt19937 random(seed);
  compress::QuantizeData data;
  for (size_t i = 0; i < count; ++i) {
    Tensor tensor({DType::kF32, shape});
    const std::vector<float> numbers = normal_numbers(random, tensor.elements());
    std::copy(numbers.begin(), numbers.end(), tensor.span<float>().begin());
    NamedTensors sample;
    sample.emplace("x", std::move(tensor));
    data.samples.samples.push_back(std::move(sample));
  }
  data.samples.rows = "N";
  return data;
}

/// The operators of a model's nodes, in order.
inline std::vector<std::string> ops_of(const compress::EditableModel& model) {
  std::vector<std::string> ops;
  for (const compress::EditableNode& node : model.nodes()) ops.push_back(node.proto.op);
  return ops;
}

}  // namespace ridge::test
