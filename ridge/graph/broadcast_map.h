// How the elements of a tensor are read as those of a larger one that it is broadcast to.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/base/type.h"

namespace ridge {

/// Dimensions from the innermost out, the stride in elements. Neighbours that continue each other
/// are one; there is at least one.
struct BroadcastMap {
  BroadcastMap(const Shape& from, const Shape& to);

  struct Axis {
    int64_t size, stride;
  };
  std::vector<Axis> axes;

  /// The element that element `at` of the larger tensor reads.
  int64_t source(int64_t at) const;
  /// True when every element reads the same one.
  bool is_uniform() const { return axes.size() == 1 && axes[0].stride == 0; }
  /// The length of the pieces that are a run of elements, or one element repeated.
  int64_t run() const { return axes[0].size; }
};

}  // namespace ridge
