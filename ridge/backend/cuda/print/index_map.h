// How the elements of a tensor are read as those of a larger one, as text of index arithmetic.
#pragma once

#include <span>
#include <string>

#include "ridge/graph/broadcast_map.h"

namespace ridge::cuda {

/// The expression for the offset of element number `at` of a walk over `axes`, the innermost first;
/// `at` is the name of an unsigned number, and a multiple of `step`.
std::string place_text(std::span<const BroadcastMap::Axis> axes,
                       const std::string& at,
                       int64_t step = 1);

struct IndexMap : BroadcastMap {
  using BroadcastMap::BroadcastMap;

  /// True when each element reads that of its own number.
  bool is_same() const { return axes.size() == 1 && axes[0].stride == 1; }
  /// Elements that follow each other are neighbours (stride 1), or one, over pieces of so many.
  bool keeps_pieces(int64_t size) const { return axes[0].stride <= 1 && axes[0].size % size == 0; }
  /// Returns what place_text() returns, for the axes of this map.
  std::string text(const std::string& at, int64_t step = 1) const;
};

}  // namespace ridge::cuda
