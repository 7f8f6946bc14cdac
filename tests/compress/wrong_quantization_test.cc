// Quantizations with one thing wrong: the integer reference, which knows the model in floats and
// the samples of the calibration alone, differs from each of them, and the limit refuses the costly
// ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  bool is_refused;  ///< Its drop is beyond the limit that holds where none is given.
  std::function<void(EditableModel&)> make;
};

void multiply(Tensor& tensor, double by) {
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, tensor.at(i) * by);
}

const std::vector<Wrong> kWrong = {
    {"one channel's scale doubled",
     true,
     [](EditableModel& m) { change(m, "w2_scale", [](Tensor& t) { t.set(1, 2 * t.at(1)); }); }},
    {"a zero point off by one where bytes become floats",
     false,
     [](EditableModel& m) {
       change(m, "r1_zero_point", [](Tensor& t) { t.set(0, t.at(0) + 1); }, "DequantizeLinear");
     }},
    {"ranges of another layer", true, [](EditableModel& m) { swap_scales(m, "x", "r2"); }},
    {"scales of channels in reverse",
     true,
     [](EditableModel& m) {
       change(m, "w2_scale", [](Tensor& t) { std::ranges::reverse(t.span<float>()); });
     }},
    {"weights moved by a channel",
     true,
     [](EditableModel& m) {
       change(m, "w2_quantized", [](Tensor& t) {
         const auto w = t.span<int8_t>();
         std::ranges::rotate(w, w.begin() + 24);
       });
     }},
    {"no bias",
     true,
     [](EditableModel& m) {
       change(m, "b1_quantized", [](Tensor& t) { std::ranges::fill(t.span<int32_t>(), 0); });
     }},
    {"a bias in other units",
     true,
     [](EditableModel& m) { change(m, "b1_scale", [](Tensor& t) { multiply(t, 1.5); }); }},
    {"a zero point of symmetric weights",
     false,
     [](EditableModel& m) {
       change(m, "w1_zero_point", [](Tensor& t) { std::ranges::fill(t.span<int8_t>(), 3); });
     }},
    {"a range of half the width",
     true,
     [](EditableModel& m) { change(m, "r1_scale", [](Tensor& t) { multiply(t, 0.5); }); }},
    {"a range that is cut off below zero",
     true,
     [](EditableModel& m) { change(m, "x_zero_point", [](Tensor& t) { t.set(0, 0); }); }},
    {"weights of one channel with the other sign",
     true,
     [](EditableModel& m) {
       change(m, "w2_quantized", [](Tensor& t) {
         for (int64_t i = 0; i < 24; ++i) t.set(i, -t.at(i));
       });
     }},
    {"an activation of twice the size",
     true,
     [](EditableModel& m) {
       change(m, "r2_scale", [](Tensor& t) { multiply(t, 2); }, "DequantizeLinear");
     }},
};

// ---- the reference, in integers ----

using Row = std::vector<double>;

/// A product of the perceptron: weights by (input, output).
struct Layer {
  std::vector<Row> weights;
  Row bias;
};

Layer layer_of(const EditableModel& model, const char* weights, const char* bias, bool transposed) {
  const Tensor w = model.elements(*model.constant(weights)).tensor();
  const int64_t rows = w.type().shape[0], columns = w.type().shape[1];
  const auto inputs = static_cast<size_t>(transposed ? columns : rows);
  const auto outputs = static_cast<size_t>(transposed ? rows : columns);
  Layer layer{std::vector<Row>(inputs, Row(outputs)), Row(outputs)};
  for (size_t i = 0; i < inputs; ++i)
    for (size_t o = 0; o < outputs; ++o)
      layer.weights[i][o] =
          w.at(static_cast<int64_t>(transposed ? o * inputs + i : i * outputs + o));
  if (bias == nullptr) return layer;
  const Tensor b = model.elements(*model.constant(bias)).tensor();
  for (size_t o = 0; o < outputs; ++o) layer.bias[o] = b.at(static_cast<int64_t>(o));
  return layer;
}

Row relu(Row row) {
  for (double& x : row) x = std::max(x, 0.0);
  return row;
}

Row in_floats(const Layer& layer, const Row& x) {
  Row y = layer.bias;
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t o = 0; o < y.size(); ++o) y[o] += x[i] * layer.weights[i][o];
  return y;
}

