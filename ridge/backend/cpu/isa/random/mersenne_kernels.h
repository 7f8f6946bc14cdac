// Kernels of the Mersenne Twister, one set for each instruction set.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Words of a state of MT19937, which are made together.
constexpr int64_t kMersenneWords = 624;

struct MersenneKernels {
  /// Makes the next kMersenneWords words of a state out of its last ones, in place.
  void (*advance)(uint32_t* state);
  /// Each of `pairs` pairs of words of a state is a number of 64 bits, whose upper half is the
  /// first word. Writes 1 where its lower 53 bits are less than `limit`, otherwise 0.
  void (*less)(const uint32_t* state, int64_t pairs, uint64_t limit, uint8_t* y);
};

namespace avx2 {
extern const MersenneKernels mersenne_kernels;
}
namespace avx512 {
extern const MersenneKernels mersenne_kernels;
}

}  // namespace ridge::cpu
