// MT19937 (Matsumoto and Nishimura, 1998): the recurrence over all words of a state at once, and
// its tempered words as numbers of 53 bits.
#include "ridge/backend/cpu/isa/random/mersenne_kernels.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kMiddle = 397;

// The next word, out of a word, the one behind it and the one kMiddle places on.
inline uint32_t twisted(uint32_t word, uint32_t behind, uint32_t far) {
  const uint32_t mixed = (word & 0x80000000u) | (behind & 0x7fffffffu);
  return far ^ mixed >> 1 ^ ((0u - (behind & 1u)) & 0x9908b0dfu);
}

inline uint32_t tempered(uint32_t word) {
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680u;
  word ^= word << 15 & 0xefc60000u;
  return word ^ word >> 18;
}

// Distances between what is read and what is written are constant, so that compilers make vectors
// of both loops.
void advance(uint32_t* state) {
  constexpr int64_t kRest = kMersenneWords - kMiddle, kLast = kMersenneWords - 1;
  for (int64_t i = 0; i < kRest; ++i)
    state[i] = twisted(state[i], state[i + 1], state[i + kMiddle]);
  for (int64_t i = kRest; i < kLast; ++i)
    state[i] = twisted(state[i], state[i + 1], state[i - kRest]);
  state[kLast] = twisted(state[kLast], state[0], state[kMiddle - 1]);
}

void less(const uint32_t* state, int64_t pairs, uint64_t limit, uint8_t* y) {
  constexpr uint64_t kBits = (uint64_t{1} << 53) - 1;
  alignas(64) uint32_t words[kMersenneWords];
  for (int64_t i = 0; i < 2 * pairs; ++i) words[i] = tempered(state[i]);
  for (int64_t i = 0; i < pairs; ++i) {
    const uint64_t number = uint64_t{words[2 * i]} << 32 | words[2 * i + 1];
    y[i] = (number & kBits) < limit;
  }
}

}  // namespace

namespace RIDGE_ISA {
extern const MersenneKernels mersenne_kernels = {advance, less};
}

}  // namespace ridge::cpu
