#include "ridge/backend/cpu/dropout_mask.h"

#include <cmath>

#include "ridge/base/hash.h"
#include "ridge/base/philox.h"

namespace ridge::cpu {

DropoutMask::DropoutMask(const Dropout& op, int64_t elements)
    : fixed_{.philox_key = 0,
             .step = 0,
             .first = 0,
             // u * 2^-24 >= p, with the whole number u; p * 2^24 is exact.
             .threshold = static_cast<uint32_t>(std::ceil(op.p * 0x1p24)),
             .scale = 1.0 / (1.0 - op.p)},
      site_(hash64(op.key)),
      per_sample_(elements / op.samples) {}

DropoutStream DropoutMask::stream(const int64_t* rng) const {
  DropoutStream keyed = fixed_;
  keyed.philox_key = rng_philox_key(static_cast<uint64_t>(rng[0]), site_);
  keyed.step = static_cast<uint64_t>(rng[1]);
  keyed.first = static_cast<uint64_t>(rng[2]) * static_cast<uint64_t>(per_sample_);
  return keyed;
}

}  // namespace ridge::cpu
