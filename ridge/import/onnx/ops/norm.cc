// Normalizations and softmax.
#include "ridge/graph/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/builders/indexing.h"
#include "ridge/import/onnx/late_convolution.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

// ---- batch norm: y = x * scale + shift, one of each a channel ----

// A factor and a summand for each channel, of known statistics.
struct Factors {
  std::vector<double> scale, shift;
};

Factors known_factors(const NodeContext& n, double epsilon) {
  Factors factors;
  for (int64_t c = 0; c < n.known(1)->elements(); ++c) {
    const double scale = n.known(1)->at(c) / std::sqrt(n.known(4)->at(c) + epsilon);
    factors.scale.push_back(scale);
    factors.shift.push_back(n.known(2)->at(c) - n.known(3)->at(c) * scale);
  }
  return factors;
}

Value placed(const NodeContext& n, const std::vector<double>& numbers, std::string_view what) {
  Tensor tensor({n.dtype(0), {std::ssize(numbers)}});
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, numbers[static_cast<size_t>(i)]);
  return n.place(Known(std::move(tensor)), what);
}

void give_normalized(NodeContext& n, Value scale, Value shift) {
  if (n.is_image(0)) return n.give_image(0, n.image(0) * scale + shift);
  Shape shape(static_cast<size_t>(n.rank(0) - 1), 1);
  shape[0] = n.shape(0)[1];
  n.give(n.value(0) * reshape(scale, shape) + reshape(shift, shape));
}

void batch_normalization(NodeContext& n) {
  check(n.integer("training_mode", 0) == 0, "it is asked to train");
  check(n.rank(0) >= 2, "its input has {} dimensions", n.rank(0));
  const int64_t channels = n.shape(0)[1];
  bool is_known = true;
  for (size_t i = 1; i < 5; ++i) {
    check(n.shape(i) == Shape{channels},
          "input {} is {} for {} channels",
          i,
          to_string(n.shape(i)),
          channels);
    is_known = is_known && n.known(i) != nullptr;
  }
  const double epsilon = n.number("epsilon", 1e-5);
  if (!is_known) {
    const Value scale = n.value(1) / sqrt(n.value(4) + epsilon);
    const Value shift = n.value(2) - n.value(3) * scale;
    return give_normalized(n, cast(scale, n.dtype(0)), cast(shift, n.dtype(0)));
  }
  const Factors factors = known_factors(n, epsilon);
  // A convolution that nobody has asked for takes the norm into its weights.
  if (n.import().folds_norms() && n.is_image(0) && n.datum(0)->convolution && !n.datum(0)->image)
    return n.give(0,
                  make_datum(n.proto().outputs[0],
                             n.datum(0)->convolution->followed_by(factors.scale, factors.shift)));
  give_normalized(n, placed(n, factors.scale, "scale"), placed(n, factors.shift, "shift"));
}

// ---- over groups of elements ----

// (x - mean) / sqrt(variance + epsilon) over the last axis.
Value standardized(Value x, double epsilon) {
  const Value centered = x - reduce_mean(x, {-1}, true);
  const Value variance = reduce_mean(centered * centered, {-1}, true);
  return centered * rsqrt(variance + epsilon);
}

// A number a channel of (N, C, ...), as a tensor that is broadcast to it.
Value per_channel(Value values, int64_t rank) {
  Shape shape(static_cast<size_t>(rank - 1), 1);
  shape[0] = values.dim(0);
  return reshape(values, shape);
}

void instance_normalization(NodeContext& n) {
  check(n.rank(0) >= 3 && n.rank(1) == 1, "its input has {} dimensions", n.rank(0));
  const Value x = n.value(0);
  const Value rows = reshape(x, {x.dim(0), x.dim(1), -1});
  const Value y = reshape(standardized(rows, n.number("epsilon", 1e-5)), x.shape());
  n.give(y * per_channel(n.value(1), x.rank()) + per_channel(n.value(2), x.rank()));
}

