#include "ridge/backend/cpu/fill_broadcast.h"

#include <algorithm>
#include <cstring>

namespace ridge::cpu {

namespace {

template <typename T>
void fill_pattern(std::byte* to, const std::byte* value, int64_t n) {
  T element;
  std::memcpy(&element, value, sizeof element);
  std::fill_n(reinterpret_cast<T*>(to), n, element);
}

void fill_uniform(std::byte* to, const std::byte* value, size_t size, int64_t n) {
  if (size == 4)
    fill_pattern<uint32_t>(to, value, n);
  else if (size == 8)
    fill_pattern<uint64_t>(to, value, n);
  else if (size == 2)
    fill_pattern<uint16_t>(to, value, n);
  else
    fill_pattern<uint8_t>(to, value, n);
}

}  // namespace

void fill_broadcast(
    void* to, const void* from, const BroadcastMap& map, size_t size, int64_t begin, int64_t n) {
  const auto& axes = map.axes;
  auto* at = static_cast<std::byte*>(to);
  int64_t place[kMaxRank + 1] = {}, source = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    place[i] = begin % axes[i].size;
    begin /= axes[i].size;
    source += place[i] * axes[i].stride;
  }
  while (n > 0) {
    const int64_t run = std::min(n, axes[0].size - place[0]);
    const std::byte* element =
        static_cast<const std::byte*>(from) + static_cast<size_t>(source) * size;
    if (axes[0].stride == 0)
      fill_uniform(at, element, size, run);
    else
      std::memcpy(at, element, static_cast<size_t>(run) * size);
    at += static_cast<size_t>(run) * size;
    n -= run;
    source += run * axes[0].stride;
    place[0] += run;
    for (size_t i = 0; i < axes.size() && place[i] == axes[i].size; ++i) {
      source -= place[i] * axes[i].stride;
      place[i] = 0;
      if (i + 1 < axes.size()) {
        ++place[i + 1];
        source += axes[i + 1].stride;
      }
    }
  }
}

}  // namespace ridge::cpu
