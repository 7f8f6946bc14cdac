// The part of a graph that computes with the logits of a loss, row by row: what chunk_loss cuts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// A set of nodes that no path leaves and enters again. All of their values are made of `rows` rows
/// (a row a target), but for sums over rows, which no node of the region reads.
struct LossRegion {
  struct Member {
    /// One a result, the rows being the batch: split on axis 0, a sum over rows, or none (the same
    /// for each row).
    std::vector<BatchFlow> flows;
    /// Whether an operand is one of rows; if not, each part reads all of it.
    std::vector<bool> by_rows;
  };
  int64_t rows = 0;
  std::map<int, Member> members = {};  ///< By node id, in the graph's order.

  bool contains(const Node& node) const { return members.contains(node.id); }
};

/// The region of the largest cross-entropy of two rows or more. None where an op has no rule for
/// rows, or where logits are wanted as a whole: an output, or an operand of such an op.
std::optional<LossRegion> find_loss_region(const Graph& graph);

/// The shape of `part` of `rows` rows, the dimensions that count rows joined to one; none where no
/// leading dimensions do.
std::optional<Shape> shape_of_rows(const Shape& shape, int64_t rows, int64_t part);

/// The node's op for values of such shapes; null where it has none.
std::shared_ptr<const Op> op_for_rows(const Node& node, int64_t rows, int64_t part);

}  // namespace ridge
