#include "ridge/compress/points.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace ridge::compress {
namespace {

using onnx::NodeProto;

// These give some of the elements that they read.
constexpr std::string_view kMoving[] = {
    "MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"};
constexpr std::string_view kResizing[] = {"Resize", "Upsample"};  // so do these, by nearest pixels
constexpr std::string_view kAverages[] = {"AveragePool", "GlobalAveragePool"};
constexpr std::string_view kJoining[] = {"Add", "Concat"};
// Engines fuse these with the operator before them, as bounds of its bytes.
constexpr std::string_view kBounds[] = {"Relu", "Clip"};

bool is_one_of(const NodeProto& node, std::span<const std::string_view> ops) {
  return node.domain.empty() && node.outputs.size() == 1 && !node.inputs.empty() &&
         std::ranges::find(ops, node.op) != ops.end();
}

bool is_moving(const NodeProto& node) {
  if (is_one_of(node, kMoving)) return true;
  if (!is_one_of(node, kResizing)) return false;
  const onnx::Attribute* const mode = find_attribute(node, "mode");
  return mode == nullptr || mode->text == "nearest";
}

/// The maker of a value, in front of operators that bound it.
struct Made {
  const NodeProto* node = nullptr;  ///< Null for an input of the model.
  size_t number = 0;
  bool is_bounded = false;
  bool is_from_conv = false;  ///< A chosen convolution gave it, maybe before operators of bytes.
};

class PointFinder {
 public:
  PointFinder(const EditableModel& model,
              const std::vector<Site>& sites,
              const std::set<std::string>& chosen)
      : model_(model) {
    std::set<std::string> convs;
    for (const Site& site : sites)
      if (site.is_conv() && chosen.contains(site.output)) convs.insert(site.output);
    read_makers(convs);
    for (const Site& site : sites)
      if (chosen.contains(site.output)) add_input(made_.at(site.output).number, 0);
    while (!left_.empty()) {
      const std::string value = std::move(left_.back());
      left_.pop_back();
      look_behind(value);
    }
    resolve_ranges();
    find_passed(chosen);
  }

  QuantizedPoints take() { return std::move(points_); }

 private:
  // Nodes stand in order: what they read is known.
  void read_makers(const std::set<std::string>& convs) {
    for (size_t i = 0; i < model_.nodes().size(); ++i) {
      const NodeProto& node = model_.nodes()[i].proto;
      Made made{.node = &node, .number = i};
      if (is_one_of(node, kBounds)) {
        made = made_of(node.inputs[0]);
        made.is_bounded = true;
      } else if (is_moving(node) || is_one_of(node, kAverages)) {
        made.is_from_conv = made_of(node.inputs[0]).is_from_conv;
      } else {
        made.is_from_conv = is_joining(node);
      }
      for (const std::string& output : node.outputs) {
        made_[output] = made;
        if (convs.contains(output)) made_[output].is_from_conv = true;
      }
    }
  }

  Made made_of(const std::string& value) const {
    const auto found = made_.find(value);
    return found == made_.end() ? Made() : found->second;
  }

  // A residual connection, or a Concat, with a value of a convolution.
  bool is_joining(const NodeProto& node) const {
    if (!is_one_of(node, kJoining) || (node.op == "Add" && node.inputs.size() != 2)) return false;
    return std::ranges::none_of(
               node.inputs, [&](const auto& value) { return model_.constant(value) != nullptr; }) &&
           std::ranges::any_of(node.inputs,
                               [&](const auto& value) { return made_of(value).is_from_conv; });
  }

  // `range`: the value whose range it has, unless another reader wants its own; empty: its own.
  void add_input(size_t node, size_t input, const std::string& range = {}) {
    points_.inputs.emplace(node, input);
    const std::string& value = model_.nodes()[node].proto.inputs[input];
    const auto [at, is_new] = points_.range_of.emplace(value, range.empty() ? value : range);
    if (is_new) left_.push_back(value);
  }

  void look_behind(const std::string& value) {
    const Made made = made_of(value);
    if (made.node == nullptr) return;
    const NodeProto& node = *made.node;
    if (is_joining(node)) {
      // Values joined without arithmetic are rounded once where all have the scale of the result.
      const bool has_one_scale = node.op == "Concat" && !made.is_bounded;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        add_input(made.number, i, has_one_scale ? value : std::string());
    } else if (is_moving(node) || is_one_of(node, kAverages)) {
      if (!made_of(node.inputs[0]).is_from_conv) return;
      add_input(made.number, 0);
      if (is_moving(node) && !made.is_bounded) points_.range_of[value] = node.inputs[0];
    }
  }

  // A chain of operators that move elements has the range of its first.
  void resolve_ranges() {
    for (const EditableNode& node : model_.nodes())
      for (const std::string& output : node.proto.outputs) {
        const auto at = points_.range_of.find(output);
        if (at == points_.range_of.end()) continue;
        const auto from = points_.range_of.find(at->second);
        if (from != points_.range_of.end()) at->second = from->second;
      }
  }

  void find_passed(const std::set<std::string>& chosen) {
    for (const auto& [value, from] : points_.range_of) {
      const Made made = made_of(value);
      if (made.node == nullptr) continue;
      const std::string& result = made.node->outputs.at(0);
      const bool is_site = chosen.contains(result);
      if (is_site) points_.passed.insert(result);
      if (is_site || made.is_from_conv) points_.passed.insert(value);
    }
  }

  const EditableModel& model_;
  std::map<std::string, Made> made_;
  std::vector<std::string> left_;
  QuantizedPoints points_;
};

}  // namespace

QuantizedPoints points_of(const EditableModel& model,
                          const std::vector<Site>& sites,
                          const std::set<std::string>& chosen) {
  return PointFinder(model, sites, chosen).take();
}

}  // namespace ridge::compress
