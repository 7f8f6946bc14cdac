// Normalization over channels, rows and groups, and the gradients.
#include "ridge/graph/ops/norm.h"

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

// ---- batch norm ----

// x (N, C, ...) with the channels as its last axis, and back.
Value channels_last(const NodeContext& n, size_t i) {
  if (n.rank(i) == 4) return n.image(i);
  check(n.rank(i) == 2 || n.rank(i) == 3, "it has {} dimensions", n.rank(i));
  return n.rank(i) == 2 ? n.value(i) : n.moved(i, {0, 2, 1});
}

void give_channels_last(NodeContext& n, size_t result, Value y) {
  if (y.rank() == 4) return n.give_image(result, y);
  n.give(result, y.rank() == 2 ? y : transpose(y, {0, 2, 1}));
}

// Argument i, or as many of `value`.
Value per_channel(NodeContext& n, size_t i, const TensorType& type, double value) {
  if (n.has(i)) return cast(n.value(i), type.dtype);
  return constant(n.graph(), type, value);
}

// Parameters and statistics of 16-bit images are f32.
TensorType channel_type(Value x) {
  return {size_of(x.dtype()) == 2 ? DType::kF32 : x.dtype(), {x.dim(-1)}};
}

// With running statistics: arguments x, weight, bias, mean, variance, then eps at `eps`.
void with_statistics(NodeContext& n, double eps) {
  const Value x = channels_last(n, 0);
  const TensorType type = channel_type(x);
  const Value y = batch_norm_inference(cast(x, type.dtype),
                                       per_channel(n, 1, type, 1.0),
                                       per_channel(n, 2, type, 0.0),
                                       cast(n.value(3), type.dtype),
                                       cast(n.value(4), type.dtype),
                                       eps);
  give_channels_last(n, 0, cast(y, x.dtype()));
}

// batch_norm_no_training(input, weight, bias, running_mean, running_var, momentum, eps)
void batch_norm_no_training(NodeContext& n) { with_statistics(n, n.number_at(6)); }

// (1 - momentum) old + momentum now
Value moved_on(Value old, Value now, double momentum) {
  return old * (1.0 - momentum) + cast(now, old.dtype()) * momentum;
}

// batch_norm_functional(input, weight, bias, running_mean, running_var, training, momentum, eps)
// -> y, mean, 1 / sqrt(variance + eps), and the running statistics after it
void batch_norm_functional(NodeContext& n) {
  const double momentum = n.number_at(6), eps = n.number_at(7);
  if (!n.flag(5)) {
    with_statistics(n, eps);
    for (const size_t i : {size_t{3}, size_t{4}})
      if (n.wants(i)) n.give(i, n.value(i));
    check(!n.wants(1) && !n.wants(2), "it has no statistics of its own");
    return;
  }
  const Value x = channels_last(n, 0);
  const TensorType type = channel_type(x);
  const BatchNormResult norm =
      batch_norm(x, per_channel(n, 1, type, 1.0), per_channel(n, 2, type, 0.0), eps);
  give_channels_last(n, 0, norm.y);
  if (n.wants(1)) n.give(1, cast(norm.mean, n.result_type(1).dtype));
  if (n.wants(2)) n.give(2, cast(rsqrt(norm.variance + eps), n.result_type(2).dtype));
  if (n.wants(3)) n.give(3, moved_on(n.value(3), norm.mean, momentum));
  if (!n.wants(4)) return;
  const auto count = static_cast<double>(x.type().elements() / x.dim(-1));
  check(count > 1, "it has one value a channel");
  n.give(4, moved_on(n.value(4), norm.variance * (count / (count - 1.0)), momentum));
}

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
// save_invstd, train, eps, output_mask)
void batch_norm_backward(NodeContext& n) {
  const double eps = n.number_at(8);
  const Value dy = channels_last(n, 0), x = channels_last(n, 1);
  const TensorType type = channel_type(x);
  const Value gamma = per_channel(n, 2, type, 1.0);
  Value dx, dgamma, dbeta;
  if (n.flag(7)) {
    BatchNormGrad op;
    op.eps = eps;
    const Value inverse = cast(n.value(6), type.dtype);
    const Value variance = 1.0 / (inverse * inverse) - eps;
    Node& node = n.graph().add(
        std::make_shared<const BatchNormGrad>(op),
        {x, gamma, constant(n.graph(), type, 0.0), cast(n.value(5), type.dtype), variance, dy});
    dx = {&node, 0};
    dgamma = {&node, 1};
    dbeta = {&node, 2};
  } else {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i + 1 < x.rank(); ++i) rows.push_back(i);
    const Value inverse = rsqrt(cast(n.value(4), type.dtype) + eps);
    const Value slope = cast(dy, type.dtype),
                normal = cast(x, type.dtype) - cast(n.value(3), type.dtype);
    dx = cast(slope * (gamma * inverse), x.dtype());
    dgamma = reduce_sum(slope * (normal * inverse), rows);
    dbeta = reduce_sum(slope, rows);
  }
  if (n.wants(0)) give_channels_last(n, 0, dx);
  if (n.wants(1)) n.give(1, cast(dgamma, n.result_type(1).dtype));
  if (n.wants(2)) n.give(2, cast(dbeta, n.result_type(2).dtype));
}

