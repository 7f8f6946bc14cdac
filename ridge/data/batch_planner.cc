// The order of an epoch is made when its first batch is planned.
#include "ridge/data/batch_planner.h"

#include <algorithm>
#include <numeric>

#include "ridge/base/error.h"
#include "ridge/data/order.h"

namespace ridge::data {

BatchPlanner::BatchPlanner(const Dataset& dataset, const BatchPlan& plan)
    : samples_(dataset.size()), plan_(plan) {
  check(plan.batch >= 1, "a batch of {} samples: it needs at least 1", plan.batch);
  if (plan.batch > samples_)
    throw UserError(
        fmt::format(
            "a batch of {} samples is larger than the data, which has {}", plan.batch, samples_),
        "make the batch smaller, or give more data");
  if (plan.shuffle) order_.resize(static_cast<size_t>(samples_));
  if (!plan.buckets) return;
  check(plan.shuffle, "samples cannot come both by length and by their number");
  classes_.emplace(dataset, plan.batch, plan.tokens);
  if (classes_->batches() == 0)
    throw UserError(
        fmt::format("a batch with room for {} tokens is larger than the data, which has {} samples",
                    plan.tokens,
                    samples_),
        "give it room for fewer, or give more data");
  begins_.resize(static_cast<size_t>(classes_->batches()) + 1);
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

int64_t BatchPlanner::most() const { return classes_ ? classes_->most() : plan_.batch; }

int64_t BatchPlanner::left_over() const {
  return classes_ ? classes_->rest() : samples_ % plan_.batch;
}

int64_t BatchPlanner::rest() const { return plan_.drop_last ? 0 : left_over(); }

int64_t BatchPlanner::samples_per_epoch() const { return samples_ - left_over() + rest(); }

int64_t BatchPlanner::batches_per_epoch() const {
  const int64_t whole = classes_ ? classes_->batches() : samples_ / plan_.batch;
  return whole + (rest() > 0 ? 1 : 0);
}

int64_t BatchPlanner::bytes() const {
  const auto items = static_cast<int64_t>(order_.size() + begins_.size());
  return items * static_cast<int64_t>(sizeof(int64_t)) + (classes_ ? classes_->bytes() : 0);
}

void BatchPlanner::make_order() {
  if (!plan_.shuffle || ordered_ == position_.epoch) return;
  std::iota(order_.begin(), order_.end(), int64_t{0});
  shuffle(order_, plan_.seed, position_.epoch);
  if (classes_) classes_->arrange(order_, begins_, plan_.seed, position_.epoch);
  ordered_ = position_.epoch;
}

int64_t BatchPlanner::batch_end() {
  if (position_.sample == samples_) return samples_;
  make_order();
  if (!classes_) {
    const int64_t end = position_.sample + plan_.batch;
    if (end <= samples_) return end;
    return plan_.drop_last ? position_.sample : samples_;
  }
  const auto begin = std::lower_bound(begins_.begin(), begins_.end(), position_.sample);
  // Within the rest.
  if (begin == begins_.end()) return position_.sample;
  position_.sample = *begin;
  return begin + 1 == begins_.end() ? samples_per_epoch() : *(begin + 1);
}

void BatchPlanner::next_epoch() {
  position_ = {.epoch = position_.epoch + 1, .sample = 0};
  ended_ = !plan_.repeat;
}

BatchPlanner::Range BatchPlanner::next(std::span<int64_t> samples) {
  // A resumed position may leave less than a batch of its epoch.
  while (!ended_ && is_over()) next_epoch();
  Range range{.begin = position_, .end = position_, .count = 0, .is_rest = false};
  if (ended_) return range;
  const int64_t end = batch_end();
  range.count = end - position_.sample;
  range.is_rest = classes_ ? position_.sample == begins_.back() : range.count < plan_.batch;
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t place = position_.sample + i;
    samples[i] = plan_.shuffle ? order_[place] : place;
  }
  position_.sample = end;
  if (is_over()) next_epoch();
  range.end = position_;
  return range;
}

}  // namespace ridge::data
