// Which samples are in which batch: the loader's order, without its threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/data/loader.h"

namespace ridge::data {

/// Cuts epochs into batches. Allocates at construction only.
class BatchPlanner {
 public:
  /// UserError for a batch that is not 1 to `samples`.
  BatchPlanner(int64_t samples, const BatchPlan& plan);

  /// UserError when no epoch has such a position.
  void seek(LoaderPosition position);

  struct Range {
    LoaderPosition begin, end;
    int64_t count = 0;  ///< 0: the plan has ended.
  };
  /// The next batch; its samples go to the front of `samples`, which has room for a whole batch.
  Range next(std::span<int64_t> samples);

  int64_t batches_per_epoch() const;
  int64_t bytes() const { return static_cast<int64_t>(order_.size() * sizeof(int64_t)); }

 private:
  /// Samples of an epoch that are in a batch when one starts at `first`.
  int64_t used_from(int64_t first) const;

  int64_t samples_;
  BatchPlan plan_;
  LoaderPosition position_;
  std::vector<int64_t> order_;  // of epoch ordered_; empty without shuffling
  int64_t ordered_ = -1;
  bool ended_ = false;
};

}  // namespace ridge::data
