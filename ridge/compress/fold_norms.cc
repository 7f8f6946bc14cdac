#include "ridge/compress/fold_norms.h"

#include <cmath>
#include <optional>

#include "ridge/compress/sites.h"

namespace ridge::compress {
namespace {

using onnx::NodeProto;

/// The result of a convolution times `scale`, plus `shift`, by output channel.
struct Norm {
  std::vector<double> scale, shift;
};

std::optional<std::vector<double>> channel_constant(const EditableModel& model,
                                                    const std::string& name,
                                                    int64_t channels) {
  const onnx::TensorProto* const tensor = model.constant(name);
  if (tensor == nullptr || tensor->data_type != 1 || tensor->dims != std::vector<int64_t>{channels})
    return std::nullopt;
  const onnx::Known elements = model.elements(*tensor);
  std::vector<double> values;
  for (int64_t i = 0; i < channels; ++i) values.push_back(elements.at(i));
  return values;
}

std::optional<Norm> norm_of(const EditableModel& model, const NodeProto& node, int64_t channels) {
  if (node.op != "BatchNormalization" || !node.domain.empty() || node.inputs.size() != 5)
    return std::nullopt;
  if (integer_of(node, "training_mode", 0) != 0) return std::nullopt;
  for (size_t i = 1; i < node.outputs.size(); ++i)
    if (!node.outputs[i].empty()) return std::nullopt;
  std::optional<std::vector<double>> of[4];
  for (size_t i = 0; i < 4; ++i)
    if (!(of[i] = channel_constant(model, node.inputs[i + 1], channels))) return std::nullopt;
  const double epsilon = number_of(node, "epsilon", 1e-5f);
  Norm norm;
  for (size_t i = 0; i < static_cast<size_t>(channels); ++i) {
    norm.scale.push_back((*of[0])[i] / std::sqrt((*of[3])[i] + epsilon));
    norm.shift.push_back((*of[1])[i] - (*of[2])[i] * norm.scale[i]);
    if (!std::isfinite(norm.scale[i]) || !std::isfinite(norm.shift[i])) return std::nullopt;
  }
  return norm;
}

// The same convolution with the norm in it, whose result has the norm's name.
EditableNode folded(EditableModel& model,
                    const EditableNode& node,
                    const Norm& norm,
                    const std::string& output) {
  const NodeProto& conv = node.proto;
  Tensor weights = model.elements(*model.constant(conv.inputs[1])).tensor();
  const auto channels = static_cast<int64_t>(norm.scale.size());
  const int64_t each = weights.elements() / channels;
  for (int64_t i = 0; i < weights.elements(); ++i)
    weights.set(i, weights.at(i) * norm.scale[static_cast<size_t>(i / each)]);
  Tensor bias({DType::kF32, {channels}});
  const bool has_bias = conv.inputs.size() > 2 && !conv.inputs[2].empty();
  if (has_bias) bias = model.elements(*model.constant(conv.inputs[2])).tensor();
  for (int64_t i = 0; i < channels; ++i) {
    const auto at = static_cast<size_t>(i);
    bias.set(i, bias.at(i) * norm.scale[at] + norm.shift[at]);
  }
  const std::string name = model.new_name(conv.inputs[1] + "_folded");
  const std::string bias_name = model.new_name(conv.inputs[1] + "_folded_bias");
  model.add_initializer(name, weights);
  model.add_initializer(bias_name, bias);
  return renamed(node, {conv.inputs[0], name, bias_name}, {output});
}

}  // namespace

int fold_norms(EditableModel& model) {
  std::map<std::string, int> uses = model.uses();
  const SiteList list = find_sites(model);
  std::map<std::string, size_t> convs;  // the nodes of results
  for (size_t i = 0; i < model.nodes().size(); ++i) {
    const NodeProto& node = model.nodes()[i].proto;
    if (!node.outputs.empty()) convs[node.outputs[0]] = i;
  }
  std::set<size_t> gone;
  std::set<std::string> unused;
  for (const Site& site : list.sites) {
    if (!site.is_conv() || uses[site.output] != 1) continue;
    const int64_t channels = model.constant(site.weights)->dims[0];
    for (size_t i = 0; i < model.nodes().size(); ++i) {
      const NodeProto node = model.nodes()[i].proto;
      if (node.inputs.empty() || node.inputs[0] != site.output) continue;
      const std::optional<Norm> norm = norm_of(model, node, channels);
      if (!norm) break;
      const size_t at = convs.at(site.output);
      model.nodes()[at] = folded(model, model.nodes()[at], *norm, node.outputs[0]);
      gone.insert(i);
      unused.insert({site.weights, site.bias});
      unused.insert(node.inputs.begin() + 1, node.inputs.end());
      break;
    }
  }
  std::vector<EditableNode> left;
  for (size_t i = 0; i < model.nodes().size(); ++i)
    if (!gone.contains(i)) left.push_back(std::move(model.nodes()[i]));
  model.nodes() = std::move(left);
  model.remove_unused(unused);
  return static_cast<int>(gone.size());
}

}  // namespace ridge::compress
