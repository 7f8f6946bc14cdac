#include <algorithm>
#include <map>
#include <set>

#include "ridge/compile/passes/recompute.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

class MoveMaker {
 public:
  MoveMaker(const Graph& graph,
            const Arena& arena,
            int peak,
            const std::vector<RecomputeMove>& moves)
      : graph_(graph),
        arena_(arena),
        peak_(peak),
        moves_(moves),
        rewrite_(graph),
        is_copied_(graph.nodes().size()) {}

  Graph run() {
    for (const auto& node : graph_.nodes())
      if (node->is<Input>()) copy(*node);
    const LaunchOrder& order = arena_.order();
    for (size_t i = 0; i < order.size(); ++i) {
      const int step = static_cast<int>(i) + 1;
      for (const RecomputeMove& move : moves_)
        if (move.first_use == step) make_again(move, *order[i - 1]);
      if (step > peak_)
        copy_late(*order[i]);
      else
        copy(*order[i]);
    }
    // Reshapes that only outputs read.
    for (const auto& node : graph_.nodes()) copy(*node);
    return rewrite_.finish();
  }

 private:
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  /// Results of recomputed nodes, and of reshapes of them, by the node of the old graph.
  using Again = std::map<const Node*, Node*>;

  // With what it reads, where that is not launched.
  void copy(const Node& node) {
    if (is_copied_[id(node)]) return;
    for (const Value& input : node.inputs) copy(*input.node);
    rewrite_.copy(node);
    is_copied_[id(node)] = true;
  }

  bool is_made_again(Value value, const Again& again) const {
    return again.contains(arena_.root(value).node);
  }

  // The value as readers after the peak see it: a reshape of a recomputed value is recomputed.
  Value late(Value value, Again& again) {
    if (!is_made_again(value, again)) {
      copy(*value.node);
      return rewrite_.mapped(value);
    }
    const auto known = again.find(value.node);
    if (known != again.end()) return {known->second, value.index};
    std::vector<Value> inputs;
    for (const Value& input : value.node->inputs) inputs.push_back(late(input, again));
    Node& node = rewrite_.to().add_like(*value.node, std::move(inputs));
    again.emplace(value.node, &node);
    return {&node, value.index};
  }

  void copy_late(const Node& node) {
    if (is_copied_[id(node)]) return;
    std::vector<Value> inputs, results;
    for (const Value& input : node.inputs) inputs.push_back(late(input, again_));
    Node& made = rewrite_.to().add_like(node, std::move(inputs));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      results.push_back({&made, static_cast<int>(i)});
    rewrite_.replace(node, std::move(results));
    is_copied_[id(node)] = true;
  }

  void make_again(const RecomputeMove& move, const Node& before) {
    const Value after = rewrite_.mapped({const_cast<Node*>(&before), 0});
    Again own;
    for (const Node* node : move.again) {
      std::vector<Value> inputs;
      for (const Value& input : node->inputs) {
        Value value = late(input, own);
        if (!is_made_again(input, own)) value = after_barrier(value, after);
        inputs.push_back(value);
      }
      own.emplace(node, &rewrite_.to().add_like(*node, std::move(inputs)));
    }
    // Later readers take the result; what was made on the way to it is only for it.
    again_.insert(*own.find(move.again.back()));
  }

  Value after_barrier(Value value, Value after) {
    const Site site{fmt::format("{}/again:barrier.0", value.node->site.name)};
    return {&rewrite_.to().add(std::make_shared<const Barrier>(), {value, after}, site), 0};
  }

  const Graph& graph_;
  const Arena& arena_;
  int peak_;
  const std::vector<RecomputeMove>& moves_;
  Rewrite rewrite_;
  std::vector<bool> is_copied_;
  Again again_;
};

}  // namespace

Graph make_moves(const Graph& graph,
                 const Arena& arena,
                 int peak,
                 const std::vector<RecomputeMove>& moves) {
  return MoveMaker(graph, arena, peak, moves).run();
}

}  // namespace ridge
