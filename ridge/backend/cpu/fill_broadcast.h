// A tensor that is broadcast, written out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ridge/graph/broadcast_map.h"

namespace ridge::cpu {

/// Writes elements begin to begin + n of the larger tensor; `size` is that of an element.
void fill_broadcast(
    void* to, const void* from, const BroadcastMap& map, size_t size, int64_t begin, int64_t n);

}  // namespace ridge::cpu
