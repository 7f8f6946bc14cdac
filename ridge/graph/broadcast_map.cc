#include "ridge/graph/broadcast_map.h"

namespace ridge {

BroadcastMap::BroadcastMap(const Shape& from, const Shape& to) {
  int64_t step = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t size = to[to.size() - 1 - i];
    const int64_t own = i < from.size() ? from[from.size() - 1 - i] : 1;
    const int64_t stride = own == 1 ? 0 : step;
    step *= own;
    if (size == 1) continue;
    if (!axes.empty() && stride == axes.back().stride * axes.back().size)
      axes.back().size *= size;
    else
      axes.push_back({size, stride});
  }
  if (axes.empty()) axes.push_back({1, 0});
}

int64_t BroadcastMap::source(int64_t at) const {
  int64_t found = 0;
  for (const Axis& axis : axes) {
    found += at % axis.size * axis.stride;
    at /= axis.size;
  }
  return found;
}

}  // namespace ridge