/// An activation's scale and zero point, by the least and the largest value that was seen.
struct Scale {
  double least = 0, most = 0;

  void see(const Row& row) {
    for (const double x : row) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
  double step() const { return static_cast<double>(static_cast<float>((most - least) / 255)); }
  double zero() const { return std::nearbyint(-least / step()); }
};

Row in_integers(const Layer& layer, const Scale& scale, const Row& x) {
  Row y(layer.bias.size());
  for (size_t o = 0; o < y.size(); ++o) {
    double largest = 0;
    for (const Row& row : layer.weights) largest = std::max(largest, std::abs(row[o]));
    const auto step = static_cast<double>(static_cast<float>(largest / 127));
    int64_t sum = std::llrint(layer.bias[o] / (scale.step() * step));
    for (size_t i = 0; i < x.size(); ++i) {
      const double byte = std::clamp(std::nearbyint(x[i] / scale.step()) + scale.zero(), 0., 255.);
      sum += std::llrint(byte - scale.zero()) * std::llrint(layer.weights[i][o] / step);
    }
    y[o] = static_cast<double>(sum) * scale.step() * step;
  }
  return y;
}

std::vector<Row> reference_outputs(const EditableModel& model, const std::vector<Row>& samples) {
  const Layer first = layer_of(model, "w1", "b1", false),
              second = layer_of(model, "w2", "b2", true),
              third = layer_of(model, "w3", nullptr, false);
  Scale x, r1, r2;
  for (size_t s = 0; s < samples.size(); s += 2) {  // those of the calibration
    const Row h1 = relu(in_floats(first, samples[s])), h2 = relu(in_floats(second, h1));
    x.see(samples[s]);
    r1.see(h1);
    r2.see(h2);
  }
  std::vector<Row> outputs;
  for (const Row& sample : samples)
    outputs.push_back(
        in_integers(third, r2, relu(in_integers(second, r1, relu(in_integers(first, x, sample))))));
  return outputs;
}

Row row_of(const Tensor& tensor) {
  Row row;
  for (int64_t i = 0; i < tensor.elements(); ++i) row.push_back(tensor.at(i));
  return row;
}

// The largest difference over the largest value of the reference.
double farthest(const std::vector<Row>& reference, const SampleOutputs& outputs) {
  double off = 0, largest = 0;
  for (size_t s = 0; s < reference.size(); ++s) {
    const Row row = row_of(outputs[s].at("y"));
    for (size_t i = 0; i < row.size(); ++i) {
      off = std::max(off, std::abs(row[i] - reference[s][i]));
      largest = std::max(largest, std::abs(reference[s][i]));
    }
  }
  return off / largest;
}

TEST(WrongQuantization, IsNoneOfTheReference) {
  const EditableModel model = editable(model_bytes(mlp_parts()));
  const QuantizeData data = normal_data({1, 16}, 48);
  const QuantizeResult right = quantize_model(
      model, data, {.ranges = RangeMethod::kMinMax, .correct_bias = false, .max_drop = 1e9});
  ASSERT_EQ(right.quantized(), 3u);
  ASSERT_LT(right.drop, QuantizeOptions::kDefaultDrop);
  const std::vector<NamedTensors>& samples = data.samples.samples;
  std::vector<Row> rows;
  for (const NamedTensors& sample : samples) rows.push_back(row_of(sample.at("x")));
  const std::vector<Row> reference = reference_outputs(model, rows);
  // Steps of f32 apart: engines multiply the integer sums by scales in another order.
  EXPECT_LT(farthest(reference, outputs_on(right.model, samples)), 1e-6);
  const SampleOutputs floats = outputs_on(model, samples);
  for (const Wrong& wrong : kWrong) {
    EditableModel changed = right.model;
    wrong.make(changed);
    const SampleOutputs outputs = outputs_on(changed, samples);
    EXPECT_GT(farthest(reference, outputs), 1e-3) << wrong.name;
    const double drop = 100 * error_power(floats, outputs);
    EXPECT_EQ(drop > QuantizeOptions::kDefaultDrop, wrong.is_refused)
        << wrong.name << ": the error is " << drop << " % of the power";
  }
}

}  // namespace
}  // namespace ridge::test
