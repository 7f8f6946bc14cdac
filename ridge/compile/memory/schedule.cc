#include "ridge/compile/memory/schedule.h"

#include <algorithm>

#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

class Scheduler {
 public:
  Scheduler(const Graph& graph, const std::vector<Value>& roots)
      : graph_(graph),
        roots_(roots),
        users_(graph.nodes().size()),
        waits_for_(graph.nodes().size()),
        remaining_uses_(graph.nodes().size()),
        done_(graph.nodes().size()),
        updates_(graph.nodes().size()) {
    for (const Output& output : graph.outputs())
      if (!output.updates.empty()) updates_[index(*root(output.value).node)] = true;
    add_edges();
    add_update_edges();
  }

  std::vector<const Node*> run() {
    for (const auto& node : graph_.nodes())
      if (node->is<Input>()) finish(*node);
    for (const auto& node : graph_.nodes())
      if (!done_[index(*node)] && !is_on_demand(*node)) place(*node);
    // Those that only an output reads.
    for (const auto& node : graph_.nodes())
      if (!done_[index(*node)]) place(*node);
    return std::move(order_);
  }

 private:
  static size_t index(const Node& node) { return static_cast<size_t>(node.id); }

  Value root(Value value) const { return value.index == 0 ? roots_[index(*value.node)] : value; }

  // A constant is made right before its first reader.
  bool is_on_demand(const Node& node) const {
    return node.inputs.empty() && !node.is<Input>() && !updates_[index(node)];
  }

  void add_edge(const Node& from, const Node& to) {
    users_[index(from)].push_back(&to);
    ++waits_for_[index(to)];
  }

  void add_edges() {
    for (const auto& node : graph_.nodes()) {
      for (const Value& input : node->inputs) {
        if (!is_on_demand(*input.node)) add_edge(*input.node, *node);
        ++remaining_uses_[index(*input.node)];
      }
    }
    for (const Output& output : graph_.outputs()) ++remaining_uses_[index(*output.value.node)];
  }

  // A new value that is made in the buffer of the old one must wait for the old one's readers.
  void add_update_edges() {
    for (const Output& output : graph_.outputs()) {
      if (output.updates.empty()) continue;
      const Node& maker = *root(output.value).node;
      const Node* old = graph_.find_input(output.updates);
      for (const auto& reader : graph_.nodes()) {
        if (reader->id >= maker.id) break;
        for (const Value& input : reader->inputs)
          if (root(input).node == old) add_edge(*reader, maker);
      }
    }
  }

  // Bytes that the run of `node` takes, less those of operands that nobody else waits for.
  int64_t net_bytes(const Node& node) const {
    int64_t net = 0;
    if (!updates_[index(node)])
      for (const TensorType& type : node.outputs) net += type.bytes();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& maker = *node.inputs[i].node;
      if (maker.is<Input>()) continue;
      const auto same = [&](const Value& value) { return value.node == &maker; };
      const auto uses = std::count_if(node.inputs.begin(), node.inputs.end(), same);
      const bool counted = std::any_of(
          node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(i), same);
      if (!counted && remaining_uses_[index(maker)] == uses)
        for (const TensorType& type : maker.outputs) net -= type.bytes();
    }
    return net;
  }

  void finish(const Node& node) {
    done_[index(node)] = true;
    for (const Value& input : node.inputs) --remaining_uses_[index(*input.node)];
    for (const Node* user : users_[index(node)]) --waits_for_[index(*user)];
  }

  void append(const Node& node) {
    order_.push_back(&node);
    finish(node);
  }

  // The node, then whatever it makes ready and is worth running at once.
  void place(const Node& first) {
    std::vector<const Node*> next{&first};
    while (!next.empty()) {
      const Node& node = *next.back();
      next.pop_back();
      if (done_[index(node)]) continue;
      for (const Value& input : node.inputs)
        if (!done_[index(*input.node)]) append(*input.node);
      append(node);
      for (const Node* user : users_[index(node)])
        if (!done_[index(*user)] && waits_for_[index(*user)] == 0 && net_bytes(*user) <= 0)
          next.push_back(user);
    }
  }

  const Graph& graph_;
  const std::vector<Value>& roots_;
  std::vector<std::vector<const Node*>> users_;
  std::vector<int> waits_for_;
  std::vector<int64_t> remaining_uses_;
  std::vector<bool> done_;
  std::vector<bool> updates_;  ///< Makes the new value of an input.
  std::vector<const Node*> order_;
};

}  // namespace

std::vector<const Node*> schedule(const Graph& graph, const std::vector<Value>& roots) {
  return Scheduler(graph, roots).run();
}

}  // namespace ridge
