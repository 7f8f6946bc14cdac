// Batches of a data set, loaded ahead by threads of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// The next sample, by its place in the epoch's order.
struct LoaderPosition {
  int64_t epoch = 0;
  int64_t sample = 0;
  bool operator==(const LoaderPosition&) const = default;
};

/// How epochs become batches. An epoch of N samples is cut into batches of `batch`; the rest is a
/// smaller batch at its end, or dropped.
struct BatchPlan {
  int64_t batch = 1;
  bool shuffle = true;  ///< By (seed, epoch); else samples come by their number.
  uint64_t seed = 0;    ///< Seed of the order and of the augmentation.
  bool drop_last = false;
  bool repeat = true;  ///< Epoch after epoch; else the end of the first epoch is the end.
  /// Samples of like length meet in a batch (length_classes.h). Needs `shuffle`.
  bool buckets = false;
  int64_t tokens = 0;  ///< Above 0: a batch in buckets holds at most so many, in place of `batch`.
};

struct Batch {
  std::vector<const void*> fields;  ///< One address for each of Dataset::fields: (count, shape...),
                                    ///< 64-byte aligned.
  int64_t count = 0;                ///< 0 past the end of a plan that does not repeat.
  bool is_rest = false;             ///< The smaller one at the end of an epoch.
  int64_t longest = 0;              ///< The largest Dataset::length of its samples.
  LoaderPosition begin, end;        ///< Starting a loader at `end` goes on after this batch.
};

/// The allocator of batches, for a consumer that copies them while the next ones are read.
struct BatchMemory {
  /// 64-byte aligned; both null: the heap.
  std::function<void*(size_t)> allocate = nullptr;
  std::function<void(void*)> deallocate = nullptr;
  int64_t kept = 0;  ///< Batches before the last one that stay valid too.
};

struct LoaderStats {
  int64_t batches = 0, samples = 0;  ///< Handed out.
  int64_t skipped = 0;               ///< Samples that another one replaced.
  double wait_seconds = 0;           ///< Seconds that next() waited for a batch.
};

/// Hands out batches in an order, and with bits, that depend on the data set, the plan and the
/// position alone. One consumer.
class Loader {
 public:
  /// `dataset` must outlive it. UserError for a batch larger than the data set, a position outside
  /// of it, or options out of range. All memory is taken and touched here.
  Loader(const Dataset& dataset,
         const BatchPlan& plan,
         const LoaderOptions& options,
         LoaderPosition start = {},
         const BatchMemory& memory = {});
  /// Waits for samples that are being read.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, valid until the following call, or so many calls later as batches are kept.
  /// Rethrows what reading one of its samples threw (the first by place); so does every later call.
  const Batch& next();

  /// Returns when as many batches are ready as are ever kept ready: batches that next() has given
  /// out since have then been replaced. At once where no thread loads ahead.
  void wait_until_full();

  /// Goes on at `position`, as a new loader would. No batch stays valid.
  void seek(LoaderPosition position);

  /// Batches of an epoch, from its beginning, and the samples in them.
  int64_t batches_per_epoch() const;
  int64_t samples_per_epoch() const;
  int64_t rest() const;  ///< Samples of the smaller batch at its end; 0: there is none.

  /// Memory held for staging: batches, what reading threads need, the order and the cache.
  int64_t staging_bytes() const;

  LoaderStats stats() const;

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace ridge::data
