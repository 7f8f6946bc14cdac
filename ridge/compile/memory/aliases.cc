#include "ridge/compile/memory/aliases.h"

#include <algorithm>
#include <set>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {

namespace {

// Whether a slice has elements that follow each other from the first one on, and most of them: as
// long as it is needed, so are the bytes of all.
bool is_beginning(const Node& node) {
  if (!node.is<Slice>()) return false;
  if (4 * node.outputs[0].bytes() < 3 * node.inputs[0].type().bytes()) return false;
  const auto& op = node.op_as<Slice>();
  const Shape &from = node.inputs[0].shape(), &to = node.outputs[0].shape;
  int64_t from_stride = 1, to_stride = 1;
  for (size_t i = from.size(); i-- > 0; from_stride *= from[i], to_stride *= to[i])
    if (op.start[i] != 0 || (to[i] > 1 && op.step[i] * from_stride != to_stride)) return false;
  return true;
}

}  // namespace

std::vector<Value> byte_roots(const Graph& graph, bool share) {
  std::vector<Value> roots;
  roots.reserve(graph.nodes().size());
  for (const auto& node : graph.nodes()) {
    Value root{node.get(), 0};
    if (share && (node->is<Reshape>() || node->is<Barrier>() || is_beginning(*node))) {
      const Value from = node->inputs[0];
      root = from.index == 0 ? roots[static_cast<size_t>(from.node->id)] : from;
    }
    roots.push_back(root);
  }
  return roots;
}

namespace {

Value root_of(Value value, const std::vector<Value>& roots) {
  return value.index == 0 ? roots[static_cast<size_t>(value.node->id)] : value;
}

// May `value` be made in the buffer of input `old`, which nobody else wants it in?
bool is_made_in_place(Value value,
                      const Node& old,
                      const std::vector<Value>& roots,
                      const Graph& graph) {
  const Node& maker = *value.node;
  if (maker.is<Input>()) return false;
  for (const auto& reader : graph.nodes()) {
    const bool moves_nothing = roots[static_cast<size_t>(reader->id)].node != reader.get();
    if (moves_nothing) continue;
    for (size_t i = 0; i < reader->inputs.size(); ++i) {
      if (root_of(reader->inputs[i], roots).node != &old) continue;
      if (reader->id > maker.id) return false;
      const auto result = static_cast<size_t>(value.index);
      if (reader.get() == &maker && !maker.op->may_overwrite(result, i)) return false;
    }
  }
  return true;
}

// For each output, whether it needs a copy as the graph is now.
std::vector<bool> needed_copies(const Graph& graph, const std::vector<Value>& roots) {
  std::set<const Node*> updated;
  for (const Output& output : graph.outputs())
    if (!output.updates.empty()) updated.insert(graph.find_input(output.updates));
  std::set<std::pair<const Node*, int>> taken;
  std::vector<bool> needed;
  for (const Output& output : graph.outputs()) {
    const Value root = root_of(output.value, roots);
    if (output.updates.empty()) {
      needed.push_back(updated.contains(root.node));
      continue;
    }
    const Node& old = *graph.find_input(output.updates);
    const bool is_free = taken.insert({root.node, root.index}).second;
    const bool is_whole = root.type().bytes() == old.outputs[0].bytes();
    needed.push_back(!is_free || !is_whole || !is_made_in_place(root, old, roots, graph));
  }
  return needed;
}

void add_copies(Graph& graph, const std::vector<bool>& needed) {
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) rewrite.copy(*node);
  // Old values are copied away before new ones are written over them.
  for (const bool updating : {false, true}) {
    for (size_t i = 0; i < needed.size(); ++i) {
      const Output& output = graph.outputs()[i];
      if (!needed[i] || output.updates.empty() == updating) continue;
      const SiteScope scope(rewrite.to(), output.name + "/copy", SiteScope::Path::kAbsolute);
      rewrite.redirect(output.name, copy(rewrite.mapped(output.value)));
    }
  }
  graph = rewrite.finish();
}

}  // namespace

void separate_updates(Graph& graph, bool share) {
  if (!share) {
    std::vector<bool> updates;
    for (const Output& output : graph.outputs()) updates.push_back(!output.updates.empty());
    add_copies(graph, updates);
  }
  // Each round copies what is still in the way; two copies undo any cycle of updates.
  for (int round = 0;; ++round) {
    const std::vector<bool> needed = needed_copies(graph, byte_roots(graph, share));
    if (std::find(needed.begin(), needed.end(), true) == needed.end()) return;
    check_internal(round < 4, "updates of graph '{}' cannot be put in order", graph.name());
    add_copies(graph, needed);
  }
}

}  // namespace ridge
