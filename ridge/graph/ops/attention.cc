#include "ridge/graph/ops/attention.h"

#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// Below any score that counts, yet finite in the dtype, so that a row without an allowed key stays
// free of NaN.
double lowest(DType dtype) { return dtype == DType::kF16 ? -65504.0 : -3e38; }

void check_mask(const TensorType& mask, const Shape& scores) {
  bool fits = mask.dtype == DType::kBool && mask.rank() == 4 && mask.shape[3] == scores[3];
  for (size_t i = 0; fits && i < 3; ++i) fits = mask.shape[i] == scores[i] || mask.shape[i] == 1;
  check(fits,
        "[attention] the mask must be bool and broadcast to the scores; got {}, expected {}",
        to_string(mask),
        to_string(scores));
}

}  // namespace

std::vector<TensorType> Attention::infer(std::span<const TensorType> inputs) const {
  const TensorType &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q.dtype == k.dtype &&
                    q.dtype == v.dtype && q.shape[0] == k.shape[0] && q.shape[1] == k.shape[1] &&
                    q.shape[3] == k.shape[3] && k.shape[0] == v.shape[0] &&
                    k.shape[1] == v.shape[1] && k.shape[2] == v.shape[2];
  check(fits,
        "[attention] q (B,H,T,D), k (B,H,S,D) and v (B,H,S,E) do not fit; got {}, {} and {}",
        to_string(q),
        to_string(k),
        to_string(v));
  check(std::isfinite(scale), "[attention] scale must be finite; got {}", scale);
  if (inputs.size() == 4) check_mask(inputs[3], {q.shape[0], q.shape[1], q.shape[2], k.shape[2]});
  return {{q.dtype, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]}}};
}

std::vector<Value> Attention::expand(std::span<const Value> inputs) const {
  const Value q = inputs[0], k = inputs[1], v = inputs[2];
  Value scores = matmul(q, k, false, /*transpose_b=*/true) * scale;
  Value allowed;
  if (causal) {
    const TensorType square{DType::kI64, {q.dim(2), k.dim(2)}};
    allowed = broadcast(ge(iota(q.graph(), square, 0), iota(q.graph(), square, 1)), scores.shape());
  }
  if (inputs.size() == 4) {
    const Value mask = broadcast(inputs[3], scores.shape());
    allowed = allowed ? logical_and(allowed, mask) : mask;
  }
  if (!allowed) return {matmul(softmax(scores), v)};
  scores = where(allowed, scores, constant_like(scores, lowest(scores.dtype())));
  const Value weights = where(allowed, softmax(scores), constant_like(scores, 0.0));
  return {matmul(weights, v)};
}

Cost Attention::cost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs) const {
  const double scores = static_cast<double>(inputs[0].elements() / inputs[0].shape[3]) *
                        static_cast<double>(inputs[1].shape[2]) * (causal ? 0.5 : 1.0);
  const double depth = static_cast<double>(inputs[0].shape[3] + inputs[2].shape[3]);
  return {scores * (2.0 * depth + 5.0), total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> Attention::batch_flow(const BatchFlowContext& c) const {
  bool all_none = true;
  for (const BatchFlow& flow : c.flows) all_none = all_none && flow.is_none();
  if (all_none) return {BatchFlow::none()};
  const BatchFlow merged = merge_elementwise(c);
  if (merged.is_split() && merged.axis <= 1) return {merged};
  // A query on its own axis sees the same keys whichever other queries there are, unless `causal`
  // or the mask counts them.
  if (c.flows[0].is_split_on(2) && c.flows[1].is_none() && c.flows[2].is_none() && !causal &&
      c.flows.size() == 3)
    return {BatchFlow::split(2)};
  return {BatchFlow::mixed("the attention runs over the batch")};
}

Value attention(Value q, Value k, Value v, AttentionOptions options) {
  Attention op;
  op.causal = options.causal;
  op.scale = options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.dim(-1)));
  std::vector<Value> inputs{q, k, v};
  if (options.mask) inputs.push_back(options.mask);
  return add_node(std::move(op), std::move(inputs));
}

void register_attention(OpRegistry& r) { r.add<Attention>(); }

}  // namespace ridge
