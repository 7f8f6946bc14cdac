// The Mersenne Twister MT19937, whose numbers NumPy, PyTorch on a CPU and std::mt19937 draw.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ridge/backend/cpu/isa/random/mersenne_kernels.h"

namespace ridge::cpu {

class MersenneTwister {
 public:
  using Words = std::array<uint32_t, kMersenneWords>;

  /// A generator whose state is `words`, of which the first `next` were drawn already: at most
  /// kMersenneWords.
  MersenneTwister(const Words& words, int64_t next) : words_(words), next_(next) {}

  const Words& words() const { return words_; }
  int64_t next() const { return next_; }

  /// Draws two words for each element: it becomes 1 with the probability `p`, otherwise 0. The
  /// first word has the upper half of 64 bits, the lower 53 of which, as a fraction, are less than
  /// `p` or not: the numbers of torch.Tensor.bernoulli_(p).
  void draw_bernoulli(double p, std::span<uint8_t> elements);

 private:
  Words words_;
  int64_t next_;
};

}  // namespace ridge::cpu
