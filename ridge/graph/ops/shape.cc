#include "ridge/graph/ops/shape.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {
namespace {

void check_length(std::string_view op,
                  std::string_view field,
                  const std::vector<int64_t>& list,
                  int64_t rank) {
  check(static_cast<int64_t>(list.size()) == rank,
        "[{}] field '{}' needs one entry a dimension; got {}, expected {}",
        op,
        field,
        list.size(),
        rank);
}

}  // namespace

// ---- copy ----

std::vector<TensorType> Copy::infer(std::span<const TensorType> inputs) const {
  return {inputs[0]};
}

std::vector<Value> Copy::vjp(const VjpContext& c) const { return {c.dout()}; }

const Node& behind_reshapes(const Node& node) {
  const Node* at = &node;
  while (at->is<Reshape>()) at = at->inputs[0].node;
  return *at;
}

Value copy(Value x) { return add_node(Copy{}, {x}); }

// ---- barrier ----

std::vector<TensorType> Barrier::infer(std::span<const TensorType> inputs) const {
  return {inputs[0]};
}

std::vector<Value> Barrier::vjp(const VjpContext& c) const { return {c.dout(), Value{}}; }

std::vector<BatchFlow> Barrier::batch_flow(const BatchFlowContext& c) const { return {c.flows[0]}; }

Value barrier(Value x, Value after) { return add_node(Barrier{}, {x, after}); }

// ---- reshape ----

std::vector<TensorType> Reshape::infer(std::span<const TensorType> inputs) const {
  const TensorType type{inputs[0].dtype, shape};
  check_type(type, "reshape");
  check(type.elements() == inputs[0].elements(),
        "[reshape] the number of elements differs; got {} to {}",
        to_string(inputs[0]),
        to_string(shape));
  return {type};
}

std::vector<Value> Reshape::vjp(const VjpContext& c) const {
  return {reshape(c.dout(), c.in(0).shape())};
}

std::vector<BatchFlow> Reshape::batch_flow(const BatchFlowContext& c) const {
  const Shape& from = c.inputs[0].shape;
  const BatchFlow& flow = c.flows[0];
  const auto before = [](const Shape& s, size_t axis) {
    return numel(Shape(s.begin(), s.begin() + static_cast<int64_t>(axis)));
  };
  if (flow.is_none()) {
    // An axis that is kept, with as many elements before it, stays as uniform as it was.
    uint32_t uniform = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      for (size_t source = 0; source < from.size(); ++source)
        if (from[source] == shape[axis] && before(from, source) == before(shape, axis))
          uniform |= (flow.uniform >> source & 1u) << axis;
    return {BatchFlow::none(flow.uniform == ~0u ? ~0u : uniform)};
  }
  // Row-major order is kept, so the batch stays the outer factor of an axis with as many elements
  // before it.
  const int64_t wanted = before(from, static_cast<size_t>(flow.axis));
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (before(shape, axis) == wanted && shape[axis] % c.batch == 0)
      return {BatchFlow::split(static_cast<int64_t>(axis))};
  return {BatchFlow::mixed("the reshape splits the batch over two dimensions")};
}

Value reshape(Value x, Shape shape) {
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const int64_t known = numel(shape);
    check(known > 0 && numel(x.shape()) % known == 0,
          "[reshape] no size fits the open dimension; got {} to {}",
          to_string(x.type()),
          to_string(shape));
    *open = numel(x.shape()) / known;
  }
  if (shape == x.shape()) return x;
  Reshape op;
  op.shape = std::move(shape);
  return add_node(std::move(op), {x});
}

// ---- transpose ----

std::vector<TensorType> Transpose::infer(std::span<const TensorType> inputs) const {
  check_length("transpose", "perm", perm, inputs[0].rank());
  std::vector<bool> seen(perm.size());
  Shape shape;
  for (int64_t axis : perm) {
    check(axis >= 0 && axis < inputs[0].rank() && !seen[static_cast<size_t>(axis)],
          "[transpose] not a permutation of 0 to {}; got {}",
          inputs[0].rank() - 1,
          to_string(perm));
    seen[static_cast<size_t>(axis)] = true;
    shape.push_back(inputs[0].shape[static_cast<size_t>(axis)]);
  }
  return {{inputs[0].dtype, shape}};
}

std::vector<Value> Transpose::vjp(const VjpContext& c) const {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return {transpose(c.dout(), inverse)};
}

