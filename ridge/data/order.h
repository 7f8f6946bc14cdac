// The order of samples: shuffles by Philox, and which samples evaluation holds back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// Fisher and Yates' shuffle of `items`, a pure function of (seed, epoch) and the items.
void shuffle(std::span<int64_t> items, uint64_t seed, int64_t epoch);

/// The samples of 0 to count - 1 that belong to `split`, ascending: evaluation gets the rounded
/// `eval_fraction` of them (at least one, and never all), chosen the same way on every machine.
/// UserError when the fraction is not above 0 and below 1, or there are fewer than two samples.
std::vector<int64_t> split_samples(int64_t count, double eval_fraction, Split split);

/// How many of `count` samples evaluation gets, by the same rule.
int64_t eval_samples(int64_t count, double eval_fraction);

/// Random numbers for one sample's augmentation, in the order of the calls.
class SampleRandom {
 public:
  explicit SampleRandom(const SampleKey& key);
  /// Uniform in [0, 1), 53 bits.
  double uniform();
  /// Uniform in 0 to count - 1.
  int64_t below(int64_t count);

 private:
  uint64_t philox_key_, epoch_, block_;
};

}  // namespace ridge::data
