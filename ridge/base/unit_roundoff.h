// How far off one rounding to a dtype is at most.
#pragma once

#include "ridge/base/dtype.h"

namespace ridge {

/// Half of a unit in the last place, relative: 2^-24 for f32, 2^-8 for bf16.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

}  // namespace ridge
