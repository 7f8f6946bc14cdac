// Small ONNX models, and the same as a wrong kernel, layout or fold would compute them.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/import/model_bytes.h"

namespace ridge::test {

/// Faults of the convolutional model; none by default.
struct ConvFaults {
  bool loses_tap = false;        ///< The last of nine taps is not added.
  bool repeats_tail = false;     ///< The last output channel is the one before.
  bool swaps_taps = false;       ///< Weights are read as (O, I, W, H).
  bool reads_as_iohw = false;    ///< Weights are read as (I, O, H, W).
  bool forgets_epsilon = false;  ///< A folded norm divides by sqrt(variance).
  bool forgets_root = false;     ///< It divides by variance + epsilon.
  bool adds_mean = false;        ///< Its shift has the mean with the wrong sign.
};

inline ProtoBytes real_attribute(std::string_view name, float value) {
  return ProtoBytes().text(1, name).real(2, value).number(20, 1);
}

class DrawnFloats {
 public:
  std::vector<float> operator()(int64_t count, float low, float high) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = std::uniform_real_distribution<float>(low, high)(random_);
    return values;
  }

 private:
  std::mt19937 random_{17};
};

/// x f32[N,8,8,8] through a 3x3 convolution, a norm, a depthwise convolution, a norm and a product
/// to y f32[N,10]. The faults are those of the first convolution and its norm.
inline std::string conv_model(const ConvFaults& faults = {}) {
  constexpr int64_t kIn = 8, kOut = 16, kTaps = 9;
  constexpr float kEpsilon = 1e-3f;
  DrawnFloats drawn;
  GraphParts parts;
  const std::vector<float> w = drawn(kOut * kIn * kTaps, -0.3f, 0.3f);
  std::vector<float> read = w;
  const auto at = [](int64_t o, int64_t i, int64_t tap) {
    return static_cast<size_t>((o * kIn + i) * kTaps + tap);
  };
  for (int64_t o = 0; o < kOut; ++o)
    for (int64_t i = 0; i < kIn; ++i)
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        float& value = read[at(o, i, tap)];
        if (faults.swaps_taps) value = w[at(o, i, tap % 3 * 3 + tap / 3)];
        if (faults.reads_as_iohw) value = w[static_cast<size_t>((i * kOut + o) * kTaps + tap)];
        if (faults.repeats_tail && o + 1 == kOut) value = w[at(o - 1, i, tap)];
        if (faults.loses_tap && tap + 1 == kTaps) value = 0;
      }
  parts.initializers.push_back(floats_bytes("w1", {kOut, kIn, 3, 3}, read));
  const auto norm = [&](const std::string& x, const std::string& name, bool is_faulty) {
    std::vector<float> scale = drawn(kOut, 0.5f, 1.5f), bias = drawn(kOut, -0.5f, 0.5f);
    std::vector<float> mean = drawn(kOut, -0.3f, 0.3f), variance = drawn(kOut, 0.2f, 0.9f);
    for (size_t c = 0; c < variance.size(); ++c) {
      if (is_faulty && faults.adds_mean) mean[c] = -mean[c];
      if (is_faulty && faults.forgets_root) {
        const float sum = variance[c] + kEpsilon;
        variance[c] = sum * sum - kEpsilon;
      }
    }
    const float epsilon = is_faulty && faults.forgets_epsilon ? 0 : kEpsilon;
    std::vector<std::string> inputs{x};
    for (const auto& [what, values] : {std::pair("scale", &scale),
                                       std::pair("bias", &bias),
                                       std::pair("mean", &mean),
                                       std::pair("variance", &variance)}) {
      inputs.push_back(name + "." + what);
      parts.initializers.push_back(floats_bytes(inputs.back(), {kOut}, *values));
    }
    parts.nodes.push_back(
        node_bytes("BatchNormalization", inputs, {name}, {real_attribute("epsilon", epsilon)}));
    parts.nodes.push_back(node_bytes("Relu", {name}, {name + ".relu"}));
    return name + ".relu";
  };
  const std::vector<ProtoBytes> padded{ints_attribute("pads", {1, 1, 1, 1})};
  parts.nodes.push_back(node_bytes("Conv", {"x", "w1"}, {"c1"}, padded));
  const std::string first = norm("c1", "n1", true);
  parts.initializers.push_back(
      floats_bytes("w2", {kOut, 1, 3, 3}, drawn(kOut * kTaps, -0.3f, 0.3f)));
  parts.nodes.push_back(
      node_bytes("Conv", {first, "w2"}, {"c2"}, {padded[0], int_attribute("group", kOut)}));
  const std::string second = norm("c2", "n2", false);
  parts.nodes.push_back(node_bytes("GlobalAveragePool", {second}, {"pooled"}));
  parts.nodes.push_back(node_bytes("Flatten", {"pooled"}, {"flat"}));
  parts.initializers.push_back(floats_bytes("w3", {kOut, 10}, drawn(kOut * 10, -0.5f, 0.5f)));
  parts.nodes.push_back(node_bytes("MatMul", {"flat", "w3"}, {"y"}));
  parts.inputs = {value_bytes("x", kFloat, {"N", kIn, 8, 8})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 10})};
  return model_bytes(parts);
}

