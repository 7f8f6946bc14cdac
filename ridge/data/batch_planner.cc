// The order of an epoch is made when its first batch is planned.
#include "ridge/data/batch_planner.h"

#include <algorithm>
#include <numeric>

#include "ridge/base/error.h"
#include "ridge/data/order.h"

namespace ridge::data {

BatchPlanner::BatchPlanner(int64_t samples, const BatchPlan& plan)
    : samples_(samples), plan_(plan) {
  check(plan.batch >= 1, "a batch of {} samples: it needs at least 1", plan.batch);
  if (plan.batch > samples)
    throw UserError(
        fmt::format(
            "a batch of {} samples is larger than the data, which has {}", plan.batch, samples),
        "make the batch smaller, or give more data");
  if (plan.shuffle) order_.resize(static_cast<size_t>(samples));
}

void BatchPlanner::seek(LoaderPosition position) {
  check(position.epoch >= 0 && position.sample >= 0 && position.sample < samples_,
        "no position in the data: epoch {}, sample {} of {}",
        position.epoch,
        position.sample,
        samples_);
  position_ = position;
  ended_ = false;
}

int64_t BatchPlanner::used_from(int64_t first) const {
  const int64_t left = samples_ - first;
  return plan_.drop_last ? left / plan_.batch * plan_.batch : left;
}

int64_t BatchPlanner::batches_per_epoch() const {
  return (used_from(0) + plan_.batch - 1) / plan_.batch;
}

BatchPlanner::Range BatchPlanner::next(std::span<int64_t> samples) {
  // A resumed position may leave less than a batch of its epoch.
  if (!ended_ && used_from(position_.sample) == 0) {
    position_ = {.epoch = position_.epoch + 1, .sample = 0};
    ended_ = !plan_.repeat;
  }
  Range range{.begin = position_, .end = position_};
  if (ended_) return range;
  range.count = std::min(plan_.batch, used_from(position_.sample));
  if (plan_.shuffle && ordered_ != position_.epoch) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
    shuffle(order_, plan_.seed, position_.epoch);
    ordered_ = position_.epoch;
  }
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t place = position_.sample + i;
    samples[i] = plan_.shuffle ? order_[place] : place;
  }
  position_.sample += range.count;
  if (used_from(position_.sample) == 0) {
    position_ = {.epoch = position_.epoch + 1, .sample = 0};
    ended_ = !plan_.repeat;
  }
  range.end = position_;
  return range;
}

}  // namespace ridge::data
