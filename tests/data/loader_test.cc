// The loader: order and bits, resuming, errors, memory.
#include "ridge/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/trace/trace.h"
#include "ridge/io/jpeg.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/count_allocations.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"

namespace ridge::data {
namespace {

using test::user_error;

/// x f32 [3] = (sample, epoch, seed) and y i64; sample `bad` throws, and reading takes a while that
/// differs from sample to sample.
class TestDataset : public Dataset {
 public:
  explicit TestDataset(int64_t size, int64_t bad = -1)
      : Dataset({.fields = {{.name = "x", .dtype = DType::kF32, .shape = {3}},
                            {.name = "y", .dtype = DType::kI64, .shape = {}}}}),
        size_(size),
        bad_(bad) {}
  int64_t size() const override { return size_; }
  void read(int64_t index,
            const SampleKey& key,
            std::span<void* const> out,
            Scratch& scratch) const override {
    if (index == bad_) throw UserError("sample is bad");
    if (index % 7 == 3) std::this_thread::sleep_for(std::chrono::microseconds(30 * (index % 5)));
    auto* x = static_cast<float*>(out[0]);
    x[0] = static_cast<float>(key.sample);
    x[1] = static_cast<float>(key.epoch);
    x[2] = static_cast<float>(key.seed);
    *static_cast<int64_t*>(out[1]) = index;
    ++reads;
    if (index % 10 == 0) ++scratch.skipped;
  }

  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_, bad_;
};

uint64_t hash_of(const Dataset& dataset, const Batch& batch, uint64_t hash) {
  for (size_t f = 0; f < batch.fields.size(); ++f)
    hash = hash64({static_cast<const char*>(batch.fields[f]),
                   static_cast<size_t>(batch.count * dataset.fields()[f].bytes())},
                  hash);
  return hash;
}

std::vector<int64_t> labels_of(const Batch& batch) {
  const auto* y = static_cast<const int64_t*>(batch.fields[1]);
  return {y, y + batch.count};
}

/// Hash of all bits of the next `batches` batches.
uint64_t hash_of_run(Loader& loader, const Dataset& dataset, int64_t batches) {
  uint64_t hash = kHashStart;
  for (int64_t i = 0; i < batches; ++i) hash = hash_of(dataset, loader.next(), hash);
  return hash;
}

TEST(Loader, BitsDoNotDependOnWorkersOrPrefetch) {
  const TestDataset dataset(101);
  const BatchPlan plan{.batch = 8, .seed = 5};
  Loader plain(dataset, plan, {.workers = 0});
  const uint64_t expected = hash_of_run(plain, dataset, 40);
  for (int64_t workers : {1, 2, 5})
    for (int64_t prefetch : {1, 3, 9}) {
      Loader loader(dataset, plan, {.workers = workers, .prefetch = prefetch});
      EXPECT_EQ(hash_of_run(loader, dataset, 40), expected) << workers << " " << prefetch;
    }
  Loader other(dataset, {.batch = 8, .seed = 6}, {.workers = 0});
  EXPECT_NE(hash_of_run(other, dataset, 40), expected);
}

// A consumer whose copies of a batch still run when it asks for the next one.
TEST(Loader, KeptBatchesStayAsTheyAre) {
  const TestDataset dataset(101);
  const BatchPlan plan{.batch = 8, .seed = 5};
  Loader plain(dataset, plan, {.workers = 0});
  const uint64_t expected = hash_of_run(plain, dataset, 40);
  for (int64_t workers : {0, 1, 5})
    for (int64_t kept : {0, 1, 3}) {
      Loader loader(dataset, plan, {.workers = workers, .prefetch = 2}, {}, {.kept = kept});
      for (int round = 0; round < 2; ++round) {
        loader.seek({});
        uint64_t hash = kHashStart;
        std::vector<std::pair<const Batch*, uint64_t>> valid;
        for (int64_t i = 0; i < 40; ++i) {
          const Batch& batch = loader.next();
          hash = hash_of(dataset, batch, hash);
          valid.emplace_back(&batch, hash_of(dataset, batch, kHashStart));
          if (static_cast<int64_t>(valid.size()) > kept + 1) valid.erase(valid.begin());
          std::this_thread::sleep_for(
              std::chrono::microseconds(200));  // others write what they may
          for (const auto& [each, was] : valid)
            ASSERT_EQ(hash_of(dataset, *each, kHashStart), was) << workers << " " << kept;
        }
        EXPECT_EQ(hash, expected) << workers << " " << kept;
      }
    }
}

TEST(Loader, BatchesLieWhereTheConsumerWants) {
  const TestDataset dataset(50);
  std::map<void*, size_t> memory;
  const BatchMemory wanted{.allocate =
                               [&](size_t bytes) {
                                 void* const made = std::aligned_alloc(64, bytes);
                                 memory[made] = bytes;
                                 return made;
                               },
                           .deallocate =
                               [&](void* gone) {
                                 EXPECT_EQ(memory.erase(gone), 1u);
                                 std::free(gone);
                               },
                           .kept = 1};
  {
    Loader loader(dataset, {.batch = 8, .seed = 5}, {.workers = 2, .prefetch = 3}, {}, wanted);
    EXPECT_EQ(memory.size(), 5u);  // three ahead, two with the consumer
    for (int i = 0; i < 10; ++i) {
      const auto* const x = static_cast<const std::byte*>(loader.next().fields[0]);
      const auto after = memory.upper_bound(const_cast<std::byte*>(x));
      ASSERT_NE(after, memory.begin());
      const auto& [start, bytes] = *std::prev(after);
      EXPECT_LT(x, static_cast<const std::byte*>(start) + bytes);
    }
    Loader plain(dataset, {.batch = 8, .seed = 5}, {.workers = 2, .prefetch = 3});
    EXPECT_GT(loader.staging_bytes(), plain.staging_bytes());
  }
  EXPECT_TRUE(memory.empty());
}

TEST(Loader, ResumingGivesTheSameBits) {
  const TestDataset dataset(50);
  for (bool drop_last : {false, true}) {
    const BatchPlan plan{.batch = 8, .seed = 5, .drop_last = drop_last};
    Loader whole(dataset, plan, {.workers = 2});
    for (int64_t i = 0; i < 20; ++i) {
      const LoaderPosition end = whole.next().end;
      Loader resumed(dataset, plan, {.workers = i % 3}, end);
      Loader reference(dataset, plan, {.workers = 0});
      for (int64_t k = 0; k <= i; ++k) reference.next();
      EXPECT_EQ(hash_of_run(resumed, dataset, 9), hash_of_run(reference, dataset, 9)) << i;
    }
  }
}

TEST(Loader, EpochsAreCutIntoBatches) {
  const TestDataset dataset(10);
  Loader loader(dataset, {.batch = 4, .shuffle = false, .repeat = false}, {.workers = 2});
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  EXPECT_EQ(labels_of(loader.next()), (std::vector<int64_t>{0, 1, 2, 3}));
  const Batch& second = loader.next();
  EXPECT_EQ(labels_of(second), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(second.begin, (LoaderPosition{0, 4}));
  EXPECT_EQ(second.end, (LoaderPosition{0, 8}));
  const Batch& last = loader.next();
  EXPECT_EQ(labels_of(last), (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(last.end, (LoaderPosition{1, 0}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next().count, 0);
  EXPECT_EQ(loader.stats().batches, 3);
  EXPECT_EQ(loader.stats().samples, 10);
  EXPECT_EQ(loader.stats().skipped, 1);  // sample 0 says so
}

TEST(Loader, DropLastGoesToTheNextEpoch) {
  const TestDataset dataset(10);
  Loader loader(dataset, {.batch = 4, .shuffle = false, .drop_last = true}, {.workers = 1});
  EXPECT_EQ(loader.batches_per_epoch(), 2);
  loader.next();
  EXPECT_EQ(loader.next().end, (LoaderPosition{1, 0}));
  EXPECT_EQ(labels_of(loader.next()), (std::vector<int64_t>{0, 1, 2, 3}));
  Loader late(dataset, {.batch = 4, .drop_last = true}, {.workers = 1}, {2, 7});
  EXPECT_EQ(late.next().begin, (LoaderPosition{3, 0}));
}

TEST(Loader, EveryEpochHasEverySampleOnce) {
  const TestDataset dataset(57);
  Loader loader(dataset, {.batch = 10}, {.workers = 2});
  std::vector<int64_t> first;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i)
      for (int64_t label : labels_of(loader.next())) seen.push_back(label);
    EXPECT_NE(seen, first);
    first = seen;
    std::sort(seen.begin(), seen.end());
    for (int64_t i = 0; i < 57; ++i) ASSERT_EQ(seen[i], i);
  }
}

TEST(Loader, SeekIsANewStart) {
  const TestDataset dataset(64);
  const BatchPlan once{.batch = 16, .seed = 2, .repeat = false};
  for (int64_t workers : {0, 3}) {
    Loader loader(dataset, once, {.workers = workers});
    const uint64_t expected = hash_of_run(loader, dataset, 4);
    EXPECT_EQ(loader.next().count, 0);
    loader.seek({});
    EXPECT_EQ(hash_of_run(loader, dataset, 4), expected);
    loader.seek({0, 32});
    EXPECT_EQ(loader.next().begin.sample, 32);
    EXPECT_THROW(loader.seek({0, 64}), UserError);
    EXPECT_EQ(loader.next().begin.sample, 48);  // a refused seek changes nothing
  }
}

TEST(Loader, IsFullWhenAllThatIsKeptReadyIsThere) {
  const TestDataset dataset(1000);
  Loader loader(dataset, {.batch = 10}, {.workers = 3, .prefetch = 5});
  loader.wait_until_full();
  EXPECT_EQ(dataset.reads, 60);  // and the one that next() gives out first
  for (int64_t taken = 1; taken <= 4; ++taken) {
    for (int64_t i = 0; i < 4; ++i) loader.next();
    loader.wait_until_full();
    // The consumer still has the last one.
    EXPECT_EQ(dataset.reads, 10 * (4 * taken + 5));
  }
  loader.seek({});
  loader.wait_until_full();
  // A plan that ends fills the loader with the batches that it has left.
  Loader once(dataset, {.batch = 400, .repeat = false}, {.workers = 2, .prefetch = 8});
  once.wait_until_full();
  // Nothing to wait for.
  Loader none(dataset, {.batch = 10}, {.workers = 0});
  none.wait_until_full();
}

TEST(Loader, AnErrorComesWithItsBatch) {
  const TestDataset dataset(100, 37);
  for (int64_t workers : {0, 1, 4}) {
    Loader loader(dataset, {.batch = 10, .shuffle = false}, {.workers = workers, .prefetch = 8});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next().count, 10);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(user_error([&] { loader.next(); }), "sample is bad");
  }
}

TEST(Loader, EndsWithWorkAndErrorsPending) {
  for (int64_t i = 0; i < test::cases(30); ++i) {
    const TestDataset dataset(100, i % 2 == 0 ? 5 : -1);
    Loader loader(dataset, {.batch = 10}, {.workers = 1 + i % 4, .prefetch = 3});
    if (i % 3 == 0) user_error([&] { loader.next(); });
  }
}

TEST(Loader, IsSeenInTraces) {
  const TestDataset dataset(20);
  start_tracing();
  Loader loader(dataset, {.batch = 5, .repeat = false}, {.workers = 2});
  while (loader.next().count > 0) {
  }
  stop_tracing();
  int64_t samples = 0, waits = 0;
  for (const TraceEvent& event : drain_trace().events) {
    if (event.category != "loader") continue;
    samples += event.name == "sample";
    waits += event.name == "wait for batch";
  }
  EXPECT_EQ(samples, 20);
  EXPECT_EQ(waits, 5);  // the last one for the end
}

TEST(Loader, RefusesWhatCannotBe) {
  const TestDataset dataset(10);
  EXPECT_EQ(user_error([&] { Loader(dataset, {.batch = 11}, {}); }),
            "a batch of 11 samples is larger than the data, which has 10; make the batch smaller, "
            "or give more data");
  EXPECT_THROW(Loader(dataset, {.batch = 0}, {}), UserError);
  EXPECT_THROW(Loader(dataset, {}, {.workers = -1}), UserError);
  EXPECT_THROW(Loader(dataset, {}, {.prefetch = 0}), UserError);
  EXPECT_THROW(Loader(dataset, {}, {}, {0, 10}), UserError);
  EXPECT_THROW(Loader(dataset, {}, {}, {-1, 0}), UserError);
}

TEST(Loader, StagingIsSlotsOrderAndScratch) {
  const TestDataset dataset(1000);
  // 12 bytes of x and 8 of y a sample, each field in whole lines of 64 bytes; 8 an index.
  const int64_t slot = 10 * 64 + 7 * 64 + 50 * 8;
  Loader loader(dataset, {.batch = 50}, {.workers = 2, .prefetch = 4});
  EXPECT_EQ(loader.staging_bytes(), 5 * slot + 1000 * 8);
  Loader plain(dataset, {.batch = 50, .shuffle = false}, {.workers = 0});
  EXPECT_EQ(plain.staging_bytes(), slot);
  for (const void* field : loader.next().fields)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(field) % 64, 0u);
}

enum class Counted { kAllThreads, kConsumer };

/// Allocations of three epochs after a first.
int64_t steady_allocations(const Dataset& dataset,
                           int64_t workers,
                           Counted counted = Counted::kAllThreads) {
  const auto count = [&] {
    return counted == Counted::kConsumer ? test::own_allocations : test::allocations.load();
  };
  Loader loader(dataset, {.batch = 16, .seed = 1}, {.workers = workers, .prefetch = 3});
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) loader.next();
  const int64_t before = count();
  for (int64_t i = 0; i < 3 * loader.batches_per_epoch(); ++i) loader.next();
  return count() - before;
}

TEST(Loader, AllocatesNothingInSteadyState) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns malloc";
  const test::TemporaryFolder folder;
  folder.write("text.txt", std::string(5000, 'a'));
  DataOptions text{.kind = DataKind::kText, .path = folder.path("text.txt"), .context = 20};
  DataOptions random{.kind = DataKind::kRandom, .samples = 100};
  std::string rows = "a,b,label\n";
  for (int i = 0; i < 60; ++i) rows += std::to_string(i) + ",2," + std::to_string(i % 3) + "\n";
  DataOptions table{.kind = DataKind::kTable, .path = folder.write("t.csv", rows)};
  const std::string images("\0\0\x8\x3\0\0\0\x32\0\0\0\x4\0\0\0\x3", 16);
  const std::string labels("\0\0\x8\x1\0\0\0\x32", 8);
  DataOptions idx{.kind = DataKind::kIdx,
                  .path = folder.write("images", images + std::string(600, 'x')),
                  .labels = folder.write("labels", labels + std::string(50, '\1')),
                  .flip = true,
                  .shift = 1};
  for (int i = 0; i < 40; ++i)
    folder.write("pictures/a/" + std::to_string(i) + ".jpg",
                 encode_jpeg(std::vector<uint8_t>(60 * 50 * 3, 77), {60, 50}));
  DataOptions pictures{.kind = DataKind::kImages, .path = folder.path("pictures"), .size = 16};
  for (int64_t workers : {0, 2}) {
    for (const DataOptions& options : {text, random, table, idx})
      EXPECT_EQ(steady_allocations(*open_dataset(options, Split::kTrain), workers), 0)
          << name_of(options.kind);
  }
  // libjpeg takes memory for every picture, in the threads that read.
  EXPECT_EQ(steady_allocations(*open_dataset(pictures, Split::kTrain), 2, Counted::kConsumer), 0);
  // The counter works.
  const int64_t before = test::allocations.load();
  ::operator delete(::operator new(4));
  EXPECT_EQ(test::allocations.load() - before, 1);
}

}  // namespace
}  // namespace ridge::data
