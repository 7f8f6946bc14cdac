// Real batches for the guard, from the data set that the task trains on.
#pragma once

#include "ridge/base/tensor.h"
#include "ridge/data/loader.h"
#include "ridge/tune/engine/guard/variant.h"

namespace ridge {

/// Must outlive what uses it.
struct GuardData {
  const data::Dataset* dataset = nullptr;
  data::BatchPlan plan;          ///< As the run's; it repeats.
  data::LoaderOptions loader{};  ///< How samples are read.
};

/// Batches of one order of the samples.
class GuardBatches {
 public:
  /// Order 0 is the run's own, others are other orders of the same samples. UserError as of Loader.
  GuardBatches(const GuardData& data, int64_t order, int64_t first_epoch = 0);

  /// The next batch of full size; valid until the next call.
  const data::Batch& next_full();
  /// The next batch as the run would see it.
  const data::Batch& next() { return loader_.next(); }
  /// The smaller batch at the end of epoch `epoch`, where there is one.
  const data::Batch& last_of(int64_t epoch);
  bool has_smaller() const { return loader_.rest() > 0; }

 private:
  int64_t samples_;
  data::Loader loader_;
};

/// A batch whose x is rounded to `precision`, where it holds f32, and widened again.
class RoundedBatch {
 public:
  RoundedBatch(const data::Dataset& dataset, const data::Batch& batch, Rounding precision);
  RoundedBatch(const RoundedBatch&) = delete;
  RoundedBatch& operator=(const RoundedBatch&) = delete;
  const data::Batch& batch() const { return batch_; }

 private:
  data::Batch batch_;
  Tensor x_;
};

}  // namespace ridge
