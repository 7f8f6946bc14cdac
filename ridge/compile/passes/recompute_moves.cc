#include <algorithm>
#include <map>
#include <set>

#include "ridge/compile/passes/recompute.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// The moves of one round free at least this share of the live set at the peak where they can.
constexpr double kShareARound = 0.02;
// Operands of operands of operands are recomputed too where that is cheaper than keeping them.
constexpr int kMostDepth = 4;

class MoveFinder {
 public:
  MoveFinder(const Graph& graph, const Arena& arena, int peak, RecomputeCosts& costs)
      : arena_(arena), costs_(costs), peak_(peak), step_of_(graph.nodes().size()) {
    for (size_t i = 0; i < arena.order().size(); ++i) {
      step_of_[id(*arena.order()[i])] = static_cast<int>(i) + 1;
      for (const Value& input : arena.order()[i]->inputs)
        readers_[key(arena.root(input))].push_back(static_cast<int>(i) + 1);
    }
    for (const Output& output : graph.outputs()) {
      const Value root = arena.root(output.value);
      if (output.updates.empty())
        fixed_.insert(root.node);
      else
        updated_at_[graph.find_input(output.updates)] = step_of_[id(*root.node)];
    }
  }

  std::vector<RecomputeMove> run() {
    std::vector<RecomputeMove> all;
    for (const Node* node : arena_.order())
      if (const RecomputeMove move = best_move(*node); move.freed_bytes > 0) all.push_back(move);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.cost / static_cast<double>(a.freed_bytes) <
             b.cost / static_cast<double>(b.freed_bytes);
    });
    return compatible(all);
  }

 private:
  using Key = std::pair<int, int>;  // node id and index
  static Key key(Value value) { return {value.node->id, value.index}; }
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  int last_use(Value root) const { return arena_.last_use(root, -1); }

  /// Steps after the peak at which a result of the node is read that lies in the arena over it.
  struct Crossing {
    int64_t bytes = 0;
    int first_use = 0;
  };
  Crossing crossing(const Node& node) const {
    Crossing found;
    if (fixed_.contains(&node) || step_of_[id(node)] >= peak_) return found;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value value{const_cast<Node*>(&node), static_cast<int>(i)};
      const auto readers = readers_.find(key(value));
      if (readers == readers_.end() || arena_.buffer(value) == Arena::kNone) continue;
      const auto& steps = readers->second;
      const auto after = std::upper_bound(steps.begin(), steps.end(), peak_);
      if (after == steps.end()) continue;
      if (!std::binary_search(steps.begin(), steps.end(), peak_))
        found.bytes += aligned_bytes(value.type().bytes());
      if (found.first_use == 0 || *after < found.first_use) found.first_use = *after;
    }
    return found;
  }

  RecomputeMove best_move(const Node& node) const {
    const Crossing over = crossing(node);
    RecomputeMove best;
    if (over.bytes == 0 || over.first_use < 2) return best;
    for (int depth = 0; depth <= kMostDepth; ++depth) {
      RecomputeMove move{.first_use = over.first_use, .freed_bytes = over.bytes};
      std::set<const Node*> again;
      std::set<Key> kept;
      if (!add(node, depth, move, again, kept)) continue;
      move.again.assign(again.begin(), again.end());
      std::sort(move.again.begin(), move.again.end(), [&](const Node* a, const Node* b) {
        return step_of_[id(*a)] < step_of_[id(*b)];
      });
      const bool is_better =
          best.freed_bytes <= 0 || move.cost * static_cast<double>(best.freed_bytes) <
                                       best.cost * static_cast<double>(move.freed_bytes);
      if (move.freed_bytes > 0 && is_better) best = move;
    }
    return best;
  }

  // Recomputes `node`: operands that are gone at the peak are recomputed too down to `depth`, or
  // are kept. False where an operand has another value by then.
  bool add(const Node& node,
           int depth,
           RecomputeMove& move,
           std::set<const Node*>& again,
           std::set<Key>& kept) const {
    if (!again.insert(&node).second) return true;
    move.cost += costs_.of(node);
    for (const Value& input : node.inputs) {
      const Value root = arena_.root(input);
      const auto updated = updated_at_.find(root.node);
      if (updated != updated_at_.end() && updated->second < move.first_use) return false;
      if (arena_.buffer(root) == Arena::kNone && !root.node->is<Input>()) return false;
      if (arena_.buffer(root) == Arena::kNone || last_use(root) >= peak_) continue;
      if (depth > 0 && !root.node->is<Input>()) {
        if (!add(*root.node, depth - 1, move, again, kept)) return false;
      } else if (!again.contains(root.node) && kept.insert(key(root)).second) {
        move.freed_bytes -= aligned_bytes(root.type().bytes());
      }
    }
    return true;
  }

  // Nobody relies on what another move frees.
  std::vector<RecomputeMove> compatible(const std::vector<RecomputeMove>& all) const {
    const double wanted = kShareARound * static_cast<double>(largest_live_set(arena_.lifetimes()));
    std::vector<RecomputeMove> chosen;
    std::set<const Node*> relied, made;
    double freed = 0;
    for (const RecomputeMove& move : all) {
      if (freed >= wanted) break;
      if (std::any_of(move.again.begin(), move.again.end(), [&](const Node* node) {
            return relied.contains(node) || made.contains(node);
          }))
        continue;
      std::set<const Node*> needs;
      for (const Node* node : move.again)
        for (const Value& input : node->inputs) needs.insert(arena_.root(input).node);
      if (std::any_of(
              needs.begin(), needs.end(), [&](const Node* node) { return made.contains(node); }))
        continue;
      relied.merge(needs);
      made.insert(move.again.begin(), move.again.end());
      freed += static_cast<double>(move.freed_bytes);
      chosen.push_back(move);
    }
    return chosen;
  }

  const Arena& arena_;
  RecomputeCosts& costs_;
  int peak_;
  std::vector<int> step_of_;                 ///< By node id; 0 where it is not launched.
  std::map<Key, std::vector<int>> readers_;  ///< Steps that read a root, rising.
  std::set<const Node*> fixed_;              ///< Makers of outputs.
  std::map<const Node*, int> updated_at_;    ///< By input: the step that overwrites it.
};

}  // namespace

double RecomputeCosts::of(const Node& node) {
  const auto [at, is_new] = known_.try_emplace({node.op.get(), total_bytes(node.outputs)}, 0.0);
  if (is_new) {
    const Cost cost = node.op->cost(node.input_types(), node.outputs);
    at->second = cost.bytes + cost.flops / 10;
  }
  return at->second;
}

std::vector<RecomputeMove> find_moves(const Graph& graph,
                                      const Arena& arena,
                                      int peak,
                                      RecomputeCosts& costs) {
  return MoveFinder(graph, arena, peak, costs).run();
}

}  // namespace ridge
