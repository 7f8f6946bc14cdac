#include "ridge/graph/ops/batch_norm.h"

#include <numeric>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

constexpr const char* kActivations[] = {"none", "relu", "relu6"};

// x is the first input; inputs [1, channels_end) go with its last axis.
void check_batch_norm(std::string_view op,
                      std::span<const TensorType> inputs,
                      size_t channels_end,
                      double eps) {
  check(inputs[0].rank() >= 2,
        "[{}] at least two dimensions are needed; got {}",
        op,
        to_string(inputs[0]));
  const bool may_be_wide = size_of(inputs[0].dtype) == 2 && inputs[1].dtype == DType::kF32;
  const TensorType channel{may_be_wide ? DType::kF32 : inputs[0].dtype, {inputs[0].shape.back()}};
  for (const TensorType& type : inputs.subspan(1, channels_end - 1))
    check(type == channel,
          "[{}] scale, shift and statistics go with the last axis; got {}, expected {}",
          op,
          to_string(type),
          to_string(channel));
  check(eps >= 0.0 && eps < 1.0, "[{}] eps out of range; got {}, expected 0 to 1", op, eps);
}

// All axes but the last.
std::vector<int64_t> sample_axes(Value x) {
  std::vector<int64_t> axes(x.shape().size() - 1);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return axes;
}

double samples_of(Value x) { return static_cast<double>(numel(x.shape()) / x.dim(-1)); }

// `full` outputs of x's shape, then `vectors` of its channels.
std::vector<BatchFlow> channel_flow(const BatchFlowContext& c, size_t full, size_t vectors) {
  const int64_t last = c.inputs[0].rank() - 1;
  bool none = true, split = true;
  for (size_t i = 0; i < c.flows.size(); ++i) {
    none = none && c.flows[i].is_none();
    split = split && c.flows[i].is_split_on(c.inputs[i].rank() == 1 ? 0 : last);
  }
  std::vector<BatchFlow> flows(full + vectors, BatchFlow::none());
  if (none) return flows;
  // Channels that are samples are normalised each on its own.
  const BatchFlow mixed = BatchFlow::mixed("the statistics run over the batch");
  for (size_t i = 0; i < flows.size(); ++i)
    flows[i] = split ? BatchFlow::split(i < full ? last : 0) : mixed;
  return flows;
}

// x in the dtype of its channels' parameters, in which all is computed.
Value wide(Value x, Value channels) { return cast(x, channels.dtype()); }

// dy where z lies between the kinks, else zero.
Value let_through(Value dy, Value z, NormActivation activation) {
  if (activation == NormActivation::kNone) return dy;
  const Value zero = constant_like(dy, 0.0);
  const Value rising = where(gt(z, zero), dy, zero);
  if (activation == NormActivation::kRelu) return rising;
  return where(lt(z, constant_like(z, 6.0)), rising, zero);
}

}  // namespace

NormActivation norm_activation(const std::string& name, std::string_view op) {
  for (size_t i = 0; i < std::size(kActivations); ++i)
    if (name == kActivations[i]) return static_cast<NormActivation>(i);
  throw UserError(fmt::format("[{}] activation must be none, relu or relu6; got '{}'", op, name));
}

Value activated(Value x, NormActivation activation) {
  if (activation == NormActivation::kRelu) return relu(x);
  return activation == NormActivation::kRelu6 ? relu6(x) : x;
}

// ---- forward ----

std::vector<TensorType> BatchNorm::infer(std::span<const TensorType> inputs) const {
  check_batch_norm("batch_norm", inputs, 3, eps);
  norm_activation(activation, "batch_norm");
  return {inputs[0], inputs[1], inputs[1]};
}

std::vector<Value> BatchNorm::expand(std::span<const Value> inputs) const {
  const Value x = wide(inputs[0], inputs[1]);
  const Value mean = reduce_mean(x, sample_axes(x));
  const Value centered = x - mean;
  const Value variance = reduce_mean(centered * centered, sample_axes(x));
  const Value z = centered * rsqrt(variance + eps) * inputs[1] + inputs[2];
  const Value y = activated(z, norm_activation(activation, "batch_norm"));
  return {cast(y, inputs[0].dtype()), mean, variance};
}

std::vector<Value> BatchNorm::vjp(const VjpContext& c) const {
  const Value x = c.in(0);
  Value dx, dgamma, dbeta;
  if (c.dout(0)) {
    BatchNormGrad op;
    op.eps = eps;
    op.activation = activation;
    dx = add_node(std::move(op), {x, c.in(1), c.in(2), c.out(1), c.out(2), c.dout(0)});
    dgamma = {dx.node, 1};
    dbeta = {dx.node, 2};
  }
  const auto add_to_dx = [&](Value term) {
    term = cast(term, x.dtype());
    dx = dx ? dx + term : term + constant_like(x, 0.0);
  };
  if (c.dout(1)) add_to_dx(c.dout(1) * (1.0 / samples_of(x)));
  if (c.dout(2)) add_to_dx((wide(x, c.out(1)) - c.out(1)) * (c.dout(2) * (2.0 / samples_of(x))));
  return {dx, dgamma, dbeta};
}