std::vector<BatchFlow> Transpose::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_split())
    return {BatchFlow::split(std::find(perm.begin(), perm.end(), flow.axis) - perm.begin())};
  uint32_t uniform = 0;
  for (size_t i = 0; i < perm.size(); ++i) uniform |= (flow.uniform >> perm[i] & 1u) << i;
  return {BatchFlow::none(flow.uniform == ~0u ? ~0u : uniform)};
}

Value transpose(Value x, std::vector<int64_t> perm) {
  if (static_cast<int64_t>(perm.size()) == x.rank() && std::is_sorted(perm.begin(), perm.end()) &&
      std::adjacent_find(perm.begin(), perm.end()) == perm.end())
    return x;
  Transpose op;
  op.perm = std::move(perm);
  return add_node(std::move(op), {x});
}

Value transpose_last(Value x) {
  check(
      x.rank() >= 2, "[transpose] at least two dimensions are needed; got {}", to_string(x.type()));
  std::vector<int64_t> perm(static_cast<size_t>(x.rank()));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, perm);
}

bool swaps_last_axes(const Node& node) {
  if (!node.is<Transpose>()) return false;
  const auto& perm = node.op_as<Transpose>().perm;
  const size_t rank = perm.size();
  if (rank < 2) return false;
  for (size_t i = 0; i + 2 < rank; ++i)
    if (perm[i] != static_cast<int64_t>(i)) return false;
  return perm[rank - 2] == static_cast<int64_t>(rank - 1);
}

// ---- broadcast ----

Shape broadcast_shape(const Shape& a, const Shape& b, std::string_view who) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    // i counts from the last dimension
    const int64_t size_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t size_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    check(size_a == size_b || size_a == 1 || size_b == 1,
          "[{}] shapes do not broadcast; got {} and {}",
          who,
          to_string(a),
          to_string(b));
    result[result.size() - 1 - i] = std::max(size_a, size_b);
  }
  return result;
}

std::vector<TensorType> Broadcast::infer(std::span<const TensorType> inputs) const {
  const Shape& from = inputs[0].shape;
  const bool fits =
      from.size() <= shape.size() &&
      std::equal(from.rbegin(), from.rend(), shape.rbegin(), [](int64_t f, int64_t t) {
        return f == t || f == 1;
      });
  check(fits, "[broadcast] cannot broadcast {} to {}", to_string(inputs[0]), to_string(shape));
  return {{inputs[0].dtype, shape}};
}

std::vector<Value> Broadcast::vjp(const VjpContext& c) const {
  const Shape& from = c.in(0).shape();
  const size_t added = shape.size() - from.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (i < added || from[i - added] != shape[i]) axes.push_back(static_cast<int64_t>(i));
  const Value dx = axes.empty() ? c.dout() : reduce_sum(c.dout(), axes, /*keepdims=*/true);
  return {reshape(dx, from)};
}

std::vector<BatchFlow> Broadcast::batch_flow(const BatchFlowContext& c) const {
  const Shape& from = c.inputs[0].shape;
  const BatchFlow& flow = c.flows[0];
  const auto added = static_cast<int64_t>(shape.size() - from.size());
  if (flow.is_split()) {
    const int64_t axis = flow.axis + added;
    if (from[static_cast<size_t>(flow.axis)] != shape[static_cast<size_t>(axis)])
      return {BatchFlow::mixed("the broadcast repeats the sample")};
    return {BatchFlow::split(axis)};
  }
  uint32_t uniform = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t source = static_cast<int64_t>(i) - added;
    const bool repeated = source < 0 || from[static_cast<size_t>(source)] != shape[i];
    if (repeated || (flow.uniform >> source & 1u)) uniform |= 1u << i;
  }
  return {BatchFlow::none(flow.uniform == ~0u ? ~0u : uniform)};
}

Value broadcast(Value x, Shape shape) {
  if (shape == x.shape()) return x;
  Broadcast op;
  op.shape = std::move(shape);
  return add_node(std::move(op), {x});
}

// ---- slice ----

std::vector<TensorType> Slice::infer(std::span<const TensorType> inputs) const {
  const int64_t rank = inputs[0].rank();
  check_length("slice", "start", start, rank);
  check_length("slice", "stop", stop, rank);
  check_length("slice", "step", step, rank);
  Shape shape;
  for (size_t i = 0; i < start.size(); ++i) {
    check(start[i] >= 0 && start[i] < stop[i] && stop[i] <= inputs[0].shape[i] && step[i] >= 1,
          "[slice] empty or out of range on axis {} of {}; got start {}, stop {}, step {}",
          i,
          to_string(inputs[0]),
          start[i],
          stop[i],
          step[i]);
    shape.push_back((stop[i] - start[i] - 1) / step[i] + 1);
  }
  return {{inputs[0].dtype, shape}};
}

