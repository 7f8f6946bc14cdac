#include "ridge/data/length_classes.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/philox.h"
#include "ridge/data/lengths.h"

namespace ridge::data {
namespace {

// Uniform in [0, 1).
double phase(uint64_t seed, int64_t epoch, size_t number) {
  const uint64_t key = rng_philox_key(seed, hash64("data.spread"));
  const PhiloxWords words = rng_block(key, static_cast<uint64_t>(epoch), number);
  return static_cast<double>(words.word[0]) / 4294967296.0;
}

}  // namespace

LengthClasses::LengthClasses(const Dataset& dataset, int64_t batch, int64_t tokens)
    : dataset_(dataset) {
  check(dataset.size() > 0 && dataset.length(0) > 0,
        "samples that are all of one length cannot be batched by it");
  // A class saves work sample by sample: the lengths are those of batches of one.
  for (int64_t length : batch_lengths(dataset, 1)) classes_.push_back({.length = length});
  classes_.push_back({.length = dataset.fields()[0].shape[0]});
  samples_of_.resize(classes_.size());
  for (int64_t i = 0; i < dataset.size(); ++i) ++samples_of_[class_of(i)];
  for (size_t i = 0; i < classes_.size(); ++i) {
    Class& c = classes_[i];
    c.batch = tokens > 0 ? std::max<int64_t>(1, tokens / c.length) : batch;
    rest_ += samples_of_[i];
    c.batches = rest_ / c.batch;
    rest_ -= c.batches * c.batch;
    batches_ += c.batches;
    most_ = std::max(most_, c.batch);
  }
  sorted_.resize(static_cast<size_t>(dataset.size()));
  places_.resize(static_cast<size_t>(batches_));
  next_.resize(classes_.size());
}

size_t LengthClasses::class_of(int64_t sample) const {
  const int64_t length = dataset_.length(sample);
  size_t i = 0;
  while (i + 1 < classes_.size() && length > classes_[i].length) ++i;
  return i;
}

void LengthClasses::arrange(std::span<int64_t> order,
                            std::span<int64_t> begins,
                            uint64_t seed,
                            int64_t epoch) {
  next_[0] = 0;
  for (size_t i = 1; i < next_.size(); ++i) next_[i] = next_[i - 1] + samples_of_[i - 1];
  for (int64_t sample : order) sorted_[next_[class_of(sample)]++] = sample;
  size_t batch = 0;
  int64_t first = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const double begin = phase(seed, epoch, i);
    const Class& c = classes_[i];
    for (int64_t k = 0; k < c.batches; ++k, first += c.batch)
      places_[batch++] = {.at = (static_cast<double>(k) + begin) / static_cast<double>(c.batches),
                          .first = first,
                          .count = c.batch};
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return a.at != b.at ? a.at < b.at : a.first < b.first;
  });
  int64_t to = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    begins[i] = to;
    std::copy_n(sorted_.begin() + places_[i].first, places_[i].count, order.begin() + to);
    to += places_[i].count;
  }
  begins[places_.size()] = to;
  std::copy(sorted_.begin() + first, sorted_.end(), order.begin() + to);
}

int64_t LengthClasses::bytes() const {
  return static_cast<int64_t>(sorted_.size() * sizeof(int64_t) + places_.size() * sizeof(Place));
}

}  // namespace ridge::data
