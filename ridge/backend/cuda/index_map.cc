#include "ridge/backend/cuda/index_map.h"

#include <fmt/format.h>

namespace ridge::cuda {

IndexMap::IndexMap(const Shape& from, const Shape& to) {
  int64_t step = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t size = to[to.size() - 1 - i];
    const int64_t own = i < from.size() ? from[from.size() - 1 - i] : 1;
    const int64_t stride = own == 1 ? 0 : step;
    step *= own;
    if (size == 1) continue;
    if (!runs.empty() && stride == runs.back().stride * runs.back().size)
      runs.back().size *= size;
    else
      runs.push_back({size, stride});
  }
  if (runs.empty()) runs.push_back({1, 0});
}

std::string IndexMap::text(const std::string& at, int64_t step) const {
  std::string text;
  int64_t below = 1;  // elements of the runs further in
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto [size, stride] = runs[i];
    const bool is_whole = step % (below * size) == 0;  // the remainder is always 0
    if (stride != 0 && !is_whole) {
      std::string term = below == 1 ? at : fmt::format("{} / {}", at, below);
      if (i + 1 < runs.size()) term += fmt::format(" % {}", size);
      if (stride != 1) term += fmt::format(" * {}", stride);
      text += text.empty() ? term : " + " + term;
    }
    below *= size;
  }
  return text.empty() ? "0" : text;
}

}  // namespace ridge::cuda
