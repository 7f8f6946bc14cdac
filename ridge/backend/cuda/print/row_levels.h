// Which pass over the elements of a row each value of a body belongs to.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cuda {

struct RowLevels {
  std::vector<int> of;  ///< The level of each node, by its id, like FusedBody::levels.
  /// For each sum of exp(x - max(x)) that is found in one pass with its maximum, that maximum.
  std::map<const Node*, const Node*> maximum_of;
  std::set<const Node*> below_zero;  ///< The nodes that are exp(x - max(x)).

  int level(const Node& node) const { return of[static_cast<size_t>(node.id)]; }
  /// Whether a sum of exponentials finds this maximum in the same pass.
  bool is_found(const Node& maximum) const;
};

/// The levels of a body for a kernel that calls these `functions`. Those of the CPU leave the
/// levels as the body has them, and so does a row that `is_held` in registers, where another pass
/// costs no reading.
RowLevels row_levels(const FusedBody& body, Functions functions, bool is_held);

}  // namespace ridge::cuda