/// Self-attention of two heads over x f32[N,6,16], with a layer norm before it.
/// `interleaves_heads`: the queries' heads lie beside each other, element by element.
inline std::string attention_model(bool interleaves_heads = false) {
  constexpr int64_t kWidth = 16, kHeads = 2;
  DrawnFloats drawn;
  GraphParts parts;
  const auto add = [&](std::string_view op,
                       const std::vector<std::string>& inputs,
                       const std::vector<ProtoBytes>& attributes = {}) {
    const std::string name = "v" + std::to_string(parts.nodes.size());
    parts.nodes.push_back(node_bytes(op, inputs, {name}, attributes));
    return name;
  };
  const auto known = [&](ProtoBytes (*make)(std::string_view, const std::vector<int64_t>&),
                         const std::vector<int64_t>& values) {
    const std::string name = "i" + std::to_string(parts.initializers.size());
    parts.initializers.push_back(make(name, values));
    return name;
  };
  const auto weights = [&](const std::vector<int64_t>& dims, float low, float high) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    const std::string name = "w" + std::to_string(parts.initializers.size());
    parts.initializers.push_back(floats_bytes(name, dims, drawn(count, low, high)));
    return name;
  };
  const std::string x = add("LayerNormalization",
                            {"x", weights({kWidth}, 0.5f, 1.5f), weights({kWidth}, -0.5f, 0.5f)});
  const auto heads = [&](bool interleaves, const std::vector<int64_t>& perm) {
    const std::string wide = add("MatMul", {x, weights({kWidth, kWidth}, -0.6f, 0.6f)});
    const int64_t each = kWidth / kHeads;
    const std::string cut =
        interleaves ? add("Transpose",
                          {add("Reshape", {wide, known(integers_bytes, {0, 0, each, kHeads})})},
                          {ints_attribute("perm", {0, 1, 3, 2})})
                    : add("Reshape", {wide, known(integers_bytes, {0, 0, kHeads, each})});
    return add("Transpose", {cut}, {ints_attribute("perm", perm)});
  };
  const std::string q = heads(interleaves_heads, {0, 2, 1, 3}), k = heads(false, {0, 2, 3, 1});
  const std::string v = heads(false, {0, 2, 1, 3});
  const std::string scores = add("Softmax", {add("MatMul", {q, k})});
  const std::string mixed =
      add("Transpose", {add("MatMul", {scores, v})}, {ints_attribute("perm", {0, 2, 1, 3})});
  const std::string flat = add("Reshape", {mixed, known(integers_bytes, {0, 0, kWidth})});
  parts.nodes.push_back(node_bytes(
      "Add", {add("MatMul", {flat, weights({kWidth, kWidth}, -0.6f, 0.6f)}), "x"}, {"y"}));
  parts.inputs = {value_bytes("x", kFloat, {"N", 6, kWidth})};
  parts.outputs = {value_bytes("y", kFloat, {"N", 6, kWidth})};
  return model_bytes(parts);
}

}  // namespace ridge::test
