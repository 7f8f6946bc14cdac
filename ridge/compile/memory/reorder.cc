#include "ridge/compile/memory/reorder.h"

#include <algorithm>
#include <set>

#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// Dependencies between the launches, and the bytes that each launch reads, by node id.
class LaunchGraph {
 public:
  LaunchGraph(const Graph& graph, const std::vector<Value>& roots, const LaunchOrder& plain)
      : graph_(graph),
        roots_(roots),
        sources_(graph.nodes().size()),
        users_(graph.nodes().size()),
        reads_(graph.nodes().size()),
        readers_(graph.nodes().size()),
        kept_(graph.nodes().size()),
        updates_(graph.nodes().size()) {
    for (const Node* node : plain) add_node(*node);
    for (const Output& output : graph.outputs()) add_output(output);
  }

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  const std::vector<const Node*>& users(const Node& node) const { return users_[id(node)]; }
  const std::set<const Node*>& sources(const Node& node) const { return sources_[id(node)]; }
  /// Nodes whose results it reads, and that may be freed by it.
  const std::vector<const Node*>& reads(const Node& node) const { return reads_[id(node)]; }
  const std::vector<const Node*>& readers(const Node& node) const { return readers_[id(node)]; }
  /// An output: nobody frees it.
  bool is_kept(const Node& node) const { return kept_[id(node)]; }

  /// Bytes of the arena that its results take.
  int64_t made_bytes(const Node& node) const {
    if (updates_[id(node)]) return 0;
    int64_t bytes = 0;
    for (const TensorType& type : node.outputs) bytes += type.bytes();
    return bytes;
  }

 private:
  bool is_launched(const Node& node) const { return roots_[id(node)].node == &node; }
  const Node& root(Value value) const {
    return value.index == 0 ? *roots_[id(*value.node)].node : *value.node;
  }

  // A node that is not launched hands on what it waits for.
  void collect_sources(const Node& node, std::set<const Node*>& found) const {
    for (const Value& input : node.inputs) {
      if (input.node->is<Input>()) continue;
      if (is_launched(*input.node))
        found.insert(input.node);
      else
        collect_sources(*input.node, found);
    }
  }

  void add_node(const Node& node) {
    collect_sources(node, sources_[id(node)]);
    for (const Node* source : sources_[id(node)]) users_[id(*source)].push_back(&node);
    for (const Value& input : node.inputs) {
      const Node& read = root(input);
      auto& readers = readers_[id(read)];
      if (!readers.empty() && readers.back() == &node) continue;
      readers.push_back(&node);
      if (!read.is<Input>()) reads_[id(node)].push_back(&read);
    }
  }

  void add_output(const Output& output) {
    const Node& maker = root(output.value);
    if (output.updates.empty()) {
      kept_[id(maker)] = true;
      return;
    }
    updates_[id(maker)] = true;
    const Node& old = *graph_.find_input(output.updates);
    for (const Node* reader : readers_[id(old)])
      if (reader != &maker && sources_[id(maker)].insert(reader).second)
        users_[id(*reader)].push_back(&maker);
  }

  const Graph& graph_;
  const std::vector<Value>& roots_;
  std::vector<std::set<const Node*>> sources_;
  std::vector<std::vector<const Node*>> users_, reads_, readers_;
  std::vector<bool> kept_, updates_;
};

class GreedyOrder {
 public:
  GreedyOrder(const LaunchGraph& graph, const LaunchOrder& plain, size_t nodes)
      : graph_(graph), plain_(plain), waits_for_(nodes), readers_left_(nodes), rank_(nodes) {
    for (size_t i = 0; i < plain.size(); ++i) {
      const size_t id = LaunchGraph::id(*plain[i]);
      waits_for_[id] = graph.sources(*plain[i]).size();
      readers_left_[id] = graph.readers(*plain[i]).size();
      rank_[id] = i;
      if (waits_for_[id] == 0) ready_.push_back(plain[i]);
    }
  }

  LaunchOrder run() {
    LaunchOrder order;
    order.reserve(plain_.size());
    while (!ready_.empty()) {
      const auto next = std::min_element(
          ready_.begin(), ready_.end(), [&](auto* a, auto* b) { return key(*a) < key(*b); });
      const Node& node = **next;
      ready_.erase(next);
      order.push_back(&node);
      finish(node);
    }
    return order;
  }

 private:
  std::pair<int64_t, size_t> key(const Node& node) const {
    int64_t net = graph_.made_bytes(node);
    for (const Node* read : graph_.reads(node))
      if (readers_left_[LaunchGraph::id(*read)] == 1 && !graph_.is_kept(*read))
        net -= graph_.made_bytes(*read);
    return {net, rank_[LaunchGraph::id(node)]};
  }

  void finish(const Node& node) {
    for (const Node* read : graph_.reads(node)) --readers_left_[LaunchGraph::id(*read)];
    for (const Node* user : graph_.users(node))
      if (--waits_for_[LaunchGraph::id(*user)] == 0) ready_.push_back(user);
  }

  const LaunchGraph& graph_;
  const LaunchOrder& plain_;
  std::vector<size_t> waits_for_, readers_left_, rank_;
  std::vector<const Node*> ready_;
};

// Moves nodes that make more than they free to right before the first that needs them.
class Sinking {
 public:
  Sinking(const LaunchGraph& graph, LaunchOrder order, size_t nodes)
      : graph_(graph), order_(std::move(order)), place_(nodes) {
    for (size_t i = 0; i < order_.size(); ++i) place(i);
  }

  LaunchOrder run() {
    for (size_t i = order_.size(); i-- > 0;) {
      const Node& node = *order_[i];
      const size_t first = first_user(node);
      if (first <= i + 1 || first == order_.size() || !is_worth(node)) continue;
      const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(i);
      std::rotate(begin, begin + 1, order_.begin() + static_cast<std::ptrdiff_t>(first));
      for (size_t moved = i; moved < first; ++moved) place(moved);
    }
    return std::move(order_);
  }

 private:
  void place(size_t i) { place_[LaunchGraph::id(*order_[i])] = i; }
  size_t place_of(const Node& node) const { return place_[LaunchGraph::id(node)]; }

  size_t first_user(const Node& node) const {
    size_t first = order_.size();
    for (const Node* user : graph_.users(node)) first = std::min(first, place_of(*user));
    return first;
  }

  bool is_worth(const Node& node) const {
    int64_t net = graph_.made_bytes(node);
    for (const Node* read : graph_.reads(node)) {
      const auto& readers = graph_.readers(*read);
      const bool is_last = std::all_of(readers.begin(), readers.end(), [&](const Node* reader) {
        return place_of(*reader) <= place_of(node);
      });
      if (is_last && !graph_.is_kept(*read)) net -= graph_.made_bytes(*read);
    }
    return net > 0;
  }

  const LaunchGraph& graph_;
  LaunchOrder order_;
  std::vector<size_t> place_;
};

}  // namespace

std::vector<LaunchOrder> reorder(const Graph& graph,
                                 const std::vector<Value>& roots,
                                 const LaunchOrder& plain) {
  const size_t nodes = graph.nodes().size();
  const LaunchGraph launches(graph, roots, plain);
  std::vector<LaunchOrder> orders{plain, GreedyOrder(launches, plain, nodes).run()};
  for (size_t i = 0; i < 2; ++i) orders.push_back(Sinking(launches, orders[i], nodes).run());
  return orders;
}

}  // namespace ridge
