// Samples as pure functions of their number.
#include "ridge/data/random_dataset.h"

#include <algorithm>
#include <bit>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/normals.h"
#include "ridge/base/philox.h"
#include "ridge/data/order.h"

namespace ridge::data {
namespace {

// How far a class moves each number: with 32 numbers, classes lie about 6 deviations apart.
constexpr float kPattern = 0.75f;
constexpr float kRuleProbability = 0.75f;

// Adds kPattern with a random sign to each number. Number i of 128 takes bit 31 - i / 4 of word i %
// 4 of their block, so that four neighbours are shifted alike.
void add_pattern(const RngKey& key, float* x, int64_t n) {
  constexpr int64_t kWords = 4, kNumbers = 32 * kWords;
  const uint64_t philox_key = rng_philox_key(key.seed, key.site);
  const auto signed_pattern = [](uint32_t word) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(kPattern) | (word & 0x80000000u));
  };
  for (int64_t begin = 0; begin < n; begin += kNumbers) {
    PhiloxWords words = rng_block(philox_key, key.step, static_cast<uint64_t>(begin / kNumbers));
    const int64_t end = std::min(n, begin + kNumbers);
    const auto add = [&](int64_t at, int64_t count) {
      for (int64_t k = 0; k < count; ++k) {
        x[at + k] += signed_pattern(words.word[k]);
        words.word[k] <<= 1;
      }
    };
    int64_t i = begin;
    for (; i + kWords <= end; i += kWords) add(i, kWords);
    add(i, end - i);
  }
}

DataDescription description_of_random(const DataOptions& options) {
  const bool tokens = options.tokens;
  return {
      .kind = DataKind::kRandom,
      .fields = {{.name = "x", .dtype = tokens ? DType::kI64 : DType::kF32, .shape = options.shape},
                 {.name = "y",
                  .dtype = DType::kI64,
                  .shape = tokens ? options.shape : std::vector<int64_t>{}}},
      .classes = options.classes};
}

class RandomDataset : public Dataset {
 public:
  RandomDataset(const DataOptions& options, int64_t first, int64_t count)
      : Dataset(description_of_random(options)),
        first_(first),
        count_(count),
        classes_(options.classes),
        tokens_(options.tokens) {}

  int64_t size() const override { return count_; }

  void read(int64_t index, const SampleKey&, std::span<void* const> out, Scratch&) const override {
    const RngKey key{
        .seed = 0, .step = static_cast<uint64_t>(first_ + index), .site = hash64("data.random")};
    auto* y = static_cast<int64_t*>(out[1]);
    if (tokens_)
      read_tokens(key, static_cast<int64_t*>(out[0]), y);
    else
      read_numbers(key, static_cast<float*>(out[0]), y);
  }

 private:
  void read_numbers(const RngKey& key, float* x, int64_t* y) const {
    const int64_t n = fields()[0].elements();
    // Beyond the words that the numbers use.
    *y = random_u32(key, static_cast<uint64_t>(n + kNormalGroup)) % classes_;
    fill_normals(key, {x, static_cast<size_t>(n)});
    add_pattern({.step = static_cast<uint64_t>(*y), .site = hash64("data.random.pattern")}, x, n);
  }

  void read_tokens(const RngKey& key, int64_t* x, int64_t* y) const {
    const int64_t n = fields()[0].elements();
    int64_t token = random_u32(key, 0) % classes_;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = token;
      const auto at = static_cast<uint64_t>(2 * i + 2);
      token = random_f32(key, at) < kRuleProbability ? (3 * token + 1) % classes_
                                                     : random_u32(key, at + 1) % classes_;
      y[i] = token;
    }
  }

  int64_t first_, count_, classes_;
  bool tokens_;
};

}  // namespace

std::unique_ptr<Dataset> open_random_dataset(const DataOptions& options, Split split) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  check(options.samples >= 1 && options.samples <= kLimit,
        "samples is {}: random data needs 1 to 2^40",
        options.samples);
  check(options.classes >= 1 && options.classes <= (int64_t{1} << 30),
        "classes is {}: random data needs 1 to 2^30",
        options.classes);
  int64_t elements = 1;
  for (int64_t size : options.shape) {
    check(size >= 1 && size <= kLimit / elements, "shape of random data: {} is no size", size);
    elements *= size;
  }
  if (split == Split::kTrain) return std::make_unique<RandomDataset>(options, 0, options.samples);
  const int64_t count =
      options.samples < 2 ? 1 : eval_samples(options.samples, options.eval_fraction);
  return std::make_unique<RandomDataset>(options, options.samples, count);
}

}  // namespace ridge::data
