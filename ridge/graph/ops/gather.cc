#include "ridge/graph/ops/gather.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"

namespace ridge {
namespace {

void check_indices(std::string_view op, const TensorType& indices) {
  check(kIndices.has(indices.dtype),
        "[{}] indices must be i64 or i32; got {}",
        op,
        to_string(indices));
}

}  // namespace

// ---- gather ----

std::vector<TensorType> Gather::infer(std::span<const TensorType> inputs) const {
  const TensorType &x = inputs[0], &indices = inputs[1];
  check_indices("gather", indices);
  check(axis >= 0 && axis < x.rank(),
        "[gather] axis out of range; got {} for {}",
        axis,
        to_string(x));
  Shape shape(x.shape.begin(), x.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
  return {{x.dtype, shape}};
}

std::vector<Value> Gather::vjp(const VjpContext& c) const {
  return {scatter_add(c.dout(), c.in(1), axis, c.in(0).dim(axis)), Value{}};
}

std::vector<BatchFlow> Gather::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow &x = c.flows[0], &indices = c.flows[1];
  if (x.is_none() && indices.is_none()) return {BatchFlow::none()};
  if (x.is_none() && indices.is_split()) return {BatchFlow::split(axis + indices.axis)};
  if (x.is_split() && indices.is_none() && x.axis != axis)
    return {BatchFlow::split(x.axis < axis ? x.axis : x.axis - 1 + c.inputs[1].rank())};
  return {BatchFlow::mixed("the lookup combines samples")};
}

// ---- scatter-add ----

std::vector<TensorType> ScatterAdd::infer(std::span<const TensorType> inputs) const {
  const TensorType &updates = inputs[0], &indices = inputs[1];
  check_indices("scatter_add", indices);
  const int64_t behind = axis + indices.rank();
  const bool fits =
      axis >= 0 && behind <= updates.rank() &&
      std::equal(indices.shape.begin(), indices.shape.end(), updates.shape.begin() + axis);
  check(fits,
        "[scatter_add] the indices' shape must stand at axis {} of the updates'; got {} and {}",
        axis,
        to_string(indices),
        to_string(updates));
  Shape shape(updates.shape.begin(), updates.shape.begin() + axis);
  shape.push_back(size);
  shape.insert(shape.end(), updates.shape.begin() + behind, updates.shape.end());
  const TensorType result{updates.dtype, shape};
  check(inputs.size() == 2 || inputs[2] == result,
        "[scatter_add] what is added to has another type; got {}, expected {}",
        to_string(inputs.back()),
        to_string(result));
  return {result};
}

std::vector<Value> ScatterAdd::vjp(const VjpContext& c) const {
  std::vector<Value> gradients{gather(c.dout(), c.in(1), axis), Value{}};
  if (c.node.inputs.size() == 3) gradients.push_back(c.dout());
  return gradients;
}

// Only the rows of the base that have updates must move.
Cost ScatterAdd::cost(std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs) const {
  const double updates = static_cast<double>(inputs[0].bytes());
  const double read = updates + static_cast<double>(inputs[1].bytes());
  const double written = inputs.size() == 3 ? 2 * updates : total_bytes(outputs);
  return {static_cast<double>(inputs[0].elements()), read + written};
}

std::vector<BatchFlow> ScatterAdd::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow &updates = c.flows[0], &indices = c.flows[1];
  if (c.flows.size() == 3) {
    BatchFlowContext zeros = c;
    zeros.flows = c.flows.first(2);
    zeros.inputs = c.inputs.first(2);
    const BatchFlow flow = batch_flow(zeros)[0], &base = c.flows[2];
    const bool is_alike =
        flow.is_none() ? base.is_none() : flow.is_split() && base.is_split_on(flow.axis);
    return {is_alike ? flow : BatchFlow::mixed("the scatter combines samples")};
  }
  if (updates.is_none() && indices.is_none()) return {BatchFlow::none()};
  const int64_t behind = axis + c.inputs[1].rank();
  if (updates.is_split()) {
    const bool among_indices = updates.axis >= axis && updates.axis < behind;
    // Each sample adds its own updates at its own (or the same) places: a sum over samples.
    if (among_indices && indices.is_split_on(updates.axis - axis)) return {BatchFlow::sum()};
    if (among_indices && indices.is_none() && (indices.uniform >> (updates.axis - axis) & 1u))
      return {BatchFlow::sum()};
    if (!among_indices && indices.is_none())
      return {BatchFlow::split(updates.axis < axis ? updates.axis
                                                   : updates.axis - c.inputs[1].rank() + 1)};
  }
  return {BatchFlow::mixed("the scatter combines samples")};
}

