// Reductions of a loop, piece by piece, in the order of Turns in isa/lanes.h.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// The state of a reduction: 64 lanes of f64 or f32, the sixteen of each turn together.
inline constexpr int kTurnLanes = 64;

/// A reduction of f64 [0] or f32 [1].
struct LoopReduction {
  void (*start[2])(void* lanes);
  /// Combines n elements; n is a multiple of 64 but for the last piece.
  void (*add[2])(void* lanes, const void* x, int64_t n);
  void (*finish[2])(const void* lanes, void* y);
};

struct LoopReductions {
  LoopReduction sum;
  LoopReduction max;
};

namespace avx2 {
extern const LoopReductions loop_kernels;
}
namespace avx512 {
extern const LoopReductions loop_kernels;
}

}  // namespace ridge::cpu
