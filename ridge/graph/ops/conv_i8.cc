#include "ridge/graph/ops/conv_i8.h"

#include <algorithm>
#include <array>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/windows.h"

namespace ridge {

std::vector<TensorType> Conv2dI8::infer(std::span<const TensorType> inputs) const {
  const TensorType &a = inputs[kA], &b = inputs[kB];
  check(a.rank() == 4 && b.rank() == 4,
        "[conv2d_i8] images (N,H,W,C) and weights (KH,KW,C/groups,O) are needed; got {} and {}",
        to_string(a),
        to_string(b));
  window.check_fields("conv2d_i8");
  const Shape &x = a.shape, &w = b.shape;
  check(groups >= 1 && x[3] % groups == 0 && x[3] / groups == w[2] && w[3] % groups == 0,
        "[conv2d_i8] channels do not fit the groups; got images {}, weights {}, {} groups",
        to_string(a),
        to_string(b),
        groups);
  check_inputs("conv2d_i8", inputs, kOneRow, w[3]);
  return {{to,
           {x[0],
            window.positions(0, x[1], w[0], "conv2d_i8"),
            window.positions(1, x[2], w[1], "conv2d_i8"),
            w[3]}}};
}

// A product of what the windows see, as bytes: x_zero beyond the image. Such a product has no zero
// points for each item, and so none for each group. Groups are convolved in f64, where sums are
// exact up to 2^37 products each; the plain form of that convolution sees zeros beyond the image,
// which is x_zero less x_zero.
std::vector<Value> Conv2dI8::expand(std::span<const Value> inputs) const {
  if (groups == 1) return {product(inputs)};
  const auto minus_zero = [](Value x, Value zero) {
    const Value wide = cast(x, DType::kF64);
    return wide - broadcast(cast(zero, DType::kF64), wide.shape());
  };
  Conv2d plain;
  plain.window = window;
  plain.groups = groups;
  const std::array<Value, 2> factors{minus_zero(inputs[kA], inputs[kAZero]),
                                     minus_zero(inputs[kB], inputs[kBZero])};
  const Value sum = cast(cast(plain.expand(factors)[0], DType::kI64), DType::kI32);
  return {result_of(sum, inputs)};
}

Value Conv2dI8::product(std::span<const Value> inputs) const {
  const Value x = inputs[kA], w = inputs[kB];
  std::vector<TensorType> types;
  for (const Value& value : inputs) types.push_back(value.type());
  const Shape y = infer(types)[0].shape;
  const int64_t elements = w.dim(0) * w.dim(1), depth = elements * w.dim(2);
  const bool is_pixel = elements == 1 && window.stride == std::vector<int64_t>{1, 1} &&
                        window.padding == std::vector<int64_t>{0, 0, 0, 0};
  const WindowDimension rows{window, 0, x.dim(1), w.dim(0), y[1]},
      columns{window, 1, x.dim(2), w.dim(1), y[2]};
  const Value seen =
      is_pixel
          ? x
          : gather_places(x, rows.pixels_of_windows(), columns.pixels_of_windows(), inputs[kAZero]);
  MatMulI8 op;
  op.to = to;
  op.limits = limits;
  std::vector<Value> operands(inputs.begin(), inputs.end());
  operands[kA] = reshape(seen, {-1, depth});
  operands[kB] = reshape(w, {depth, y[3]});
  return reshape(add_node(std::move(op), std::move(operands)), y);
}

Cost Conv2dI8::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  const Shape& w = inputs[kB].shape;
  return {
      2.0 * static_cast<double>(w[0] * w[1] * w[2]) * static_cast<double>(outputs[0].elements()),
      total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> Conv2dI8::batch_flow(const BatchFlowContext& c) const {
  const bool others_are_none = std::all_of(
      c.flows.begin() + 1, c.flows.end(), [](const BatchFlow& flow) { return flow.is_none(); });
  if (others_are_none && c.flows[kA].is_none()) return {BatchFlow::none()};
  if (others_are_none && c.flows[kA].is_split_on(0)) return {BatchFlow::split(0)};
  return {BatchFlow::mixed("the convolution combines samples")};
}

void Conv2dI8::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  visit_fields(v);
}

Value conv2d_i8(Value x,
                Value w,
                Value x_zero,
                Value w_zero,
                WindowFields window,
                int64_t groups,
                const ScaledTo& to) {
  Conv2dI8 op;
  op.window = std::move(window);
  op.groups = groups;
  std::vector<Value> inputs{x, w, zero_point_of(x_zero, x), zero_point_of(w_zero, w)};
  to.apply(op, inputs);
  return add_node(std::move(op), inputs);
}

void register_conv_i8(OpRegistry& r) { r.add<Conv2dI8>(); }

}  // namespace ridge
