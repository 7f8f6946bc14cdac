// Finds the results that are cheapest to recompute instead of keeping them over the step that needs
// most.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ridge/compile/memory/arena.h"

namespace ridge {

/// One result less that is kept over a step: its readers after the step get another, made right
/// before the first of them.
struct RecomputeMove {
  std::vector<const Node*> again = {};  ///< The nodes to recompute, in the order of the launches.
  int first_use = 0;                    ///< Step of the first reader after the peak.
  int64_t freed_bytes = 0;              ///< At the peak, less what must be kept longer for it.
  double cost = 0;                      ///< RecomputeCosts of all of `again`.
};

/// The cost of running a node, found once: recomputed nodes have the op of the first.
class RecomputeCosts {
 public:
  /// Bytes to move, a FLOP counted as a tenth of a byte.
  double of(const Node& node);

 private:
  std::map<std::pair<const Op*, double>, double> known_;  ///< By op and bytes of the results.
};

/// Moves that free bytes at step `peak`, cheapest a byte first, that do not stand in each other's
/// way: a share of the live set there, so that what follows is chosen by what is then the peak.
std::vector<RecomputeMove> find_moves(const Graph& graph,
                                      const Arena& arena,
                                      int peak,
                                      RecomputeCosts& costs);

/// The graph in the order of the arena, with the moves made. Recomputed nodes keep their op and
/// site, and read through barriers.
Graph make_moves(const Graph& graph,
                 const Arena& arena,
                 int peak,
                 const std::vector<RecomputeMove>& moves);

}  // namespace ridge
