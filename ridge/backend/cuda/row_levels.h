// Which pass over the elements of a row each value of a body belongs to.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ridge/graph/ops/fused.h"

namespace ridge::cuda {

struct RowLevels {
  std::vector<int> of;  ///< By node: as FusedBody::levels.
  /// Sums of exp(x - max(x)) that are found in one pass with that maximum, and it.
  std::map<const Node*, const Node*> maximum_of;
  std::set<const Node*> below_zero;  ///< All exp(x - max(x)).

  int level(const Node& node) const { return of[static_cast<size_t>(node.id)]; }
  /// Whether such a sum finds the node.
  bool is_found(const Node& maximum) const;
};

/// With `joins_exponentials` false those of the body, and nothing else.
RowLevels row_levels(const FusedBody& body, bool joins_exponentials);

}  // namespace ridge::cuda
