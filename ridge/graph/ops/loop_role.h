// The role of a value in the loop of a fused node: one rule for the fusion pass, which asks it of a
// graph's nodes, and for the bodies of fused nodes.
#pragma once

#include <span>
#include <string_view>

#include "ridge/graph/graph.h"

namespace ridge {

/// The domain of a loop: `elements` in order; with `columns`, rows of so many, each reduced on its
/// own. Without `columns`, the only reductions are over all elements.
struct LoopDomain {
  int64_t elements = 0;
  int64_t columns = 0;
  int64_t rows() const { return columns == 0 ? 0 : elements / columns; }
};

/// Rows longer than this are no matter of a fused loop: a row has to stay in the cache.
inline constexpr int64_t kMostLoopColumns = 1 << 17;
/// The same where whole rows are summed: eight of them are kept.
inline constexpr int64_t kMostSummedColumns = 1 << 14;

enum class LoopRole : uint8_t {
  kNone,     ///< The loop cannot hold it.
  kOuter,    ///< Made outside of the loop.
  kUniform,  ///< A splat constant.
  kDomain,   ///< One value an element.
  kSpotted,  ///< The same, and different at one column of each row (it depends on a one-hot).
  kRow,      ///< One value a row.
  kColumns,  ///< A sum over all rows: a result only.
  kTotal,    ///< A reduction to one element: a result only.
};

constexpr bool is_domain(LoopRole role) {
  return role == LoopRole::kDomain || role == LoopRole::kSpotted;
}

/// True for an elementwise op of one result that a body may hold, and for dropout.
bool is_fusible(const Node& node);

/// The role of the node's result, given those of its inputs. With kNone, `why` (unless null) says
/// what is wrong, as the end of a sentence about the node.
LoopRole loop_role(const Node& node,
                   std::span<const LoopRole> inputs,
                   const LoopDomain& domain,
                   std::string_view* why = nullptr);

/// Which axes a reduction takes in: those of size 1 count as either.
struct ReducedAxes {
  enum Kind : uint8_t { kLast, kFirst, kAll, kMixed };
  Kind kind = kMixed;
  int64_t reduced = 1;  ///< Elements that become one.
  int64_t kept = 1;     ///< Elements of the result.
};
ReducedAxes reduced_axes(const Node& reduction);

/// True for the reductions that loops know: sums, means and maxima of f32 and f64.
bool is_loop_reduction(const Node& node);

}  // namespace ridge
