#include "ridge/backend/cuda/print/index_map.h"

#include <fmt/format.h>

namespace ridge::cuda {

std::string place_text(std::span<const BroadcastMap::Axis> axes,
                       const std::string& at,
                       int64_t step) {
  std::string text;
  int64_t below = 1;  // elements of the axes further in
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto [size, stride] = axes[i];
    const bool is_whole = step % (below * size) == 0;  // the remainder is always 0
    if (stride != 0 && !is_whole) {
      std::string term = below == 1 ? at : fmt::format("{} / {}", at, below);
      if (i + 1 < axes.size()) term += fmt::format(" % {}", size);
      if (stride != 1) term += fmt::format(" * {}", stride);
      text += text.empty() ? term : " + " + term;
    }
    below *= size;
  }
  return text.empty() ? "0" : text;
}

std::string IndexMap::text(const std::string& at, int64_t step) const {
  return place_text(axes, at, step);
}

}  // namespace ridge::cuda