// Scale and shift are of groups in opset 18, and of channels from 21 on.
void group_normalization(NodeContext& n) {
  check(n.rank(0) >= 2 && n.rank(1) == 1, "its input has {} dimensions", n.rank(0));
  const Value x = n.value(0);
  const int64_t groups = n.integer("num_groups");
  check(groups >= 1 && x.dim(1) % groups == 0, "{} groups of {} channels", groups, x.dim(1));
  const Value rows = reshape(x, {x.dim(0), groups, -1});
  const Value wide = x.dtype() == DType::kF64 ? rows : cast(rows, DType::kF32);
  const Value y = standardized(wide, n.number("epsilon", 1e-5));
  const Value z = cast(y, x.dtype());
  if (n.shape(1)[0] == groups && n.opset() < 21) {
    const Value scale = reshape(n.value(1), {groups, 1}), shift = reshape(n.value(2), {groups, 1});
    return n.give(reshape(z * scale + shift, x.shape()));
  }
  n.give(reshape(z, x.shape()) * per_channel(n.value(1), x.rank()) +
         per_channel(n.value(2), x.rank()));
}

// A weight of the normalized axes, as one row.
Value flat_weight(NodeContext& n, size_t input, const Shape& normalized) {
  return reshape(broadcast(n.value(input), normalized), {-1});
}

struct Rows {
  Shape normalized;
  int64_t size = 1;
  Value x;  // (rows, size)
};

Rows rows_of(NodeContext& n, Value x, int64_t fallback_axis) {
  const int64_t axis = normalize_axis(n.integer("axis", fallback_axis), x.rank(), "axis");
  Rows rows{{x.shape().begin() + axis, x.shape().end()}, 1, {}};
  rows.size = numel(rows.normalized);
  rows.x = reshape(x, {-1, rows.size});
  return rows;
}

void give_statistics(NodeContext& n, Value x, double epsilon, size_t first, int64_t axis) {
  std::vector<int64_t> axes;
  for (int64_t i = normalize_axis(axis, x.rank(), "axis"); i < x.rank(); ++i) axes.push_back(i);
  const Value wide = x.dtype() == DType::kF64 ? x : cast(x, DType::kF32);
  const Value mean = reduce_mean(wide, axes, true);
  const Value centered = wide - mean;
  const Value variance = reduce_mean(centered * centered, axes, true);
  if (n.wants(first)) n.give(first, mean);
  if (n.wants(first + 1)) n.give(first + 1, rsqrt(variance + epsilon));
}

Value layer_norm_of(NodeContext& n, Value x, size_t scale, size_t shift, double epsilon) {
  const Rows rows = rows_of(n, x, -1);
  const Value gamma = flat_weight(n, scale, rows.normalized);
  const Value beta =
      n.has(shift) ? flat_weight(n, shift, rows.normalized) : constant_like(gamma, 0.0);
  return reshape(layer_norm(rows.x, gamma, beta, epsilon), x.shape());
}

void layer_normalization(NodeContext& n) {
  const double epsilon = n.number("epsilon", 1e-5);
  const Value x = n.value(0);
  n.give(layer_norm_of(n, x, 1, 2, epsilon));
  if (n.wants(1) || n.wants(2)) give_statistics(n, x, epsilon, 1, n.integer("axis", -1));
}

Value rms_norm_of(NodeContext& n, Value x, size_t scale, double epsilon) {
  const Rows rows = rows_of(n, x, -1);
  const Value gamma = flat_weight(n, scale, rows.normalized);
  return reshape(rms_norm(rows.x, cast(gamma, x.dtype()), epsilon), x.shape());
}

void rms_normalization(NodeContext& n) {
  n.give(rms_norm_of(n, n.value(0), 1, n.number("epsilon", 1e-5)));
}

// Inputs: x, skip, scale [, shift] [, bias]; the sum before the norm is output 3.
void skip_layer_normalization(NodeContext& n) {
  Value sum = n.value(0) + n.value(1);
  if (n.has(4)) sum = sum + n.value(4);
  n.give(0, layer_norm_of(n, sum, 2, 3, n.number("epsilon", 1e-5)));
  if (n.wants(3)) n.give(3, sum);
}

