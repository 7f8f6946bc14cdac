// The dynamic loss scale: a power of two that the gradient of the loss begins with, so that what is
// rounded to f16 on the way back neither vanishes nor overflows. The rules and the numbers are
// those of torch.amp.GradScaler: a step whose gradient overflows is skipped and halves the scale,
// and so many steps in a row that are not double it.
#pragma once

#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/nn/options.h"

namespace ridge::nn {

/// Its part of the state, scalars of the accumulate dtype: the scale, the steps in a row that were
/// not skipped since it last changed, and all steps that were skipped.
inline constexpr std::string_view kLossScale = "loss_scale";
inline constexpr std::string_view kGoodSteps = "loss_scale.good";
inline constexpr std::string_view kSkippedSteps = "loss_scale.skipped";

/// Adam's corrections leave out skipped steps, which are counted on the device; the host reads the
/// count some steps late, for it would have to wait else. So "hyper" has rows: the first begins
/// with the count that the host knows of, the one 1 + n after it is for n more. This many more
/// there may be.
inline constexpr int64_t kMostUnknownSkips = 63;

/// UserError when the scale is no power of two from 1 to kMostLossScale, and not 0.
void check_options(const LossScaleOptions& options);

/// The scale grows no further: the reciprocal of more is subnormal in f32.
inline constexpr double kMostLossScale = 0x1p126;

/// The entries of the state; none without a scale.
std::vector<StateEntry> loss_scale_state(const LossScaleOptions& options, DType dtype);

/// The scale in a graph. Dividing by it is exact but for subnormal numbers.
class LossScale {
 public:
  LossScale(Graph& graph, DType dtype);

  Value scaled(Value loss) const { return loss * scale_; }
  /// The row of "hyper" for the steps that have been skipped.
  Value fitting_row(Value hyper);
  /// `gradients` of a scaled loss, back at the size of the loss's own.
  std::vector<Value> unscaled(std::vector<Value> gradients) const;

  /// Adds the updates of the scale after a step. `sound` is whether the run goes on and the loss is
  /// finite, `fine` whether the gradient is too. Returns whether the run goes on: false for a
  /// gradient that overflows at a scale of 1.
  Value finish_step(const LossScaleOptions& options, Value sound, Value fine);

 private:
  Value skipped();

  Value scale_, skipped_;
};

}  // namespace ridge::nn
