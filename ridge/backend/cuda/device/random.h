// The random numbers of dropout, several at a time. What they are is said in base/philox.h, which
// printed kernels include before this.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

/// The stream of one dropout in one run.
struct RandomStream {
  uint64_t key, step, first;

  /// `rng`: {seed, step, first sample}.
  RandomStream(const int64_t* rng, uint64_t site, uint64_t per_sample)
      : key(rng_philox_key(static_cast<uint64_t>(rng[0]), site)),
        step(static_cast<uint64_t>(rng[1])),
        first(static_cast<uint64_t>(rng[2]) * per_sample) {}
};

/// The whole numbers of 24 bits behind N neighbouring uniform numbers; N is a multiple of 4.
template <int N>
struct Draws {
  uint32_t at[N];

  /// Draws for the elements from `begin` on. Where a block of four begins is known only when the
  /// kernel runs, and an array that is read at such a place would lie in local memory: hence the
  /// choices.
  Draws(const RandomStream& stream, int64_t begin) {
    const uint64_t index = stream.first + static_cast<uint64_t>(begin);
    const uint32_t skip = static_cast<uint32_t>(index % 4);
    PhiloxWords now = rng_block(stream.key, stream.step, index / 4);
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      PhiloxWords next = {{0, 0, 0, 0}};
      if (skip != 0 || k + 4 < N)
        next = rng_block(stream.key, stream.step, index / 4 + static_cast<uint64_t>(k / 4 + 1));
      const uint32_t all[8] = {now.word[0],
                               now.word[1],
                               now.word[2],
                               now.word[3],
                               next.word[0],
                               next.word[1],
                               next.word[2],
                               next.word[3]};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        at[k + j] = (skip == 0   ? all[j]
                     : skip == 1 ? all[j + 1]
                     : skip == 2 ? all[j + 2]
                                 : all[j + 3]) >>
                    8;
      now = next;
    }
  }
};

}  // namespace ridge::cuda
