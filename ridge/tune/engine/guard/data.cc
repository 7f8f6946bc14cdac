#include "ridge/tune/engine/guard/data.h"

#include <cstring>

namespace ridge {
namespace {

data::BatchPlan plan_of(const GuardData& data, int64_t order) {
  check_internal(data.dataset != nullptr, "[GuardBatches] no data set");
  data::BatchPlan plan = data.plan;
  plan.repeat = true;
  plan.shuffle = plan.shuffle || order > 0;
  plan.seed += static_cast<uint64_t>(order);
  return plan;
}

}  // namespace

GuardBatches::GuardBatches(const GuardData& data, int64_t order, int64_t first_epoch)
    : samples_(data.dataset->size()),
      loader_(*data.dataset, plan_of(data, order), data.loader, {.epoch = first_epoch}) {}

const data::Batch& GuardBatches::next_full() {
  const data::Batch* batch = &loader_.next();
  while (batch->is_rest) batch = &loader_.next();
  return *batch;
}

const data::Batch& GuardBatches::last_of(int64_t epoch) {
  loader_.seek({.epoch = epoch, .sample = samples_ - loader_.rest()});
  return loader_.next();
}

RoundedBatch::RoundedBatch(const data::Dataset& dataset,
                           const data::Batch& batch,
                           Rounding precision)
    : batch_(batch) {
  const data::FieldType& x = dataset.fields()[0];
  if (x.dtype != DType::kF32) return;
  Shape shape = x.shape;
  shape.insert(shape.begin(), batch.count);
  x_ = Tensor({DType::kF32, shape});
  std::memcpy(x_.data(), batch.fields[0], x_.bytes());
  x_ = rounded(x_, precision);
  batch_.fields[0] = x_.data();
}

}  // namespace ridge
