#include "ridge/nn/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/nn/schedule.h"

namespace ridge::nn {
namespace {

// Element of "hyper", by its place in hyper_tensor.
enum class Hyper : uint8_t { kLr, kKeep, kStepSize, kRootScale };

Value scalar(Value hyper, Hyper which) {
  const auto i = static_cast<int64_t>(which);
  return reshape(slice(hyper, 0, i, i + 1), {});
}

UpdatedParameter adamw(const OptimizerOptions& o,
                       const ParameterUpdate& u,
                       const HyperValues& hyper) {
  const Value g = u.gradient;
  const Value m = u.moments[0] * o.beta1 + g * (1.0 - o.beta1);
  const Value v = u.moments[1] * o.beta2 + g * g * (1.0 - o.beta2);
  const Value root = sqrt(v) * hyper.root_scale + o.eps;
  Value p = cast(u.parameter, g.dtype());
  if (u.decay && o.weight_decay != 0.0) p = p * hyper.keep;
  p = p - m / root * hyper.step_size;
  return {cast(p, u.parameter.dtype()), {m, v}};
}

// The decay is part of the gradient, and the momentum starts as the first gradient: 0 * momentum +
// g. Both as in PyTorch.
UpdatedParameter sgd(const OptimizerOptions& o,
                     const ParameterUpdate& u,
                     const HyperValues& hyper) {
  const Value p = cast(u.parameter, u.gradient.dtype());
  Value g = u.gradient;
  if (u.decay && o.weight_decay != 0.0) g = g + p * o.weight_decay;
  std::vector<Value> moments;
  if (!u.moments.empty()) {
    g = u.moments[0] * o.momentum + g;
    moments = {g};
  }
  return {cast(p - g * hyper.lr, u.parameter.dtype()), moments};
}

}  // namespace

void check_options(const OptimizerOptions& o) {
  const auto check_range = [](std::string_view name, double value, double below) {
    check(value >= 0.0 && value < below,
          "optimizer: {} out of range; got {}, expected 0 to below {}",
          name,
          value,
          below);
  };
  const double infinity = HUGE_VAL;
  check_range("lr", o.lr, infinity);
  check_range("beta1", o.beta1, 1.0);
  check_range("beta2", o.beta2, 1.0);
  check_range("eps", o.eps, infinity);
  check_range("momentum", o.momentum, 1.0);
  check_range("weight_decay", o.weight_decay, infinity);
  check_range("clip", o.clip, infinity);
}

StepScalars step_scalars(const OptimizerOptions& optimizer,
                         const ScheduleOptions& schedule,
                         int64_t step,
                         int64_t total_steps,
                         int64_t skipped) {
  // A step may be run again and again, as trials do: each time it may be skipped.
  const double t = static_cast<double>(std::max<int64_t>(1, step + 1 - skipped));
  StepScalars scalars;
  scalars.lr = optimizer.lr * schedule_factor(schedule, step, total_steps);
  scalars.keep = 1.0 - scalars.lr * optimizer.weight_decay;
  scalars.step_size = scalars.lr / (1.0 - std::pow(optimizer.beta1, t));
  scalars.root_scale = 1.0 / std::sqrt(1.0 - std::pow(optimizer.beta2, t));
  return scalars;
}

void set_hyper(const StepScalars& scalars, Tensor& hyper, int64_t row) {
  const auto set = [&](Hyper which, double value) {
    hyper.set(row * kStepScalars + static_cast<int64_t>(which), value);
  };
  set(Hyper::kLr, scalars.lr);
  set(Hyper::kKeep, scalars.keep);
  set(Hyper::kStepSize, scalars.step_size);
  set(Hyper::kRootScale, scalars.root_scale);
}

Tensor hyper_tensor(const StepScalars& scalars, DType dtype) {
  Tensor hyper(TensorType{dtype, {kStepScalars}});
  set_hyper(scalars, hyper);
  return hyper;
}

HyperValues split_hyper(Value hyper) {
  return {scalar(hyper, Hyper::kLr),
          scalar(hyper, Hyper::kKeep),
          scalar(hyper, Hyper::kStepSize),
          scalar(hyper, Hyper::kRootScale)};
}

std::vector<std::string> moment_names(const OptimizerOptions& options, const std::string& name) {
  if (options.kind == OptimizerKind::kAdamW) return {name + ".m", name + ".v"};
  if (options.momentum > 0.0) return {name + ".m"};
  return {};
}

UpdatedParameter update_parameter(const OptimizerOptions& options,
                                  const ParameterUpdate& update,
                                  const HyperValues& hyper) {
  return options.kind == OptimizerKind::kAdamW ? adamw(options, update, hyper)
                                               : sgd(options, update, hyper);
}

Value global_norm(const std::vector<Value>& gradients) {
  Value sum;
  for (const Value& gradient : gradients) {
    const Value squares = reduce_sum(gradient * gradient);
    sum = sum ? sum + squares : squares;
  }
  check_internal(static_cast<bool>(sum), "the norm of no gradients");
  return sqrt(sum);
}

Value clip_coefficient(Value norm, double clip) {
  return minimum(clip / (norm + 1e-6), constant_like(norm, 1.0));
}

}  // namespace ridge::nn
