#include "ridge/backend/cpu/mersenne_twister.h"

#include <algorithm>
#include <cmath>

#include "ridge/backend/cpu/cpu_isa.h"

namespace ridge::cpu {

void MersenneTwister::draw_bernoulli(double p, std::span<uint8_t> elements) {
  const MersenneKernels& kernels = for_isa(avx2::mersenne_kernels, avx512::mersenne_kernels);
  // A fraction of 53 bits is less than p where its bits are less than p * 2^53, rounded up: the
  // product is exact.
  const auto limit = static_cast<uint64_t>(std::ceil(std::ldexp(std::clamp(p, 0.0, 1.0), 53)));
  const auto count = static_cast<int64_t>(elements.size());
  for (int64_t done = 0; done < count;) {
    if (next_ == kMersenneWords) {
      kernels.advance(words_.data());
      next_ = 0;
    }
    if (next_ == kMersenneWords - 1) {
      // This pair has its words in two states.
      uint32_t pair[2] = {words_.back(), 0};
      kernels.advance(words_.data());
      pair[1] = words_.front();
      next_ = 1;
      kernels.less(pair, 1, limit, &elements[static_cast<size_t>(done++)]);
      continue;
    }
    const int64_t pairs = std::min((kMersenneWords - next_) / 2, count - done);
    kernels.less(words_.data() + next_, pairs, limit, elements.data() + done);
    next_ += 2 * pairs;
    done += pairs;
  }
}

}  // namespace ridge::cpu
