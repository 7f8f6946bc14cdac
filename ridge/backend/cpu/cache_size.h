// Which results the caches cannot hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ridge/base/cpu/cpu_info.h"

namespace ridge::cpu {

/// Storing so many bytes past the caches loses nothing: whoever reads them next finds none there.
inline bool outgrows_caches(size_t bytes) {
  constexpr int64_t kLeast = int64_t{8} << 20;  // bytes to assume where the size is unknown
  return bytes > static_cast<size_t>(std::max(kLeast, cpu_info().l3_bytes));
}

}  // namespace ridge::cpu
