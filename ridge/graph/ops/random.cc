#include "ridge/graph/ops/random.h"

#include "ridge/graph/ops/registry.h"

namespace ridge {

std::vector<TensorType> Dropout::infer(std::span<const TensorType> inputs) const {
  const TensorType rng{DType::kI64, {3}};
  check(inputs[1] == rng,
        "[dropout] the random state must be {{seed, step, first sample}}; got {}, expected {}",
        to_string(inputs[1]),
        to_string(rng));
  check(p >= 0.0 && p < 1.0, "[dropout] p out of range; got {}, expected 0 to below 1", p);
  check(!key.empty(), "[dropout] key is empty");
  check(samples >= 1 &&
            (samples == 1 || (inputs[0].rank() >= 1 && inputs[0].shape[0] % samples == 0)),
        "[dropout] samples must divide the first axis; got {} for {}",
        samples,
        to_string(inputs[0]));
  return {inputs[0]};
}

std::vector<Value> Dropout::vjp(const VjpContext& c) const {
  return {add_node(Dropout(*this), {c.dout(), c.in(1)}), Value{}};
}

std::vector<BatchFlow> Dropout::batch_flow(const BatchFlowContext& c) const {
  const BatchFlow &x = c.flows[0], &rng = c.flows[1];
  if (!rng.is_none()) return {BatchFlow::mixed("the random state differs from sample to sample")};
  if (x.is_none()) return {BatchFlow::none()};
  if (x.axis != 0 || samples != c.batch)
    return {
        BatchFlow::mixed("the dropout mask does not follow the batch: the batch must be the "
                         "first axis, and `samples` its size")};
  return {x};
}

void Dropout::fields(FieldVisitor& v) {
  v.visit("p", p);
  v.visit("key", key);
  v.visit("samples", samples);
}

Value dropout(Value x, Value rng, double p, int64_t samples) {
  Dropout op;
  op.p = p;
  op.key = x.graph().next_site("dropout").name;
  op.samples = samples;
  return add_node(std::move(op), {x, rng});
}

void register_random(OpRegistry& r) { r.add<Dropout>(); }

}  // namespace ridge
