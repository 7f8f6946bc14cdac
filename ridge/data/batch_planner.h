// Which samples are in which batch: the loader's order, without its threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridge/data/length_classes.h"
#include "ridge/data/loader.h"

namespace ridge::data {

/// Cuts epochs into batches. Allocates at construction only.
class BatchPlanner {
 public:
  /// UserError for a batch that is not 1 to all samples, and for buckets of samples that are not
  /// shuffled, of one length, or too few for one batch. `dataset` must outlive it.
  BatchPlanner(const Dataset& dataset, const BatchPlan& plan);

  /// UserError when no epoch has such a position. In buckets a place within a batch is that of the
  /// next one: it is of a run that was cut into other batches.
  void seek(LoaderPosition position);

  struct Range {
    LoaderPosition begin, end;
    int64_t count = 0;  ///< 0: the plan has ended.
    bool is_rest = false;
  };
  /// The next batch; its samples go to the front of `samples`, which must hold most().
  Range next(std::span<int64_t> samples);

  int64_t most() const;  ///< Samples of the largest batch.
  int64_t batches_per_epoch() const;
  int64_t samples_per_epoch() const;
  int64_t rest() const;  ///< Samples of the smaller batch at an epoch's end; 0: there is none.
  int64_t bytes() const;
  /// The length classes of a plan in buckets; null of other plans.
  const LengthClasses* classes() const { return classes_ ? &*classes_ : nullptr; }

 private:
  void make_order();
  /// Moves position_ to where the next batch begins and returns where that batch ends: the same
  /// place where the epoch has none left.
  int64_t batch_end();
  void next_epoch();
  bool is_over() { return batch_end() == position_.sample; }

  int64_t left_over() const;

  int64_t samples_;
  BatchPlan plan_;
  LoaderPosition position_;
  std::optional<LengthClasses> classes_;  // for buckets
  std::vector<int64_t> order_;            // samples of epoch ordered_; empty without shuffling
  std::vector<int64_t> begins_;           // begins of its batches, in buckets
  int64_t ordered_ = -1;
  bool ended_ = false;
};

}  // namespace ridge::data