void skip_rms_normalization(NodeContext& n) {
  Value sum = n.value(0) + n.value(1);
  if (n.has(3)) sum = sum + n.value(3);
  n.give(0, rms_norm_of(n, sum, 2, n.number("epsilon", 1e-5)));
  if (n.wants(3)) n.give(3, sum);
}

// x / (bias + alpha / size * sum of squares of the channels around)^beta.
void lrn(NodeContext& n) {
  const int64_t size = n.integer("size");
  const Value x = n.value(0);
  check(x.rank() >= 2 && size >= 1 && size <= 1024, "it has size {}", size);
  std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - low[1];
  const Value squares = pad(x * x, low, high);
  Value sum = slice(squares, 1, 0, x.dim(1));
  for (int64_t i = 1; i < size; ++i) sum = sum + slice(squares, 1, i, i + x.dim(1));
  const double alpha = n.number("alpha", 1e-4) / static_cast<double>(size);
  n.give(x / power(sum * alpha + n.number("bias", 1.0), n.number("beta", 0.75)));
}

void mean_variance_normalization(NodeContext& n) {
  const auto axes = normalized_axes(n.list("axes", {0, 2, 3}), n.rank(0));
  const Value x = n.value(0);
  const Value centered = x - reduce_mean(x, axes, true);
  const Value variance = reduce_mean(centered * centered, axes, true);
  n.give(centered / (sqrt(variance) + 1e-9));
}

void lp_normalization(NodeContext& n) {
  const int64_t axis = normalize_axis(n.integer("axis", -1), n.rank(0), "axis");
  const int64_t p = n.integer("p", 2);
  check(p == 1 || p == 2, "its p is {}", p);
  const Value x = n.value(0);
  const Value norm =
      p == 1 ? reduce_sum(abs(x), {axis}, true) : sqrt(reduce_sum(x * x, {axis}, true));
  const Value zero = constant_like(norm, 0.0);
  n.give(x / where(eq(norm, zero), constant_like(norm, 1.0), norm));
}

// ---- softmax ----

// Up to opset 12 over all axes from one on, then over one.
template <typename F>
void over_rows(NodeContext& n, F&& apply) {
  const bool is_flat = n.opset() < 13;
  const Value x = n.value(0);
  const int64_t axis = normalize_axis(n.integer("axis", is_flat ? 1 : -1), x.rank(), "axis");
  if (!is_flat) return n.give(apply(x, axis));
  int64_t size = 1;
  for (int64_t i = axis; i < x.rank(); ++i) size *= x.dim(i);
  n.give(reshape(apply(reshape(x, {-1, size}), 1), x.shape()));
}

void softmax_of(NodeContext& n) {
  over_rows(n, [](Value x, int64_t axis) { return softmax(x, axis); });
}

void log_softmax_of(NodeContext& n) {
  over_rows(n, [](Value x, int64_t axis) { return log_softmax(x, axis); });
}

void hardmax(NodeContext& n) {
  over_rows(n, [](Value x, int64_t axis) {
    const Value hot = one_hot(argmax(x, axis), x.dim(axis), x.dtype());
    return axis_from_end(hot, axis);
  });
}

constexpr OpRow kNormOps[] = {
    {"BatchNormalization", batch_normalization},
    {"GroupNormalization", group_normalization},
    {"Hardmax", hardmax},
    {"InstanceNormalization", instance_normalization},
    {"LRN", lrn},
    {"LayerNormalization", layer_normalization},
    {"LayerNormalization", layer_normalization, 1, 1, kMicrosoft},
    {"LogSoftmax", log_softmax_of},
    {"LpNormalization", lp_normalization},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"RMSNormalization", rms_normalization},
    {"SimplifiedLayerNormalization", rms_normalization},
    {"SimplifiedLayerNormalization", rms_normalization, 1, 1, kMicrosoft},
    {"SkipLayerNormalization", skip_layer_normalization, 1, 1, kMicrosoft},
    {"SkipSimplifiedLayerNormalization", skip_rms_normalization, 1, 1, kMicrosoft},
    {"Softmax", softmax_of},
};

}  // namespace

std::span<const OpRow> norm_ops() { return kNormOps; }

}  // namespace ridge::onnx
