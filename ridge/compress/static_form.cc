#include "ridge/compress/static_form.h"

#include <optional>

#include "ridge/compress/weights.h"

namespace ridge::compress {
namespace {

using onnx::AttributeList;
using onnx::NodeProto;

Tensor scalar(DType dtype, double value) {
  Tensor tensor(TensorType{dtype, {}});
  tensor.set(0, value);
  return tensor;
}

class StaticWriter {
 public:
  StaticWriter(const EditableModel& model, const QuantizedForm& form)
      : model_(model), form_(form) {}

  EditableModel write(std::set<std::string> chosen) {
    for (const Site& site : form_.sites)
      if (chosen.contains(site.output) && form_.scales.contains(site.input))
        sites_[site.output] = &site;
      else
        chosen.erase(site.output);
    points_ = points_of(model_, form_.sites, chosen);
    for (auto& [value, from] : points_.range_of)
      if (!form_.scales.contains(from)) from = value;
    add_nodes();
    model_.remove_unused(unused_);
    return std::move(model_);
  }

  SwitchedModel write_switched() {
    switches_.emplace(model_, form_.sites.size());
    for (const Site& site : form_.sites) {
      if (!form_.scales.contains(site.input)) continue;
      sites_[site.output] = &site;
      points_.range_of[site.input] = site.input;
    }
    add_nodes();
    return {std::move(model_), switches_->input()};
  }

 private:
  void add_nodes() {
    // Constants are looked up among the nodes until all are written.
    const std::vector<EditableNode> nodes = model_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) switches_ ? add_switched(nodes[i]) : add(nodes[i], i);
    model_.nodes() = std::move(nodes_);
  }

  const Site* site_of(const EditableNode& node) const {
    const auto found =
        node.proto.outputs.empty() ? sites_.end() : sites_.find(node.proto.outputs[0]);
    return found == sites_.end() ? nullptr : found->second;
  }

  void add(const EditableNode& node, size_t number) {
    std::vector<std::string> inputs = node.proto.inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (points_.inputs.contains({number, i})) inputs[i] = activation(inputs[i]);
    if (const Site* const site = site_of(node)) quantize_constants(*site, inputs);
    nodes_.push_back(inputs == node.proto.inputs ? node
                                                 : renamed(node, inputs, node.proto.outputs));
  }

  void add_switched(const EditableNode& node) {
    const Site* const site = site_of(node);
    if (site == nullptr) return nodes_.push_back(node);
    const auto write = [&](const std::string& in_bytes) {
      std::vector<std::string> inputs = node.proto.inputs;
      inputs[0] = activation(site->input);
      quantize_constants(*site, inputs);
      nodes_.push_back(renamed(node, inputs, {in_bytes}));
    };
    switches_->add(static_cast<size_t>(site - form_.sites.data()), node, write, nodes_);
  }

  void add_node(std::string op, std::vector<std::string> inputs, std::string output, int64_t axis) {
    const std::string name = model_.new_name(fmt::format("{}_{}", output, op));
    std::string attributes;
    if (axis >= 0) attributes = AttributeList().integer("axis", axis).bytes();
    nodes_.push_back(made_node({.op = std::move(op),
                                .name = name,
                                .inputs = std::move(inputs),
                                .outputs = {std::move(output)},
                                .attributes = attributes}));
  }

  // The value as it is behind bytes; the value itself where nothing is known of its range.
  std::string activation(const std::string& value) {
    const auto [at, is_new] = activations_.emplace(value, value);
    if (!is_new) return at->second;
    const std::string& from = points_.range_of.at(value);
    const auto scale = form_.scales.find(from);
    if (scale == form_.scales.end()) return value;
    auto& names = scale_names_[from];
    if (names.first.empty()) {
      names = {model_.new_name(from + "_scale"), model_.new_name(from + "_zero_point")};
      model_.add_initializer(names.first,
                             scalar(DType::kF32, static_cast<double>(scale->second.scale)));
      model_.add_initializer(names.second, scalar(DType::kU8, scale->second.zero));
    }
    const std::string bytes = model_.new_name(value + "_quantized");
    const std::string result = model_.new_name(value + "_dequantized");
    add_node("QuantizeLinear", {value, names.first, names.second}, bytes, -1);
    add_node("DequantizeLinear", {bytes, names.first, names.second}, result, -1);
    return activations_[value] = result;
  }