std::vector<Value> Slice::vjp(const VjpContext& c) const {
  const Shape& from = c.in(0).shape();
  std::vector<int64_t> high, interior;
  for (size_t i = 0; i < start.size(); ++i) {
    const int64_t last = start[i] + (c.out().shape()[i] - 1) * step[i];
    high.push_back(from[i] - 1 - last);
    interior.push_back(step[i] - 1);
  }
  return {pad(c.dout(), start, high, interior, 0.0)};
}

std::vector<BatchFlow> Slice::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_split()) {
    const auto axis = static_cast<size_t>(flow.axis);
    if (c.inputs[0].shape[axis] != c.outputs[0].shape[axis])
      return {BatchFlow::mixed("the slice takes some of the samples")};
  }
  return {flow};
}

void Slice::fields(FieldVisitor& v) {
  v.visit("start", start);
  v.visit("stop", stop);
  v.visit("step", step);
}

Value slice(Value x,
            std::vector<int64_t> start,
            std::vector<int64_t> stop,
            std::vector<int64_t> step) {
  const bool whole = std::all_of(start.begin(), start.end(), [](int64_t s) { return s == 0; }) &&
                     std::all_of(step.begin(), step.end(), [](int64_t s) { return s == 1; });
  if (whole && stop == x.shape() && start.size() == stop.size() && step.size() == stop.size())
    return x;
  Slice op;
  op.start = std::move(start);
  op.stop = std::move(stop);
  op.step = std::move(step);
  return add_node(std::move(op), {x});
}

Value slice(Value x, int64_t axis, int64_t start, int64_t stop, int64_t step) {
  const auto a = static_cast<size_t>(normalize_axis(axis, x.rank(), "slice"));
  const int64_t size = x.shape()[a];
  std::vector<int64_t> starts(x.shape().size(), 0), stops = x.shape(), steps(x.shape().size(), 1);
  starts[a] = start < 0 ? start + size : start;
  stops[a] = stop < 0 ? stop + size : stop;
  steps[a] = step;
  return slice(x, starts, stops, steps);
}

// ---- pad ----

std::vector<TensorType> Pad::infer(std::span<const TensorType> inputs) const {
  const int64_t rank = inputs[0].rank();
  check_length("pad", "low", low, rank);
  check_length("pad", "high", high, rank);
  check_length("pad", "interior", interior, rank);
  Shape shape;
  for (size_t i = 0; i < low.size(); ++i) {
    check(low[i] >= 0 && high[i] >= 0 && interior[i] >= 0,
          "[pad] negative padding on axis {}; got low {}, high {}, interior {}",
          i,
          low[i],
          high[i],
          interior[i]);
    int64_t size = 0;
    check(!__builtin_mul_overflow(inputs[0].shape[i] - 1, interior[i] + 1, &size) &&
              !__builtin_add_overflow(size, low[i] + high[i] + 1, &size),
          "[pad] padding too large on axis {}",
          i);
    shape.push_back(size);
  }
  return {{inputs[0].dtype, shape}};
}

std::vector<Value> Pad::vjp(const VjpContext& c) const {
  std::vector<int64_t> stop, step;
  for (size_t i = 0; i < low.size(); ++i) {
    step.push_back(interior[i] + 1);
    stop.push_back(low[i] + (c.in(0).shape()[i] - 1) * step[i] + 1);
  }
  return {slice(c.dout(), low, stop, step)};
}

std::vector<BatchFlow> Pad::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_split()) {
    const auto axis = static_cast<size_t>(flow.axis);
    if (c.inputs[0].shape[axis] != c.outputs[0].shape[axis])
      return {BatchFlow::mixed("the pad adds samples")};
    return {flow};
  }
  uint32_t uniform = 0;
  for (size_t i = 0; i < low.size(); ++i)
    if (c.inputs[0].shape[i] == c.outputs[0].shape[i]) uniform |= flow.uniform & (1u << i);
  return {BatchFlow::none(uniform)};
}

void Pad::fields(FieldVisitor& v) {
  v.visit("low", low);
  v.visit("high", high);
  v.visit("interior", interior);
  v.visit("value", value);
}

