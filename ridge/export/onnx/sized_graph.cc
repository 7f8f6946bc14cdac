#include "ridge/export/onnx/sized_graph.h"

#include <algorithm>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::onnx {
namespace {

// Two sizes that are not likely to be those of anything else in a model; of a dimension that has a
// largest size two below it, where builders would leave out that they take a part.
constexpr int64_t kFirst = 11, kOther = 13;
constexpr int64_t kLeastLargest = 4;

// The largest size of a dimension of the inputs; 0: any.
int64_t largest_size(const ModelSource& source, const std::string& name) {
  int64_t largest = 0;
  for (const DataSpec& spec : source.inputs())
    for (const Dim& dim : spec.dims)
      if (dim.name == name && dim.size > 0)
        largest = largest == 0 ? dim.size : std::min(largest, dim.size);
  return largest;
}

// Fields of these ops are sizes, or of as many elements as their results have.
bool says_sizes(const Node& node) {
  return node.is<Input>() || node.is<Iota>() || node.is<Reshape>() || node.is<Broadcast>() ||
         node.is<Slice>();
}

bool are_alike(const Node& a, const Node& b) {
  if (a.op->name() != b.op->name() || a.inputs.size() != b.inputs.size()) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (a.inputs[i].node->id != b.inputs[i].node->id || a.inputs[i].index != b.inputs[i].index)
      return false;
  for (size_t i = 0; i < a.outputs.size(); ++i)
    if (a.outputs[i].dtype != b.outputs[i].dtype || a.outputs[i].rank() != b.outputs[i].rank())
      return false;
  if (a.is<Constant>()) {
    const auto &one = a.op_as<Constant>(), &other = b.op_as<Constant>();
    return one.is_splat() ? one.values == other.values && one.ints == other.ints
                          : equal(one, other);
  }
  return says_sizes(a) || equal(*a.op, *b.op);
}

}  // namespace

SizedGraph::SizedGraph(const ModelSource& source,
                       const Binding& fixed,
                       FunctionRef<Graph(const Graph&)> prepare)
    : fixed_(fixed) {
  Binding first = fixed;
  for (const std::string& name : source.dims()) {
    if (first.contains(name)) continue;
    const int64_t largest = largest_size(source, name);
    if (largest > 0 && largest < kLeastLargest) {
      first[name] = fixed_[name] = largest;
      continue;
    }
    const int64_t other = largest > 0 ? std::min(kOther, largest - 1) : kOther;
    first[name] = std::min(kFirst, other - 1);
    variants_.push_back({name, first[name], other});
  }
  const auto add = [&](const Binding& binding) {
    graphs_.push_back(prepare(source.bind(binding).entries.at(0)));
  };
  add(first);
  for (const Variant& variant : variants_) {
    Binding changed = first;
    changed[variant.name] = variant.other;
    add(changed);
  }
  check_alike();
}

void SizedGraph::check_alike() const {
  const auto& nodes = graphs_[0].nodes();
  for (size_t v = 0; v < variants_.size(); ++v) {
    const auto& others = graphs_[v + 1].nodes();
    for (size_t i = 0; i < nodes.size(); ++i)
      if (others.size() != nodes.size() || !are_alike(*nodes[i], *others[i]))
        throw UserError(
            fmt::format("the graph depends on dimension '{}' in more than sizes, first at '{}'",
                        variants_[v].name,
                        nodes[i]->site.name),
            fmt::format(
                "give it a size, as in --dim {}={}", variants_[v].name, variants_[v].first));
  }
}

Size SizedGraph::derived(FunctionRef<int64_t(const Graph&)> read, const Node& node) const {
  Size size{.factor = read(graphs_[0])};
  const int64_t first = size.factor;
  for (size_t v = 0; v < variants_.size(); ++v) {
    const Variant& variant = variants_[v];
    const int64_t other = read(graphs_[v + 1]);
    if (other == first) continue;
    if (first * variant.other != other * variant.first || size.factor % variant.first != 0)
      throw UserError(
          fmt::format("'{}' has a size that is no multiple of dimension '{}': {} where that is {}, "
                      "{} where it is {}",
                      node.site.name,
                      variant.name,
                      first,
                      variant.first,
                      other,
                      variant.other),
          fmt::format("give it a size, as in --dim {}={}", variant.name, variant.first));
    size.factor /= variant.first;
    size.names.push_back(variant.name);
  }
  return size;
}

Size SizedGraph::size(Value value, size_t axis) const {
  const auto id = static_cast<size_t>(value.node->id);
  const auto index = static_cast<size_t>(value.index);
  return derived([&](const Graph& graph) { return graph.nodes()[id]->outputs[index].shape[axis]; },
                 *value.node);
}

std::vector<Size> SizedGraph::sizes(Value value) const {
  std::vector<Size> sizes;
  for (size_t axis = 0; axis < value.shape().size(); ++axis) sizes.push_back(size(value, axis));
  return sizes;
}

Size SizedGraph::number(const Node& node, FunctionRef<int64_t(const Node&)> read) const {
  const auto id = static_cast<size_t>(node.id);
  return derived([&](const Graph& graph) { return read(*graph.nodes()[id]); }, node);
}

}  // namespace ridge::onnx
