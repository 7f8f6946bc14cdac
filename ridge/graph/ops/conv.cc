#include "ridge/graph/ops/conv.h"

#include <algorithm>
#include <type_traits>

#include "ridge/graph/ops/registry.h"

namespace ridge {

void WindowFields::visit(FieldVisitor& v) {
  v.visit("stride", stride);
  v.visit("padding", padding);
  v.visit("dilation", dilation);
}

void WindowFields::check_fields(std::string_view op) const {
  // Far above any real window, and small enough that products of two stay in 64 bits.
  constexpr int64_t kLimit = 1 << 20;
  const auto in_range = [](const std::vector<int64_t>& list, size_t length, int64_t least) {
    return list.size() == length && std::all_of(list.begin(), list.end(), [&](int64_t v) {
             return v >= least && v <= kLimit;
           });
  };
  check(in_range(stride, 2, 1), "[{}] stride must be two sizes; got {}", op, to_string(stride));
  check(in_range(padding, 4, 0),
        "[{}] padding must be four sizes (top, left, bottom, right); got {}",
        op,
        to_string(padding));
  check(
      in_range(dilation, 2, 1), "[{}] dilation must be two sizes; got {}", op, to_string(dilation));
}

int64_t WindowFields::positions(int dimension,
                                int64_t length,
                                int64_t size,
                                std::string_view op) const {
  const auto d = static_cast<size_t>(dimension);
  check(size >= 1 && size <= 1 << 20, "[{}] window size out of range; got {}", op, size);
  const int64_t padded = length + padding[d] + padding[d + 2];
  const int64_t reach = dilation[d] * (size - 1) + 1;
  check(padded >= reach,
        "[{}] the window does not fit; got {} padded elements, expected at least {}",
        op,
        padded,
        reach);
  return (padded - reach) / stride[d] + 1;
}

namespace {

// The three roles in a convolution, whichever of them is being computed.
struct ConvolutionTypes {
  const TensorType &x, &w, &y;
};

// Checks that the three types belong together under the fields.
void check_convolution(std::string_view op,
                       const WindowFields& window,
                       int64_t groups,
                       const ConvolutionTypes& t) {
  check(t.x.rank() == 4 && t.w.rank() == 4 && t.y.rank() == 4,
        "[{}] images (N,H,W,C) and weights (KH,KW,C/groups,O) are needed; got {}, {} and {}",
        op,
        to_string(t.x),
        to_string(t.w),
        to_string(t.y));
  const Shape &x = t.x.shape, &w = t.w.shape, &y = t.y.shape;
  check(t.x.dtype == t.w.dtype && t.x.dtype == t.y.dtype, "[{}] dtypes differ", op);
  check(groups >= 1 && x[3] % groups == 0 && x[3] / groups == w[2] && w[3] % groups == 0,
        "[{}] channels do not fit the groups; got images {}, weights {}, {} groups",
        op,
        to_string(t.x),
        to_string(t.w),
        groups);
  const Shape expected{
      x[0], window.positions(0, x[1], w[0], op), window.positions(1, x[2], w[1], op), w[3]};
  check(y == expected,
        "[{}] the output's shape does not fit; got {}, expected {}",
        op,
        to_string(y),
        to_string(expected));
}

void check_rank4(std::string_view op, std::span<const TensorType> inputs) {
  check(inputs[0].rank() == 4 && inputs[1].rank() == 4,
        "[{}] four dimensions are needed; got {} and {}",
        op,
        to_string(inputs[0]),
        to_string(inputs[1]));
}

void check_tf32(std::string_view op, bool tf32, DType dtype) {
  check(!tf32 || dtype == DType::kF32, "[{}] TF32 is for f32; got {}", op, name_of(dtype));
}

void check_size_field(std::string_view op, const std::vector<int64_t>& size) {
  check(size.size() == 2 && size[0] >= 1 && size[1] >= 1 && size[0] < 1 << 30 && size[1] < 1 << 30,
        "[{}] size must be two sizes; got {}",
        op,
        to_string(size));
}

// An op of the same convolution.
template <typename T>
T part_of(const auto& convolution) {
  T op;
  op.window = convolution.window;
  op.groups = convolution.groups;
  op.tf32 = convolution.tf32;
  return op;
}

Value forward(const auto& convolution, Value x, Value w) {
  return add_node(part_of<Conv2d>(convolution), {x, w});
}

Value grad_input(const auto& convolution, Value dy, Value w, const Shape& x) {
  auto op = part_of<Conv2dGradInput>(convolution);
  op.size = {x[1], x[2]};
  return add_node(std::move(op), {dy, w});
}

Value grad_weight(const auto& convolution, Value x, Value dy, const Shape& w) {
  auto op = part_of<Conv2dGradWeight>(convolution);
  op.size = {w[0], w[1]};
  return add_node(std::move(op), {x, dy});
}

}  // namespace

template <typename Self>
std::vector<Value> Convolution<Self>::vjp(const VjpContext& c) const {
  const Value a = c.in(0), b = c.in(1), d = c.dout();
  if constexpr (std::is_same_v<Self, Conv2d>)
    return {grad_input(*this, d, b, a.shape()), grad_weight(*this, a, d, b.shape())};
  else if constexpr (std::is_same_v<Self, Conv2dGradInput>)
    return {forward(*this, d, b), grad_weight(*this, d, a, b.shape())};
  else
    return {grad_input(*this, b, d, a.shape()), forward(*this, a, d)};
}

template <typename Self>
Cost Convolution<Self>::cost(std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs) const {
  // Every output pixel and channel sums KH * KW * C / groups products, in all three directions.
  constexpr bool kForward = std::is_same_v<Self, Conv2d>;
  constexpr bool kGradInput = std::is_same_v<Self, Conv2dGradInput>;
  const TensorType& w = kForward || kGradInput ? inputs[1] : outputs[0];
  const TensorType& y = kForward ? outputs[0] : kGradInput ? inputs[0] : inputs[1];
  const double products = static_cast<double>(w.elements() / w.shape[3]);
  return {2.0 * products * static_cast<double>(y.elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

template class Convolution<Conv2d>;
template class Convolution<Conv2dGradInput>;
template class Convolution<Conv2dGradWeight>;

std::vector<TensorType> Conv2d::infer(std::span<const TensorType> inputs) const {
  check_rank4("conv2d", inputs);
  check_tf32("conv2d", tf32, inputs[0].dtype);
  window.check_fields("conv2d");
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  const TensorType y{inputs[0].dtype,
                     {x[0],
                      window.positions(0, x[1], w[0], "conv2d"),
                      window.positions(1, x[2], w[1], "conv2d"),
                      w[3]}};
  check_convolution("conv2d", window, groups, {inputs[0], inputs[1], y});
  return {y};
}

std::vector<TensorType> Conv2dGradInput::infer(std::span<const TensorType> inputs) const {
  check_rank4("conv2d_grad_input", inputs);
  check_tf32("conv2d_grad_input", tf32, inputs[0].dtype);
  window.check_fields("conv2d_grad_input");
  check_size_field("conv2d_grad_input", size);
  int64_t channels = 0;
  check(groups >= 1 && !__builtin_mul_overflow(inputs[1].shape[2], groups, &channels),
        "[conv2d_grad_input] groups out of range; got {}",
        groups);
  const TensorType x{inputs[0].dtype, {inputs[0].shape[0], size[0], size[1], channels}};
  check_type(x, "conv2d_grad_input");
  check_convolution("conv2d_grad_input", window, groups, {x, inputs[1], inputs[0]});
  return {x};
}

std::vector<TensorType> Conv2dGradWeight::infer(std::span<const TensorType> inputs) const {
  check_rank4("conv2d_grad_weight", inputs);
  check_tf32("conv2d_grad_weight", tf32, inputs[0].dtype);
  window.check_fields("conv2d_grad_weight");
  check_size_field("conv2d_grad_weight", size);
  const int64_t channels = inputs[0].shape[3];
  check(groups >= 1 && channels % groups == 0,
        "[conv2d_grad_weight] {} groups do not divide {} channels",
        groups,
        channels);
  const TensorType w{inputs[0].dtype, {size[0], size[1], channels / groups, inputs[1].shape[3]}};
  check_convolution("conv2d_grad_weight", window, groups, {inputs[0], w, inputs[1]});
  return {w};
}

namespace {

BatchFlow image_flow(const BatchFlowContext& c) {
  if (c.flows[0].is_none() && c.flows[1].is_none()) return BatchFlow::none();
  if (c.flows[0].is_split_on(0) && c.flows[1].is_none()) return BatchFlow::split(0);
  return BatchFlow::mixed("the convolution combines samples");
}

}  // namespace

std::vector<BatchFlow> Conv2d::batch_flow(const BatchFlowContext& c) const {
  return {image_flow(c)};
}

std::vector<BatchFlow> Conv2dGradInput::batch_flow(const BatchFlowContext& c) const {
  return {image_flow(c)};
}

std::vector<BatchFlow> Conv2dGradWeight::batch_flow(const BatchFlowContext& c) const {
  if (c.flows[0].is_none() && c.flows[1].is_none()) return {BatchFlow::none()};
  if (c.flows[0].is_split_on(0) && c.flows[1].is_split_on(0)) return {BatchFlow::sum()};
  return {BatchFlow::mixed("the convolution combines samples")};
}

void Conv2d::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("tf32", tf32);
}

void Conv2dGradInput::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("tf32", tf32);
  v.visit("size", size);
}

void Conv2dGradWeight::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("tf32", tf32);
  v.visit("size", size);
}

Value conv2d(Value x, Value w, WindowFields window, int64_t groups) {
  Conv2d op;
  op.window = std::move(window);
  op.groups = groups;
  return add_node(std::move(op), {x, w});
}

void register_conv(OpRegistry& r) {
  r.add<Conv2d>();
  r.add<Conv2dGradInput>();
  r.add<Conv2dGradWeight>();
}

}  // namespace ridge
