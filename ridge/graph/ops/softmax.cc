#include "ridge/graph/ops/softmax.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

std::vector<TensorType> infer_rows(std::string_view op, std::span<const TensorType> inputs) {
  check(inputs[0].rank() >= 1,
        "[{}] at least one dimension is needed; got {}",
        op,
        to_string(inputs[0]));
  return {inputs[0]};
}

// About five operations an element: max, subtract, exp, add, divide.
Cost row_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) {
  return {5.0 * static_cast<double>(inputs[0].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> row_flow(const BatchFlowContext& c) {
  const BatchFlow flow = merge_elementwise(c);
  const int64_t last = c.inputs[0].rank() - 1;
  if (flow.is_split_on(last)) return {BatchFlow::mixed("the row runs over the batch")};
  if (flow.is_none())
    return {BatchFlow::none(flow.uniform == ~0u ? ~0u : flow.uniform & ~(1u << last))};
  return {flow};
}

}  // namespace

// ---- softmax ----

std::vector<TensorType> Softmax::infer(std::span<const TensorType> inputs) const {
  return infer_rows("softmax", inputs);
}

std::vector<Value> Softmax::vjp(const VjpContext& c) const {
  const Value y = c.out(), dy = c.dout();
  return {y * (dy - reduce_sum(dy * y, {-1}, /*keepdims=*/true))};
}

std::vector<Value> Softmax::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0];
  const Value e = exp(x - reduce_max(x, {-1}, /*keepdims=*/true));
  const Value sum = reduce_sum(e, {-1}, /*keepdims=*/true);
  return {e * (constant_like(sum, 1.0) / sum)};
}

Cost Softmax::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return row_cost(i, o);
}

std::vector<BatchFlow> Softmax::batch_flow(const BatchFlowContext& c) const { return row_flow(c); }

// ---- log-softmax ----

std::vector<TensorType> LogSoftmax::infer(std::span<const TensorType> inputs) const {
  return infer_rows("log_softmax", inputs);
}

std::vector<Value> LogSoftmax::vjp(const VjpContext& c) const {
  const Value dy = c.dout();
  return {dy - exp(c.out()) * reduce_sum(dy, {-1}, /*keepdims=*/true)};
}

std::vector<Value> LogSoftmax::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0];
  const Value shifted = x - reduce_max(x, {-1}, /*keepdims=*/true);
  return {shifted - log(reduce_sum(exp(shifted), {-1}, /*keepdims=*/true))};
}

Cost LogSoftmax::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return row_cost(i, o);
}

std::vector<BatchFlow> LogSoftmax::batch_flow(const BatchFlowContext& c) const {
  return row_flow(c);
}

// ---- cross-entropy ----

std::vector<TensorType> CrossEntropy::infer(std::span<const TensorType> inputs) const {
  const TensorType &logits = inputs[0], &targets = inputs[1];
  check(kIndices.has(targets.dtype),
        "[cross_entropy] targets must be i64 or i32; got {}",
        to_string(targets));
  check(logits.rank() >= 1 && Shape(logits.shape.begin(), logits.shape.end() - 1) == targets.shape,
        "[cross_entropy] shapes do not fit; got logits {} and targets {}",
        to_string(logits),
        to_string(targets));
  check(label_smoothing >= 0.0 && label_smoothing <= 1.0,
        "[cross_entropy] label_smoothing out of range; got {}, expected 0 to 1",
        label_smoothing);
  return {{logits.dtype, targets.shape}};
}

namespace {

Shape column_of(const Shape& rows) {
  Shape column = rows;
  column.push_back(1);
  return column;
}

Value counts(Value targets, int64_t ignore_index) {
  return ne(targets, constant_like(targets, static_cast<double>(ignore_index)));
}

}  // namespace

std::vector<Value> CrossEntropy::vjp(const VjpContext& c) const {
  const Value logits = c.in(0), targets = c.in(1);
  // An ignored target may be a class number as well: its row is masked, not looked up.
  Value hot = one_hot(targets, logits.dim(-1), logits.dtype());
  if (label_smoothing != 0.0)
    hot = hot * (1.0 - label_smoothing) + label_smoothing / static_cast<double>(logits.dim(-1));
  const Value zero = constant_like(c.dout(), 0.0);
  const Value weight = where(counts(targets, ignore_index), c.dout(), zero);
  return {(softmax(logits) - hot) * reshape(weight, column_of(weight.shape())), Value{}};
}

std::vector<Value> CrossEntropy::expand(std::span<const Value> inputs) const {
  const Value logits = inputs[0], targets = inputs[1];
  const Value max = reduce_max(logits, {-1}, /*keepdims=*/true);
  const Value shifted = logits - max;
  const Value sum = reduce_sum(exp(shifted), {-1}, /*keepdims=*/true);
  const Value normalizer = log(reshape(sum, targets.shape()));
  const Value is_counted = counts(targets, ignore_index);
  const Value zero = constant_like(normalizer, 0.0);
  // A term whose weight is 0 is left out: its logarithm may be infinite.
  Value loss;
  if (label_smoothing != 1.0) {
    const Value place = where(is_counted, targets, constant_like(targets, 0.0));
    const Value own = normalizer - (pick(logits, place) - reshape(max, targets.shape()));
    loss = label_smoothing == 0.0 ? own : own * (1.0 - label_smoothing);
  }
  if (label_smoothing != 0.0) {
    const Value all = (normalizer - reduce_mean(shifted, {-1})) * label_smoothing;
    loss = loss ? loss + all : all;
  }
  return {where(is_counted, loss, zero)};
}

Cost CrossEntropy::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return row_cost(i, o);
}

std::vector<BatchFlow> CrossEntropy::batch_flow(const BatchFlowContext& c) const {
  return row_flow(c);
}

void CrossEntropy::fields(FieldVisitor& v) {
  v.visit("ignore_index", ignore_index);
  v.visit("label_smoothing", label_smoothing);
}

// ---- builders ----

namespace {

template <typename T>
Value along_axis(Value x, int64_t axis) {
  axis = normalize_axis(axis, x.rank(), T::kTraits.name);
  std::vector<int64_t> swap(x.shape().size());
  std::iota(swap.begin(), swap.end(), int64_t{0});
  std::swap(swap[static_cast<size_t>(axis)], swap.back());
  return transpose(add_node(T{}, {transpose(x, swap)}), swap);
}

}  // namespace

Value softmax(Value x, int64_t axis) { return along_axis<Softmax>(x, axis); }
Value log_softmax(Value x, int64_t axis) { return along_axis<LogSoftmax>(x, axis); }

Value cross_entropy(Value logits, Value targets, CrossEntropyOptions options) {
  CrossEntropy op;
  op.ignore_index = options.ignore_index;
  op.label_smoothing = options.label_smoothing;
  return add_node(std::move(op), {logits, targets});
}

Value count_targets(Value targets, DType dtype, int64_t ignore_index) {
  const Value counts = ne(targets, constant_like(targets, static_cast<double>(ignore_index)));
  return reduce_sum(cast(counts, dtype));
}

void register_softmax(OpRegistry& r) {
  r.add<Softmax>();
  r.add<LogSoftmax>();
  r.add<CrossEntropy>();
}

}  // namespace ridge
