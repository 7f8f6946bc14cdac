// Batches of samples of like length: each sample comes once an epoch, little is left to pad, and a
// loader goes on from any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "ridge/data/batch_planner.h"
#include "ridge/data/length_classes.h"
#include "tests/data/lengths_dataset.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"

namespace ridge::data {
namespace {

using test::Lengths;
using test::user_error;

constexpr int64_t kWhole = 64;

/// Mostly short ones.
Lengths random_lengths(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random() % (random() % 4 == 0 ? kWhole : 20)));
  return Lengths(lengths, kWhole);
}

struct Epoch {
  std::vector<std::vector<int64_t>> batches;
  std::vector<bool> rests;
  std::vector<LoaderPosition> begins;
};

Epoch read_epoch(BatchPlanner& planner) {
  Epoch epoch;
  std::vector<int64_t> samples(static_cast<size_t>(planner.most()));
  for (;;) {
    const BatchPlanner::Range range = planner.next(samples);
    EXPECT_LE(range.count, planner.most());
    epoch.batches.emplace_back(samples.begin(), samples.begin() + range.count);
    epoch.rests.push_back(range.is_rest);
    epoch.begins.push_back(range.begin);
    if (range.end.sample == 0) return epoch;
  }
}

int64_t longest(const Dataset& dataset, const std::vector<int64_t>& batch) {
  int64_t most = 0;
  for (int64_t sample : batch) most = std::max(most, dataset.length(sample));
  return most;
}

TEST(Buckets, EachSampleComesOnceAndLittleIsLeftToPad) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Lengths dataset = random_lengths(seed, 1003);
    BatchPlanner planner(dataset, {.batch = 8, .seed = seed, .buckets = true});
    const Epoch first = read_epoch(planner), second = read_epoch(planner);
    EXPECT_NE(first.batches, second.batches);
    EXPECT_EQ(planner.samples_per_epoch(), 1003);
    EXPECT_EQ(planner.rest(), 1003 % 8);
    for (const Epoch* epoch : {&first, &second}) {
      ASSERT_EQ(static_cast<int64_t>(epoch->batches.size()), planner.batches_per_epoch());
      std::multiset<int64_t> all;
      int64_t padded = 0, filled = 0;
      for (size_t i = 0; i < epoch->batches.size(); ++i) {
        const auto& batch = epoch->batches[i];
        const bool is_last = i + 1 == epoch->batches.size();
        EXPECT_EQ(epoch->rests[i], is_last);
        EXPECT_EQ(static_cast<int64_t>(batch.size()), is_last ? 1003 % 8 : 8);
        all.insert(batch.begin(), batch.end());
        padded += longest(dataset, batch) * static_cast<int64_t>(batch.size());
        for (int64_t sample : batch) filled += dataset.length(sample);
      }
      std::multiset<int64_t> expected;
      for (int64_t i = 0; i < 1003; ++i) expected.insert(i);
      EXPECT_EQ(all, expected);
      EXPECT_LT(static_cast<double>(padded), 1.4 * static_cast<double>(filled));
    }
    BatchPlanner unlike(dataset, {.batch = 8, .seed = seed});
    int64_t padded = 0, filled = 0;
    for (const auto& batch : read_epoch(unlike).batches) {
      padded += longest(dataset, batch) * static_cast<int64_t>(batch.size());
      for (int64_t sample : batch) filled += dataset.length(sample);
    }
    EXPECT_GT(static_cast<double>(padded), 2.2 * static_cast<double>(filled));
  }
}

// A batch has as many samples as its class allows, never more tokens than that, and those of every
// stretch of the epoch are alike.
TEST(Buckets, TokensFillABatchAndLengthsAreSpreadEvenly) {
  const Lengths dataset = random_lengths(7, 40000);
  constexpr int64_t kTokens = 512;
  const LengthClasses classes(dataset, 8, kTokens);
  ASSERT_GE(classes.classes().size(), 3u);
  EXPECT_EQ(classes.classes().back().length, kWhole);
  std::map<int64_t, int64_t> batches;  // by the samples of a batch
  for (const LengthClasses::Class& c : classes.classes()) {
    EXPECT_EQ(c.batch, kTokens / c.length);
    batches[c.batch] += c.batches;
  }
  BatchPlanner planner(dataset, {.batch = 8, .seed = 3, .buckets = true, .tokens = kTokens});
  EXPECT_EQ(planner.most(), kTokens / classes.classes()[0].length);
  const Epoch epoch = read_epoch(planner);
  std::map<int64_t, int64_t> found;
  int64_t samples = 0;
  for (size_t i = 0; i < epoch.batches.size(); ++i) {
    const auto& batch = epoch.batches[i];
    const auto count = static_cast<int64_t>(batch.size());
    EXPECT_EQ(epoch.begins[i].sample, samples);
    samples += count;
    EXPECT_LE(longest(dataset, batch) * count, kTokens);
    if (!epoch.rests[i]) ++found[count];
  }
  EXPECT_EQ(samples, 40000);
  EXPECT_EQ(found, batches);
  // Any stretch of the epoch has of each class what its length asks for, but for a batch.
  int64_t uneven = 0;
  for (const LengthClasses::Class& c : classes.classes()) uneven += c.batch;
  const size_t tenth = epoch.batches.size() / 10;
  for (size_t first = 0; first + tenth <= epoch.batches.size(); first += tenth) {
    int64_t sum = 0;
    for (size_t i = first; i < first + tenth; ++i)
      sum += static_cast<int64_t>(epoch.batches[i].size());
    EXPECT_NEAR(static_cast<double>(sum), 4000, static_cast<double>(uneven));
  }
}

