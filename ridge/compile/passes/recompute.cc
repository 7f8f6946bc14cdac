// Makes results of the forward pass again, instead of keeping them, until the arena fits a limit.
//
//   a = exp(x)                 a = exp(x)
//   b = f(a)                   b = f(a)
//   ...                 ->     ...                      a's bytes are free here
//   z = mul(y, a)              xb = barrier(x, y)
//                              ab = exp(xb)
//                              z = mul(y, ab)
//
// The series of graphs is the same for every limit, which only says where it ends: a smaller limit
// never leads to a larger arena.
#include "ridge/compile/passes/recompute.h"

#include <algorithm>
#include <utility>

#include "ridge/compile/memory/aliases.h"
#include "ridge/compile/pass.h"

namespace ridge {
namespace {

// A round frees a few per cent of the peak; after so many without a lower one there is none.
constexpr int kMostRounds = 400, kRoundsWithoutGain = 12;

bool fits(const Graph& graph, const PassContext& context) {
  return place_arena(graph, context.options.arena).layout.peak <= context.options.arena_limit;
}

}  // namespace

bool recompute(Graph& graph, PassContext& context) {
  if (context.options.arena_limit <= 0) return false;
  Graph current = graph.clone();
  separate_updates(current, true);
  RecomputeCosts costs;
  int64_t least = -1;
  int without_gain = 0;
  bool changed = false, best_is_current = false;
  for (int round = 0; round < kMostRounds && without_gain < kRoundsWithoutGain; ++round) {
    const std::vector<Arena> orders = arenas(current, context.options.arena);
    const std::vector<int64_t> live = live_by_step(orders[0].lifetimes());
    const auto peak = std::max_element(live.begin(), live.end());
    ++without_gain;
    if (least < 0 || *peak < least) {
      least = *peak;
      without_gain = 0;
      changed = round > 0;
      best_is_current = true;
      if (least <= context.options.arena_limit && fits(current, context)) break;
    }
    const int step = static_cast<int>(peak - live.begin());
    const std::vector<RecomputeMove> moves = find_moves(current, orders[0], step, costs);
    if (moves.empty()) break;
    Graph next = make_moves(current, orders[0], step, moves);
    if (std::exchange(best_is_current, false)) graph = std::move(current);
    current = std::move(next);
    remove_dead(current, context);
  }
  if (best_is_current) graph = std::move(current);
  return changed;
}

}  // namespace ridge
