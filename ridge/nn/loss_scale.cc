#include "ridge/nn/loss_scale.h"

#include <cmath>
#include <string>

#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::nn {

void check_options(const LossScaleOptions& options) {
  if (options.initial == 0) return;
  int exponent = 0;
  const bool is_power = std::frexp(options.initial, &exponent) == 0.5;
  check(is_power && options.initial >= 1 && options.initial <= kMostLossScale,
        "loss scale: {} is no power of two from 1 to 2^126",
        options.initial);
  check(options.growth_interval >= 1,
        "loss scale: it cannot grow after {} steps; at least 1",
        options.growth_interval);
}

std::vector<StateEntry> loss_scale_state(const LossScaleOptions& options, DType dtype) {
  std::vector<StateEntry> entries;
  if (options.initial == 0) return entries;
  for (std::string_view name : {kLossScale, kGoodSteps, kSkippedSteps})
    entries.push_back({std::string(name), {dtype, {}}, StateRole::kScaler});
  entries[0].init = Initializer::constant(options.initial);
  return entries;
}

LossScale::LossScale(Graph& graph, DType dtype)
    : scale_(input(graph, std::string(kLossScale), {dtype, {}})) {}

std::vector<Value> LossScale::unscaled(std::vector<Value> gradients) const {
  const Value inverse = constant_like(scale_, 1.0) / scale_;
  for (Value& gradient : gradients) gradient = gradient * inverse;
  return gradients;
}

// Not in the constructor: micro-batches do not read it.
Value LossScale::skipped() {
  if (!skipped_) skipped_ = input(scale_.graph(), std::string(kSkippedSteps), scale_.type());
  return skipped_;
}

Value LossScale::fitting_row(Value hyper) {
  const SiteScope scope(scale_.graph(), "loss_scale");
  const Value known = reshape(slice(slice(hyper, 0, 0, 1), 1, 0, 1), {});
  return gather(hyper, cast(skipped() - known + 1.0, DType::kI32), 0);
}

Value LossScale::finish_step(const LossScaleOptions& options, Value sound, Value fine) {
  Graph& graph = scale_.graph();
  const SiteScope scope(graph, "loss_scale");
  const auto update = [&](std::string_view name, Value value) {
    graph.add_output(std::string(name) + ".new", value, std::string(name));
  };
  const Value good = input(graph, std::string(kGoodSteps), scale_.type());
  const Value zero = constant_like(scale_, 0.0), one = constant_like(scale_, 1.0);
  const Value skips = logical_and(logical_and(sound, logical_not(fine)), gt(scale_, one));
  const Value more = good + one;
  const Value grows = ge(more, constant_like(more, static_cast<double>(options.growth_interval)));
  const Value larger = minimum(scale_ * 2.0, constant_like(scale_, kMostLossScale));
  const Value after_good = where(grows, larger, scale_);
  update(kLossScale, where(fine, after_good, where(skips, scale_ * 0.5, scale_)));
  update(kGoodSteps, where(fine, where(grows, zero, more), where(skips, zero, good)));
  update(kSkippedSteps, where(skips, skipped() + one, skipped()));
  return logical_or(fine, skips);
}

}  // namespace ridge::nn