// ---- one-hot ----

std::vector<TensorType> OneHot::infer(std::span<const TensorType> inputs) const {
  Shape shape = inputs[0].shape;
  shape.push_back(depth);
  return {{to, shape}};
}

std::vector<BatchFlow> OneHot::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow& flow = c.flows[0];
  if (flow.is_none()) return {BatchFlow::none(flow.uniform & ~(1u << c.inputs[0].rank()))};
  return {flow};
}

// ---- pick ----

std::vector<TensorType> Pick::infer(std::span<const TensorType> inputs) const {
  const TensorType &x = inputs[0], &indices = inputs[1];
  check_indices("pick", indices);
  check(x.rank() >= 1 && Shape(x.shape.begin(), x.shape.end() - 1) == indices.shape,
        "[pick] each row needs one index; got {} and indices {}",
        to_string(x),
        to_string(indices));
  check(limit >= 0 && limit <= x.shape.back(),
        "[pick] limit out of range; got {} for {}",
        limit,
        to_string(x));
  return {{x.dtype, indices.shape}};
}

std::vector<Value> Pick::vjp(const VjpContext& c) const {
  Shape column = c.dout().shape();
  column.push_back(1);
  const Value hot = one_hot(c.in(1), c.in(0).dim(-1), c.dout().dtype());
  return {hot * reshape(c.dout(), column), Value{}};
}

std::vector<BatchFlow> Pick::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow flow = merge_elementwise(c);
  const int64_t last = c.inputs[0].rank() - 1;
  if (flow.is_split_on(last)) return {BatchFlow::mixed("the row runs over the batch")};
  if (flow.is_none()) return {BatchFlow::none(flow.uniform & ~(1u << last))};
  return {flow};
}

// ---- builders ----

Value gather(Value x, Value indices, int64_t axis) {
  Gather op;
  op.axis = normalize_axis(axis, x.rank(), "gather");
  return add_node(std::move(op), {x, indices});
}

Value pick(Value x, Value indices) { return add_node(Pick{}, {x, indices}); }

Value embedding(Value table, Value ids) {
  check(table.rank() == 2, "[embedding] the table must be (V, D); got {}", to_string(table.type()));
  return gather(table, ids, 0);
}

Value scatter_add(Value updates, Value indices, int64_t axis, int64_t size) {
  ScatterAdd op;
  op.axis = axis;
  op.size = size;
  return add_node(std::move(op), {updates, indices});
}

Value scatter_add_to(Value base, Value updates, Value indices, int64_t axis) {
  ScatterAdd op;
  op.axis = normalize_axis(axis, base.rank(), "scatter_add");
  op.size = base.dim(op.axis);
  return add_node(std::move(op), {updates, indices, base});
}

Value one_hot(Value indices, int64_t depth, DType to) {
  OneHot op;
  op.depth = depth;
  op.to = to;
  return add_node(std::move(op), {indices});
}

void register_gather(OpRegistry& r) {
  r.add<Gather>();
  r.add<ScatterAdd>();
  r.add<OneHot>();
  r.add<Pick>();
}

}  // namespace ridge