Cost BatchNorm::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return {8.0 * static_cast<double>(i[0].elements()), total_bytes(i) + total_bytes(o)};
}

std::vector<BatchFlow> BatchNorm::batch_flow(const BatchFlowContext& c) const {
  return channel_flow(c, 1, 2);
}

void BatchNorm::fields(FieldVisitor& v) {
  v.visit("eps", eps);
  v.visit("activation", activation);
}

// ---- gradient ----

std::vector<TensorType> BatchNormGrad::infer(std::span<const TensorType> inputs) const {
  check_batch_norm("batch_norm_grad", inputs, 5, eps);
  check(inputs[5] == inputs[0],
        "[batch_norm_grad] dy must have the type of x; got {}, expected {}",
        to_string(inputs[5]),
        to_string(inputs[0]));
  norm_activation(activation, "batch_norm_grad");
  return {inputs[0], inputs[1], inputs[1]};
}

std::vector<Value> BatchNormGrad::expand(std::span<const Value> inputs) const {
  const Value x = wide(inputs[0], inputs[1]), gamma = inputs[1];
  const Value deviation = rsqrt(inputs[4] + eps);
  const Value normal = (x - inputs[3]) * deviation;
  const Value dz = let_through(wide(inputs[5], gamma),
                               normal * gamma + inputs[2],
                               norm_activation(activation, "batch_norm_grad"));
  const Value dbeta = reduce_sum(dz, sample_axes(x));
  const Value dgamma = reduce_sum(dz * normal, sample_axes(x));
  const double share = 1.0 / samples_of(x);
  const Value dx = (dz - dbeta * share - normal * (dgamma * share)) * (gamma * deviation);
  return {cast(dx, inputs[0].dtype()), dgamma, dbeta};
}

Cost BatchNormGrad::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return {12.0 * static_cast<double>(i[0].elements()), total_bytes(i) + total_bytes(o)};
}

std::vector<BatchFlow> BatchNormGrad::batch_flow(const BatchFlowContext& c) const {
  return channel_flow(c, 1, 2);
}

void BatchNormGrad::fields(FieldVisitor& v) {
  v.visit("eps", eps);
  v.visit("activation", activation);
}

// ---- statistics alone ----

std::vector<TensorType> BatchNormStats::infer(std::span<const TensorType> inputs) const {
  check_batch_norm("batch_norm_stats", inputs, 3, eps);
  return {inputs[1], inputs[1], inputs[1], inputs[1]};
}

std::vector<Value> BatchNormStats::expand(std::span<const Value> inputs) const {
  const Value x = wide(inputs[0], inputs[1]);
  const Value mean = reduce_mean(x, sample_axes(x));
  const Value centered = x - mean;
  const Value variance = reduce_mean(centered * centered, sample_axes(x));
  return {mean, variance, rsqrt(variance + eps) * inputs[1], inputs[2]};
}

Cost BatchNormStats::cost(std::span<const TensorType> i, std::span<const TensorType> o) const {
  return {4.0 * static_cast<double>(i[0].elements()), total_bytes(i) + total_bytes(o)};
}

std::vector<BatchFlow> BatchNormStats::batch_flow(const BatchFlowContext& c) const {
  return channel_flow(c, 0, 4);
}

void BatchNormStats::fields(FieldVisitor& v) { v.visit("eps", eps); }

// ---- builders ----

BatchNormResult batch_norm(
    Value x, Value gamma, Value beta, double eps, NormActivation activation) {
  BatchNorm op;
  op.eps = eps;
  op.activation = kActivations[static_cast<size_t>(activation)];
  const Value y = add_node(std::move(op), {x, gamma, beta});
  return {y, {y.node, 1}, {y.node, 2}};
}

Value normalized(Value x, std::span<const Value> norm, NormActivation activation) {
  return activated((x - norm[0]) * norm[1] + norm[2], activation);
}

void check_normalized(std::string_view op, const TensorType& x, std::span<const TensorType> norm) {
  const TensorType channel{x.dtype, {x.shape.back()}};
  for (const TensorType& type : norm)
    check(type == channel,
          "[{}] mean, scale and shift go with the last axis of x; got {}, expected {}",
          op,
          to_string(type),
          to_string(channel));
}

Value batch_norm_inference(
    Value x, Value gamma, Value beta, Value mean, Value variance, double eps) {
  const Value scale = gamma * rsqrt(variance + eps);
  return (x - mean) * scale + beta;
}

void register_batch_norm(OpRegistry& r) {
  r.add<BatchNorm>();
  r.add<BatchNormGrad>();
  r.add<BatchNormStats>();
}

}  // namespace ridge
