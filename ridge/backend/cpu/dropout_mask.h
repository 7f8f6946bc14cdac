// Which elements a dropout op keeps: a pure function of the op and of {seed, step, first sample}.
#pragma once

#include "ridge/backend/cpu/isa/random/random_kernels.h"
#include "ridge/graph/ops/random.h"

namespace ridge::cpu {

class DropoutMask {
 public:
  /// `elements` are those of the op's tensor.
  DropoutMask(const Dropout& op, int64_t elements);

  /// The stream of one run; `rng` are the three numbers of the op's second input.
  DropoutStream stream(const int64_t* rng) const;

  /// Numbers of 24 bits below this drop their element.
  uint32_t threshold() const { return fixed_.threshold; }
  double scale() const { return fixed_.scale; }

 private:
  DropoutStream fixed_;
  uint64_t site_;
  int64_t per_sample_;
};

}  // namespace ridge::cpu