// ---- layer norm ----

Value wide(Value x) { return x.dtype() == DType::kF64 ? x : cast(x, DType::kF32); }

struct Rows {
  Shape normalized;
  Value x;  ///< (rows, size)
};

Rows rows_of(const NodeContext& n, size_t i, size_t normalized_shape) {
  const std::vector<int64_t> shape = n.list(normalized_shape);
  check(!shape.empty() && std::ssize(shape) <= n.rank(i), "normalized_shape does not suit");
  const Shape tail(n.shape(i).end() - std::ssize(shape), n.shape(i).end());
  check(tail == shape, "normalized_shape does not suit");
  return {shape, reshape(n.value(i), {-1, numel(tail)})};
}

Value row(NodeContext& n, size_t i, const Rows& rows, double value) {
  const TensorType type{rows.x.dtype(), {rows.x.dim(1)}};
  if (!n.has(i)) return constant(n.graph(), type, value);
  return cast(reshape(n.value(i), type.shape), type.dtype);
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> y, mean, 1 / sqrt(variance +
// eps)
void layer_norm_of(NodeContext& n) {
  const Rows rows = rows_of(n, 0, 1);
  const double eps = n.number_at(4);
  if (n.wants(0))
    n.give(
        reshape(layer_norm(rows.x, row(n, 2, rows, 1.0), row(n, 3, rows, 0.0), eps), n.shape(0)));
  if (!n.wants(1) && !n.wants(2)) return;
  const Value x = wide(rows.x), mean = reduce_mean(x, {1}, true), centered = x - mean;
  const Value inverse = rsqrt(reduce_mean(centered * centered, {1}, true) + eps);
  for (const size_t i : {size_t{1}, size_t{2}})
    if (n.wants(i))
      n.give(
          i,
          cast(reshape(i == 1 ? mean : inverse, n.result_type(i).shape), n.result_type(i).dtype));
}

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, mask)
void layer_norm_backward(NodeContext& n) {
  const Rows rows = rows_of(n, 1, 2);
  const Value x = wide(rows.x), dy = wide(reshape(n.value(0), rows.x.shape()));
  const Shape column{x.dim(0), 1};
  const Value mean = cast(reshape(n.value(3), column), x.dtype());
  const Value inverse = cast(reshape(n.value(4), column), x.dtype());
  const Value unit = (x - mean) * inverse;
  const Value g = dy * cast(row(n, 5, rows, 1.0), x.dtype());
  if (n.wants(0)) {
    const Value dx =
        inverse * (g - reduce_mean(g, {1}, true) - unit * reduce_mean(g * unit, {1}, true));
    n.give(0, cast(reshape(dx, n.shape(1)), n.result_type(0).dtype));
  }
  const auto give_sum = [&](size_t i, Value of) {
    n.give(i, cast(reshape(reduce_sum(of, {0}), rows.normalized), n.result_type(i).dtype));
  };
  if (n.wants(1)) give_sum(1, dy * unit);
  if (n.wants(2)) give_sum(2, dy);
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> y, mean, 1 / sqrt(variance +
// eps)
void group_norm(NodeContext& n) {
  const int64_t groups = n.integer(6);
  const Value given = n.value(0);
  check(given.rank() >= 2 && groups >= 1 && given.dim(1) % groups == 0,
        "{} groups of {}",
        groups,
        to_string(given.shape()));
  const Value x = wide(reshape(given, {given.dim(0), groups, -1}));
  const Value mean = reduce_mean(x, {2}, true), centered = x - mean;
  const Value inverse = rsqrt(reduce_mean(centered * centered, {2}, true) + n.number_at(7));
  Value y = reshape(centered * inverse, given.shape());
  Shape channels(static_cast<size_t>(given.rank() - 1), 1);
  channels[0] = given.dim(1);
  if (n.has(1)) y = y * cast(reshape(n.value(1), channels), y.dtype());
  if (n.has(2)) y = y + cast(reshape(n.value(2), channels), y.dtype());
  n.give(cast(y, given.dtype()));
  for (const size_t i : {size_t{1}, size_t{2}})
    if (n.wants(i))
      n.give(
          i,
          cast(reshape(i == 1 ? mean : inverse, n.result_type(i).shape), n.result_type(i).dtype));
}

constexpr OpRow kNormOps[] = {
    {"_native_batch_norm_legit_functional.default", batch_norm_functional},
    {"_native_batch_norm_legit_no_training.default", batch_norm_no_training},
    {"native_batch_norm_backward.default", batch_norm_backward},
    {"native_group_norm.default", group_norm},
    {"native_layer_norm.default", layer_norm_of},
    {"native_layer_norm_backward.default", layer_norm_backward},
};

}  // namespace

std::span<const OpRow> norm_ops() { return kNormOps; }

}  // namespace ridge::aten