Value pad(Value x, std::vector<int64_t> low, std::vector<int64_t> high, double value) {
  return pad(x, std::move(low), std::move(high), std::vector<int64_t>(x.shape().size(), 0), value);
}

Value pad(Value x,
          std::vector<int64_t> low,
          std::vector<int64_t> high,
          std::vector<int64_t> interior,
          double value) {
  const auto is_zero = [](const std::vector<int64_t>& list) {
    return std::all_of(list.begin(), list.end(), [](int64_t v) { return v == 0; });
  };
  if (is_zero(low) && is_zero(high) && is_zero(interior)) return x;
  Pad op;
  op.low = std::move(low);
  op.high = std::move(high);
  op.interior = std::move(interior);
  op.value = value;
  return add_node(std::move(op), {x});
}

// ---- concat ----

std::vector<TensorType> Concat::infer(std::span<const TensorType> inputs) const {
  check(axis >= 0 && axis < inputs[0].rank(),
        "[concat] axis out of range; got {} for {}",
        axis,
        to_string(inputs[0]));
  const auto a = static_cast<size_t>(axis);
  TensorType result = inputs[0];
  for (const TensorType& type : inputs.subspan(1)) {
    TensorType expected = inputs[0];
    if (type.rank() == expected.rank()) expected.shape[a] = type.shape[a];
    check(type == expected,
          "[concat] inputs differ outside axis {}; got {} and {}",
          axis,
          to_string(inputs[0]),
          to_string(type));
    result.shape[a] += type.shape[a];
    check_type(result, "concat");
  }
  return {result};
}

std::vector<Value> Concat::vjp(const VjpContext& c) const {
  std::vector<Value> gradients;
  int64_t begin = 0;
  for (const Value& input : c.node.inputs) {
    const int64_t end = begin + input.dim(axis);
    gradients.push_back(slice(c.dout(), axis, begin, end));
    begin = end;
  }
  return gradients;
}

std::vector<BatchFlow> Concat::batch_flow(const BatchFlowContext& c) const {
  // Elsewhere than on `axis`, concatenation treats all inputs alike, as an elementwise op does.
  const BatchFlow merged = merge_elementwise(c);
  if (merged.is_split_on(axis) && c.flows.size() > 1)
    return {BatchFlow::mixed("the concatenation runs along the batch")};
  if (merged.is_none()) return {BatchFlow::none(merged.uniform & ~(1u << axis))};
  return {merged};
}

Value concat(std::vector<Value> xs, int64_t axis) {
  check(!xs.empty(), "[concat] there are no inputs");
  Concat op;
  op.axis = normalize_axis(axis, xs[0].rank(), "concat");
  return add_node(std::move(op), std::move(xs));
}

// ---- mask-columns ----

std::vector<TensorType> MaskColumns::infer(std::span<const TensorType> inputs) const {
  const TensorType& x = inputs[0];
  check(x.rank() >= 1 && limit >= 1 && limit <= x.shape.back(),
        "[mask_columns] limit out of range; got {} for {}",
        limit,
        to_string(x));
  return {x};
}

std::vector<Value> MaskColumns::vjp(const VjpContext& c) const {
  return {mask_columns(c.dout(), limit, 0.0)};
}

std::vector<Value> MaskColumns::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0];
  std::vector<int64_t> low(x.shape().size()), high = low;
  high.back() = x.dim(-1) - limit;
  return {pad(slice(x, -1, 0, limit), low, high, value)};
}

std::vector<BatchFlow> MaskColumns::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  const int64_t last = c.inputs[0].rank() - 1;
  if (flow.is_split_on(last)) return {BatchFlow::mixed("the mask tells samples apart")};
  if (flow.is_none()) return {BatchFlow::none(flow.uniform & ~(1u << last))};
  return {flow};
}

void MaskColumns::fields(FieldVisitor& v) {
  v.visit("limit", limit);
  v.visit("value", value);
}

Value mask_columns(Value x, int64_t limit, double value) {
  MaskColumns op;
  op.limit = limit;
  op.value = value;
  return add_node(std::move(op), {x});
}

void register_shape(OpRegistry& r) {
  r.add<Copy>();
  r.add<Barrier>();
  r.add<Reshape>();
  r.add<Transpose>();
  r.add<Broadcast>();
  r.add<Slice>();
  r.add<Pad>();
  r.add<MaskColumns>();
  r.add<Concat>();
}

}  // namespace ridge
