#include "ridge/graph/ops/conv_norm.h"

#include <algorithm>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {
namespace {

enum : size_t { kX, kW, kZ, kGamma, kBeta, kMean, kVariance, kDy };

// Ops of the plain form take over the fields that are theirs.
BatchNormGrad norm_part(const Conv2dNormGrad& op) {
  BatchNormGrad norm;
  norm.eps = op.eps;
  norm.activation = op.activation;
  return norm;
}

template <typename T>
T conv_part(const Conv2dNormGrad& op, std::vector<int64_t> size) {
  T conv;
  conv.window = op.window;
  conv.groups = op.groups;
  conv.size = std::move(size);
  return conv;
}

}  // namespace

std::vector<TensorType> Conv2dNormGrad::infer(std::span<const TensorType> inputs) const {
  Conv2d forward;
  forward.window = window;
  forward.groups = groups;
  const TensorType z = forward.infer(inputs.first(2))[0];
  check(inputs[kZ] == z,
        "[conv2d_norm_grad] the convolution's result has another type; got {}, expected {}",
        to_string(inputs[kZ]),
        to_string(z));
  const std::vector<TensorType> norm = norm_part(*this).infer(inputs.subspan(kZ));
  return {inputs[kX], inputs[kW], norm[1], norm[2]};
}

std::vector<Value> Conv2dNormGrad::expand(std::span<const Value> inputs) const {
  const Shape &x = inputs[kX].shape(), &w = inputs[kW].shape();
  const Value dz = add_node(
      norm_part(*this),
      {inputs[kZ], inputs[kGamma], inputs[kBeta], inputs[kMean], inputs[kVariance], inputs[kDy]});
  return {add_node(conv_part<Conv2dGradInput>(*this, {x[1], x[2]}), {dz, inputs[kW]}),
          add_node(conv_part<Conv2dGradWeight>(*this, {w[0], w[1]}), {inputs[kX], dz}),
          {dz.node, 1},
          {dz.node, 2}};
}

Cost Conv2dNormGrad::cost(std::span<const TensorType> inputs,
                          std::span<const TensorType> outputs) const {
  const double products = static_cast<double>(inputs[kW].elements() / inputs[kW].shape[3]);
  return {(4.0 * products + 12.0) * static_cast<double>(inputs[kZ].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> Conv2dNormGrad::batch_flow(const BatchFlowContext& c) const {
  const bool none =
      std::all_of(c.flows.begin(), c.flows.end(), [](const BatchFlow& f) { return f.is_none(); });
  const BatchFlow flow =
      none ? BatchFlow::none() : BatchFlow::mixed("the statistics run over the batch");
  return std::vector<BatchFlow>(4, flow);
}

void Conv2dNormGrad::fields(FieldVisitor& v) {
  window.visit(v);
  v.visit("groups", groups);
  v.visit("eps", eps);
  v.visit("activation", activation);
}

void register_conv_norm(OpRegistry& r) { r.add<Conv2dNormGrad>(); }

}  // namespace ridge