  // A constant of integers with scales along an axis, as the value behind DequantizeLinear.
  std::string dequantized(const std::string& name,
                          const Tensor& integers,
                          const Tensor& scales,
                          int64_t axis) {
    const std::string values = model_.new_name(name + "_quantized");
    const std::string scale = model_.new_name(name + "_scale");
    const std::string zero = model_.new_name(name + "_zero_point");
    model_.add_initializer(values, integers);
    model_.add_initializer(scale, scales);
    model_.add_initializer(zero, Tensor({integers.type().dtype, scales.type().shape}));
    const std::string result = model_.new_name(name + "_dequantized");
    add_node("DequantizeLinear", {values, scale, zero}, result, axis);
    return result;
  }

  void quantize_constants(const Site& site, std::vector<std::string>& inputs) {
    const Tensor weights = model_.elements(*model_.constant(site.weights)).tensor();
    const int64_t channels = weights.type().shape[static_cast<size_t>(site.axis)];
    const float input_scale = form_.scales.at(points_.range_of.at(site.input)).scale;
    const auto means = form_.means.find(site.output);
    const bool corrects = means != form_.means.end() && site.may_have_bias();
    Tensor bias({DType::kF32, {channels}});
    if (!site.bias.empty()) bias = model_.elements(*model_.constant(site.bias)).tensor();
    const auto quantized = [&] {
      return quantize_weights(weights,
                              site.axis,
                              form_.ranges,
                              least_scales_for(bias, static_cast<double>(input_scale)));
    };
    ByteWeights bytes = quantized();
    if (corrects) {
      const std::vector<double> moved =
          moved_mean(weights, bytes, site.axis, site.groups, means->second);
      for (int64_t i = 0; i < channels; ++i)
        bias.set(i, bias.at(i) + moved[static_cast<size_t>(i)]);
      bytes = quantized();
    }
    inputs[1] = shared_weights(site, bytes);
    unused_.insert(site.weights);
    if (site.bias.empty() && !corrects) return;
    const IntegerBias integers = quantize_bias(bias, input_scale, bytes.scales);
    const std::string name = site.bias.empty() ? site.weights + "_bias" : site.bias;
    inputs.resize(3);
    inputs[2] = dequantized(name, integers.integers, integers.scales, 0);
    unused_.insert(site.bias);
  }

  // Sites that read the same weights, with the same scales, share the bytes.
  std::string shared_weights(const Site& site, const ByteWeights& bytes) {
    for (const auto& [key, scales, value] : weights_)
      if (key == std::pair(site.weights, site.axis) && scales.same_bits(bytes.scales)) return value;
    const std::string value = dequantized(site.weights, bytes.integers, bytes.scales, site.axis);
    weights_.push_back({{site.weights, site.axis}, bytes.scales, value});
    return value;
  }

  struct SharedWeights {
    std::pair<std::string, int64_t> key;
    Tensor scales;
    std::string value;
  };

  EditableModel model_;
  const QuantizedForm& form_;
  std::optional<SiteSwitches> switches_;
  std::map<std::string, const Site*> sites_;  // by output
  QuantizedPoints points_;
  std::vector<EditableNode> nodes_;
  std::map<std::string, std::string> activations_;
  std::map<std::string, std::pair<std::string, std::string>> scale_names_;
  std::vector<SharedWeights> weights_;
  std::set<std::string> unused_;
};

}  // namespace

std::map<std::string, ByteScale> scales_of(const std::map<std::string, Activations>& activations,
                                           RangeMethod method) {
  std::map<std::string, ByteScale> scales;
  for (const auto& [name, of] : activations)
    if (of.problem.empty()) scales[name] = byte_scale(choose_range(of.histogram, method));
  return scales;
}

EditableModel in_static_form(const EditableModel& model,
                             const QuantizedForm& form,
                             const std::set<std::string>& chosen) {
  return StaticWriter(model, form).write(chosen);
}

SwitchedModel with_static_switches(const EditableModel& model, const QuantizedForm& form) {
  return StaticWriter(model, form).write_switched();
}

}  // namespace ridge::compress
