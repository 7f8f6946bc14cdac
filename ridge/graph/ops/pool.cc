#include "ridge/graph/ops/pool.h"

#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {

void PoolFields::visit(FieldVisitor& v) {
  v.visit("kernel", kernel);
  window.visit(v);
}

TensorType PoolFields::output(const TensorType& x, std::string_view op) const {
  check(x.rank() == 4, "[{}] images (N,H,W,C) are needed; got {}", op, to_string(x));
  check(kernel.size() == 2, "[{}] kernel must be two sizes; got {}", op, to_string(kernel));
  window.check_fields(op);
  check(window.dilation[0] == 1 && window.dilation[1] == 1,
        "[{}] dilation must be 1; got {}",
        op,
        to_string(window.dilation));
  for (size_t i = 0; i < 4; ++i)
    check(window.padding[i] < kernel[i % 2],
          "[{}] padding must be smaller than the kernel; got {} and {}",
          op,
          to_string(window.padding),
          to_string(kernel));
  return {x.dtype,
          {x.shape[0],
           window.positions(0, x.shape[1], kernel[0], op),
           window.positions(1, x.shape[2], kernel[1], op),
           x.shape[3]}};
}

namespace {

void check_dy(std::string_view op, const TensorType& dy, const TensorType& expected) {
  check(dy == expected,
        "[{}] the gradient's type does not fit; got {}, expected {}",
        op,
        to_string(dy),
        to_string(expected));
}

// Windows see height and width only: a batch may lie along N or C.
std::vector<BatchFlow> pool_flow(const BatchFlowContext& c) {
  const BatchFlow flow = merge_elementwise(c);
  if (flow.is_split_on(1) || flow.is_split_on(2))
    return {BatchFlow::mixed("the pooling window runs over the batch")};
  return {flow.is_none() ? BatchFlow::none() : flow};
}

}  // namespace

std::vector<TensorType> MaxPool2d::infer(std::span<const TensorType> inputs) const {
  return {pool.output(inputs[0], "max_pool2d")};
}

std::vector<Value> MaxPool2d::vjp(const VjpContext& c) const {
  MaxPool2dGrad op;
  op.pool = pool;
  return {add_node(std::move(op), {c.in(0), c.dout()})};
}

std::vector<BatchFlow> MaxPool2d::batch_flow(const BatchFlowContext& c) const {
  return pool_flow(c);
}

std::vector<TensorType> MaxPool2dGrad::infer(std::span<const TensorType> inputs) const {
  check_dy("max_pool2d_grad", inputs[1], pool.output(inputs[0], "max_pool2d_grad"));
  return {inputs[0]};
}

std::vector<BatchFlow> MaxPool2dGrad::batch_flow(const BatchFlowContext& c) const {
  return pool_flow(c);
}

std::vector<TensorType> AvgPool2d::infer(std::span<const TensorType> inputs) const {
  return {pool.output(inputs[0], "avg_pool2d")};
}

std::vector<Value> AvgPool2d::vjp(const VjpContext& c) const {
  AvgPool2dGrad op;
  op.pool = pool;
  op.count_padding = count_padding;
  op.size = {c.in(0).dim(1), c.in(0).dim(2)};
  return {add_node(std::move(op), {c.dout()})};
}

std::vector<BatchFlow> AvgPool2d::batch_flow(const BatchFlowContext& c) const {
  return pool_flow(c);
}

void AvgPool2d::fields(FieldVisitor& v) {
  pool.visit(v);
  v.visit("count_padding", count_padding);
}

std::vector<TensorType> AvgPool2dGrad::infer(std::span<const TensorType> inputs) const {
  check(inputs[0].rank() == 4,
        "[avg_pool2d_grad] images (N,H,W,C) are needed; got {}",
        to_string(inputs[0]));
  check(size.size() == 2, "[avg_pool2d_grad] size must be two sizes; got {}", to_string(size));
  const TensorType x{inputs[0].dtype, {inputs[0].shape[0], size[0], size[1], inputs[0].shape[3]}};
  check_type(x, "avg_pool2d_grad");
  check_dy("avg_pool2d_grad", inputs[0], pool.output(x, "avg_pool2d_grad"));
  return {x};
}

std::vector<Value> AvgPool2dGrad::vjp(const VjpContext& c) const {
  return {avg_pool2d(c.dout(), pool, count_padding)};
}

std::vector<BatchFlow> AvgPool2dGrad::batch_flow(const BatchFlowContext& c) const {
  return pool_flow(c);
}

void AvgPool2dGrad::fields(FieldVisitor& v) {
  pool.visit(v);
  v.visit("count_padding", count_padding);
  v.visit("size", size);
}

Value max_pool2d(Value x, PoolFields pool) {
  MaxPool2d op;
  op.pool = std::move(pool);
  return add_node(std::move(op), {x});
}

Value avg_pool2d(Value x, PoolFields pool, bool count_padding) {
  AvgPool2d op;
  op.pool = std::move(pool);
  op.count_padding = count_padding;
  return add_node(std::move(op), {x});
}

Value global_avg_pool(Value x) { return reduce_mean(x, {1, 2}); }

void register_pool(OpRegistry& r) {
  r.add<MaxPool2d>();
  r.add<MaxPool2dGrad>();
  r.add<AvgPool2d>();
  r.add<AvgPool2dGrad>();
}

}  // namespace ridge
