// Quantizations with one thing wrong: the measured drop has to show each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ridge/compress/calibration.h"
#include "ridge/compress/drop.h"
#include "ridge/compress/quantize_model.h"
#include "tests/compress/small_models.h"

namespace ridge::test {
namespace {

using namespace compress;

// The nodes of operator `op`, or all where it is empty, read `to` where they read `from`.
void read_instead(EditableModel& model,
                  const std::string& from,
                  const std::string& to,
                  const std::string& op = {}) {
  for (EditableNode& node : model.nodes()) {
    if (!op.empty() && node.proto.op != op) continue;
    std::vector<std::string> inputs = node.proto.inputs;
    std::ranges::replace(inputs, from, to);
    if (inputs != node.proto.inputs) node = renamed(node, inputs, node.proto.outputs);
  }
}

// An initializer with other elements, for the nodes of operator `op`.
void change(EditableModel& model,
            const std::string& name,
            const std::function<void(Tensor&)>& body,
            const std::string& op = {}) {
  ASSERT_NE(model.constant(name), nullptr) << name;
  Tensor tensor = model.elements(*model.constant(name)).tensor();
  body(tensor);
  const std::string other = model.new_name(name);
  model.add_initializer(other, tensor);
  read_instead(model, name, other, op);
}

void swap_scales(EditableModel& model, const std::string& a, const std::string& b) {
  for (const char* part : {"_scale", "_zero_point"}) {
    const std::string unused = "neither";
    read_instead(model, a + part, unused);
    read_instead(model, b + part, a + part);
    read_instead(model, unused, b + part);
  }
}

struct Wrong {
  const char* name;
  std::function<void(EditableModel&)> make;
};

void multiply(Tensor& tensor, double by) {
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, tensor.at(i) * by);
}

const std::vector<Wrong> kWrong = {
    {"one channel's scale doubled",
     [](EditableModel& m) { change(m, "w2_scale", [](Tensor& t) { t.set(1, 2 * t.at(1)); }); }},
    {"a zero point off by one where bytes become floats",
     [](EditableModel& m) {
       change(m, "r1_zero_point", [](Tensor& t) { t.set(0, t.at(0) + 1); }, "DequantizeLinear");
     }},
    {"ranges of another layer", [](EditableModel& m) { swap_scales(m, "x", "r2"); }},
    {"scales of channels in reverse",
     [](EditableModel& m) {
       change(m, "w2_scale", [](Tensor& t) { std::ranges::reverse(t.span<float>()); });
     }},
    {"weights moved by a channel",
     [](EditableModel& m) {
       change(m, "w2_quantized", [](Tensor& t) {
         const auto w = t.span<int8_t>();
         std::ranges::rotate(w, w.begin() + 24);
       });
     }},
    {"no bias",
     [](EditableModel& m) {
       change(m, "b1_quantized", [](Tensor& t) { std::ranges::fill(t.span<int32_t>(), 0); });
     }},
    {"a bias in other units",
     [](EditableModel& m) { change(m, "b1_scale", [](Tensor& t) { multiply(t, 1.5); }); }},
    {"a zero point of symmetric weights",
     [](EditableModel& m) {
       change(m, "w1_zero_point", [](Tensor& t) { std::ranges::fill(t.span<int8_t>(), 3); });
     }},
    {"a range of half the width",
     [](EditableModel& m) { change(m, "r1_scale", [](Tensor& t) { multiply(t, 0.5); }); }},
    {"a range that is cut off below zero",
     [](EditableModel& m) { change(m, "x_zero_point", [](Tensor& t) { t.set(0, 0); }); }},
    {"weights of one channel with the other sign",
     [](EditableModel& m) {
       change(m, "w2_quantized", [](Tensor& t) {
         for (int64_t i = 0; i < 24; ++i) t.set(i, -t.at(i));
       });
     }},
    {"an activation of twice the size",
     [](EditableModel& m) {
       change(m, "r2_scale", [](Tensor& t) { multiply(t, 2); }, "DequantizeLinear");
     }},
};

TEST(WrongQuantization, IsShownByTheDrop) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 48);
  const QuantizeResult right = quantize_model(model, data, {.max_drop = 1e9});
  ASSERT_EQ(right.quantized(), 3u);
  ASSERT_LT(right.drop, QuantizeOptions::kDefaultDrop);
  const std::vector<NamedTensors> samples = data.samples.samples;
  const SampleOutputs reference = outputs_on(model, samples);
  const double own = error_power(reference, outputs_on(right.model, samples));
  for (const Wrong& wrong : kWrong) {
    EditableModel changed = right.model;
    wrong.make(changed);
    const double error = error_power(reference, outputs_on(changed, samples));
    EXPECT_GT(error, 2 * own) << wrong.name;
  }
}

}  // namespace
}  // namespace ridge::test
