// Shuffling and splitting by Philox.
#include "ridge/data/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/philox.h"

namespace ridge::data {
namespace {

// More blocks than the augmentation of one sample ever uses.
constexpr uint64_t kBlocksOfSample = 64;

/// Uniform in 0 to count - 1 from 64 random bits; the bias is below count / 2^64.
int64_t scaled(uint32_t low, uint32_t high, int64_t count) {
  const uint64_t word = (uint64_t{high} << 32) | low;
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((static_cast<Wide>(word) * static_cast<uint64_t>(count)) >> 64);
}

}  // namespace

void shuffle(std::span<int64_t> items, uint64_t seed, int64_t epoch) {
  const uint64_t key = rng_philox_key(seed, hash64("data.order"));
  for (int64_t i = static_cast<int64_t>(items.size()) - 1; i > 0; --i) {
    const PhiloxWords words =
        rng_block(key, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i));
    std::swap(items[i], items[scaled(words.word[0], words.word[1], i + 1)]);
  }
}

int64_t eval_samples(int64_t count, double eval_fraction) {
  check(eval_fraction > 0 && eval_fraction < 1,
        "eval_fraction is {}: it must be above 0 and below 1",
        eval_fraction);
  check(count >= 2,
        "the data has {} sample{}: too few to hold some back for evaluation",
        count,
        count == 1 ? "" : "s");
  return std::clamp<int64_t>(
      std::llround(static_cast<double>(count) * eval_fraction), 1, count - 1);
}

std::vector<int64_t> split_samples(int64_t count, double eval_fraction, Split split) {
  const int64_t held = eval_samples(count, eval_fraction);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  shuffle(order, hash64("data.split"), 0);
  if (split == Split::kEval)
    order.resize(static_cast<size_t>(held));
  else
    order.erase(order.begin(), order.begin() + held);
  std::sort(order.begin(), order.end());
  return order;
}

SampleRandom::SampleRandom(const SampleKey& key)
    : philox_key_(rng_philox_key(key.seed, hash64("data.augment"))),
      epoch_(static_cast<uint64_t>(key.epoch)),
      block_(static_cast<uint64_t>(key.sample) * kBlocksOfSample) {}

double SampleRandom::uniform() {
  const PhiloxWords words = rng_block(philox_key_, epoch_, block_++);
  return unit_f64(words.word[0], words.word[1]);
}

int64_t SampleRandom::below(int64_t count) {
  const PhiloxWords words = rng_block(philox_key_, epoch_, block_++);
  return scaled(words.word[0], words.word[1], count);
}

}  // namespace ridge::data