TEST(Buckets, GoesOnFromAnyBatch) {
  const Lengths dataset = random_lengths(5, 300);
  for (const int64_t tokens : {0, 200})
    for (const bool drop_last : {false, true}) {
      const BatchPlan plan{
          .batch = 7, .seed = 2, .drop_last = drop_last, .buckets = true, .tokens = tokens};
      BatchPlanner whole(dataset, plan);
      const Epoch first = read_epoch(whole), second = read_epoch(whole);
      EXPECT_EQ(static_cast<int64_t>(first.batches.size()), whole.batches_per_epoch());
      EXPECT_EQ(std::count(first.rests.begin(), first.rests.end(), true),
                drop_last || whole.samples_per_epoch() % 7 == 0 ? 0 : 1);
      for (size_t i = 0; i < first.batches.size(); ++i) {
        BatchPlanner resumed(dataset, plan);
        resumed.seek(first.begins[i]);
        const Epoch rest = read_epoch(resumed);
        EXPECT_EQ(rest.batches,
                  std::vector(first.batches.begin() + static_cast<std::ptrdiff_t>(i),
                              first.batches.end()));
        EXPECT_EQ(read_epoch(resumed).batches, second.batches);
      }
      // From a place of a run that was cut in another way: every batch is one of the epoch.
      for (int64_t place = 1; place < 300; ++place) {
        BatchPlanner resumed(dataset, plan);
        resumed.seek({.epoch = 0, .sample = place});
        const Epoch rest = read_epoch(resumed);
        const Epoch& of = rest.begins[0].epoch == 0 ? first : second;
        const auto begin = std::find(of.begins.begin(), of.begins.end(), rest.begins[0]);
        ASSERT_NE(begin, of.begins.end()) << place;
        EXPECT_EQ(rest.batches,
                  std::vector(of.batches.begin() + (begin - of.begins.begin()), of.batches.end()));
      }
    }
}

TEST(Buckets, NeedLengthsAndAnOrderToChange) {
  const Lengths dataset = random_lengths(1, 20);
  EXPECT_NE(user_error([&] {
              BatchPlanner(dataset, {.shuffle = false, .buckets = true});
            }).find("by length"),
            std::string::npos);
  EXPECT_NE(user_error([&] {
              BatchPlanner(dataset, {.buckets = true, .tokens = 2000});
            }).find("larger than the data"),
            std::string::npos);
  const Lengths alike(std::vector<int64_t>(20, 0), kWhole);
  EXPECT_NE(user_error([&] { BatchPlanner(alike, {.buckets = true}); }).find("one length"),
            std::string::npos);
}

// The threads read the batches of the planner.
TEST(Buckets, TheLoaderReadsLargerBatchesToo) {
  const test::TemporaryFolder folder;
  std::mt19937 random(6);
  std::string text;
  for (int i = 0; i < 303; ++i)
    text += std::to_string(1000 + i) + std::string(random() % 50, '.') + "\n";
  folder.write("a", text);
  const auto dataset = open_dataset({.kind = DataKind::kText,
                                     .path = folder.path(),
                                     .eval_path = folder.path(),
                                     .context = kWhole,
                                     .text_samples = TextSamples::kLines},
                                    Split::kTrain);
  const BatchPlan plan{.batch = 2, .seed = 9, .buckets = true, .tokens = 256};
  BatchPlanner planner(*dataset, plan);
  Loader loader(*dataset, plan, {.workers = 2});
  ASSERT_GT(planner.most(), 8);
  std::vector<int64_t> samples(static_cast<size_t>(planner.most()));
  for (int64_t i = 0; i < 2 * planner.batches_per_epoch(); ++i) {
    const BatchPlanner::Range range = planner.next(samples);
    const Batch& batch = loader.next();
    ASSERT_EQ(batch.count, range.count);
    EXPECT_EQ(batch.is_rest, range.is_rest);
    EXPECT_EQ(batch.end, range.end);
    for (int64_t k = 0; k < batch.count; ++k) {
      const auto* x = static_cast<const int64_t*>(batch.fields[0]) + kWhole * k;
      int64_t number = 0;
      for (int digit = 0; digit < 4; ++digit) number = 10 * number + x[digit] - '0';
      EXPECT_EQ(number, 1000 + samples[static_cast<size_t>(k)]);
    }
  }
}

}  // namespace
}  // namespace ridge::data
