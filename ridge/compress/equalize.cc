#include "ridge/compress/equalize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/compress/sites.h"

namespace ridge::compress {
namespace {

// A chain of pairs, as in MobileNet, settles in a few rounds.
constexpr int kMostRounds = 8;
// Beyond this a channel is dead, and its weights are left alone.
constexpr double kLeastWeight = 1e-12;
constexpr int kMostExponent = 20;

/// The weights of a convolution (O, I / groups, ...) and its bias, while they are scaled.
struct Layer {
  Site site;
  Tensor weights, bias = {};
  bool is_changed = false;

  int64_t outputs() const { return weights.type().shape[0]; }
  int64_t group_inputs() const { return weights.type().shape[1]; }
  int64_t inputs() const { return group_inputs() * site.groups; }
  int64_t kernel() const { return weights.elements() / (outputs() * group_inputs()); }
  // The input channel that an element of the weights is multiplied with.
  int64_t input_of(int64_t element) const {
    const int64_t output = element / (group_inputs() * kernel());
    const int64_t in_group = element / kernel() % group_inputs();
    return output / (outputs() / site.groups) * group_inputs() + in_group;
  }
  int64_t output_of(int64_t element) const { return element / (group_inputs() * kernel()); }
};

struct Pair {
  size_t first, second;
};

std::vector<double> largest_by_output(const Layer& layer) {
  std::vector<double> largest(static_cast<size_t>(layer.outputs()));
  for (int64_t i = 0; i < layer.weights.elements(); ++i) {
    double& of = largest[static_cast<size_t>(layer.output_of(i))];
    of = std::max(of, std::abs(layer.weights.at(i)));
  }
  return largest;
}

std::vector<double> largest_by_input(const Layer& layer) {
  std::vector<double> largest(static_cast<size_t>(layer.inputs()));
  for (int64_t i = 0; i < layer.weights.elements(); ++i) {
    double& of = largest[static_cast<size_t>(layer.input_of(i))];
    of = std::max(of, std::abs(layer.weights.at(i)));
  }
  return largest;
}

// The powers of two that the channels between two layers are divided by; all 1 where they suit.
std::vector<double> factors_of(const Layer& first, const Layer& second) {
  const std::vector<double> a = largest_by_output(first), b = largest_by_input(second);
  std::vector<double> factors(a.size(), 1);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] < kLeastWeight || b[i] < kLeastWeight) continue;
    const double exponent = std::round(0.5 * std::log2(a[i] / b[i]));
    factors[i] = std::exp2(std::clamp<double>(exponent, -kMostExponent, kMostExponent));
  }
  return factors;
}

// Whether the layers were changed.
bool apply(Layer& first, Layer& second) {
  const std::vector<double> factors = factors_of(first, second);
  if (std::ranges::all_of(factors, [](double factor) { return factor == 1; })) return false;
  for (int64_t i = 0; i < first.weights.elements(); ++i)
    first.weights.set(i, first.weights.at(i) / factors[static_cast<size_t>(first.output_of(i))]);
  if (!first.site.bias.empty())
    for (int64_t i = 0; i < first.outputs(); ++i)
      first.bias.set(i, first.bias.at(i) / factors[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < second.weights.elements(); ++i)
    second.weights.set(i, second.weights.at(i) * factors[static_cast<size_t>(second.input_of(i))]);
  first.is_changed = second.is_changed = true;
  return true;
}

std::vector<Layer> layers_of(const EditableModel& model) {
  std::vector<Layer> layers;
  for (const Site& site : find_sites(model).sites) {
    if (!site.is_conv()) continue;
    Layer layer{.site = site, .weights = model.elements(*model.constant(site.weights)).tensor()};
    if (!site.bias.empty()) layer.bias = model.elements(*model.constant(site.bias)).tensor();
    layers.push_back(std::move(layer));
  }
  return layers;
}

// Layers whose weights or bias another node reads, too, are in no pair.
std::vector<Pair> pairs_of(const EditableModel& model, const std::vector<Layer>& layers) {
  std::map<std::string, int> uses = model.uses();
  std::map<std::string, std::string> behind_relu;  // the result of a Relu, by what it reads
  for (const EditableNode& node : model.nodes())
    if (node.proto.op == "Relu" && node.proto.domain.empty() && node.proto.inputs.size() == 1 &&
        node.proto.outputs.size() == 1)
      behind_relu[node.proto.inputs[0]] = node.proto.outputs[0];
  const auto owns = [&](const Layer& layer) {
    return uses[layer.site.weights] == 1 && (layer.site.bias.empty() || uses[layer.site.bias] == 1);
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::string value = layers[i].site.output;
    if (uses[value] != 1 || !owns(layers[i])) continue;
    if (const auto relu = behind_relu.find(value); relu != behind_relu.end()) value = relu->second;
    if (uses[value] != 1) continue;
    for (size_t k = 0; k < layers.size(); ++k)
      if (layers[k].site.input == value && owns(layers[k]) &&
          layers[k].inputs() == layers[i].outputs())
        pairs.push_back({i, k});
  }
  return pairs;
}

}  // namespace

int equalize(EditableModel& model) {
  std::vector<Layer> layers = layers_of(model);
  const std::vector<Pair> pairs = pairs_of(model, layers);
  std::set<size_t> changed;
  for (int round = 0; round < kMostRounds; ++round) {
    bool moves = false;
    for (size_t i = 0; i < pairs.size(); ++i)
      if (apply(layers[pairs[i].first], layers[pairs[i].second])) {
        changed.insert(i);
        moves = true;
      }
    if (!moves) break;
  }
  std::set<std::string> unused;
  for (const Layer& layer : layers) {
    if (!layer.is_changed) continue;
    const auto replace = [&](const std::string& name, const Tensor& tensor) {
      const std::string fresh = model.new_name(name + "_equalized");
      model.add_initializer(fresh, tensor);
      unused.insert(name);
      return fresh;
    };
    for (EditableNode& node : model.nodes()) {
      if (node.proto.outputs.empty() || node.proto.outputs[0] != layer.site.output) continue;
      std::vector<std::string> inputs = node.proto.inputs;
      inputs[1] = replace(layer.site.weights, layer.weights);
      if (!layer.site.bias.empty()) inputs[2] = replace(layer.site.bias, layer.bias);
      node = renamed(node, inputs, node.proto.outputs);
      break;
    }
  }
  model.remove_unused(unused);
  return static_cast<int>(changed.size());
}

}  // namespace ridge::compress
