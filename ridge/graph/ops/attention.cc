#include "ridge/graph/ops/attention.h"

#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

void AttentionForm::visit_fields(FieldVisitor& v) {
  v.visit("causal", causal);
  v.visit("scale", scale);
  v.visit("heads", heads);
  v.visit("by_token", by_token);
}

DType logsumexp_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

namespace {

using Types = std::span<const TensorType>;

// ---- types ----

void check_separate(std::string_view op, const AttentionForm& form, Types inputs) {
  const TensorType &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const size_t head = form.by_token ? 2 : 1, row = form.by_token ? 1 : 2;
  const bool fits =
      q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q.dtype == k.dtype && q.dtype == v.dtype &&
      q.shape[0] == k.shape[0] && q.shape[head] == k.shape[head] && q.shape[3] == k.shape[3] &&
      k.shape[0] == v.shape[0] && k.shape[head] == v.shape[head] && k.shape[row] == v.shape[row];
  check(fits,
        "[{}] q {}, k {} and v {} do not fit; got {}, {} and {}",
        op,
        form.by_token ? "(B,T,H,D)" : "(B,H,T,D)",
        form.by_token ? "(B,S,H,D)" : "(B,H,S,D)",
        form.by_token ? "(B,S,H,E)" : "(B,H,S,E)",
        to_string(q),
        to_string(k),
        to_string(v));
}

void check_packed(std::string_view op, const AttentionForm& form, const TensorType& qkv) {
  check(form.heads > 0 && !form.by_token && qkv.rank() == 3 && qkv.shape[2] % 3 == 0 &&
            qkv.shape[2] / 3 % form.heads == 0,
        "[{}] qkv must be (B,T,3*H*D); got {} for {} heads",
        op,
        to_string(qkv),
        form.heads);
}

// `others`: inputs between the operands and the mask; with some it is no bias.
AttentionLayout check_operands(std::string_view op,
                               const AttentionForm& form,
                               Types inputs,
                               size_t others) {
  const size_t needed = form.operands() + others;
  check(inputs.size() == needed || inputs.size() == needed + 1,
        "[{}] got {} inputs with heads {}, expected {} and perhaps a mask",
        op,
        inputs.size(),
        form.heads,
        needed);
  if (form.is_packed())
    check_packed(op, form, inputs[0]);
  else
    check_separate(op, form, inputs);
  check(std::isfinite(form.scale), "[{}] scale must be finite; got {}", op, form.scale);
  const AttentionLayout layout = attention_layout(form, inputs);
  if (inputs.size() == needed) return layout;
  const TensorType& mask = inputs[needed];
  const Shape scores = layout.scores();
  const bool is_bias = others == 0 && mask.dtype == inputs[0].dtype;
  bool fits =
      (mask.dtype == DType::kBool || is_bias) && mask.rank() == 4 && mask.shape[3] == scores[3];
  for (size_t i = 0; fits && i < 3; ++i) fits = mask.shape[i] == scores[i] || mask.shape[i] == 1;
  check(fits,
        "[{}] the mask must be {} and broadcast to the scores; got {}, expected {}",
        op,
        others == 0 ? fmt::format("bool or {}", name_of(inputs[0].dtype)) : "bool",
        to_string(mask),
        to_string(scores));
  return layout;
}

std::vector<TensorType> result_types(const AttentionForm& form,
                                     const AttentionLayout& l,
                                     DType dtype) {
  const Shape y = form.is_packed() ? Shape{l.batch, l.queries, l.heads * l.width}
                  : form.by_token  ? Shape{l.batch, l.queries, l.heads, l.width}
                                   : Shape{l.batch, l.heads, l.queries, l.width};
  return {{dtype, y}, {logsumexp_dtype(dtype), {l.batch, l.heads, l.queries}}};
}

// ---- plain forms ----

struct Heads {
  Value q, k, v;  // (B, H, T or S, D or E)
};

Value to_heads(Value x, int64_t heads) {
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

Value from_heads(Value x) {
  return reshape(transpose(x, {0, 2, 1, 3}), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

// (B, T, H, D) as (B, H, T, D), and back.
Value swap_heads(Value x) { return transpose(x, {0, 2, 1, 3}); }

// The operand or result as (B, H, T, D), and back.
Value as_heads(const AttentionForm& form, Value x) {
  if (form.is_packed()) return to_heads(x, form.heads);
  return form.by_token ? swap_heads(x) : x;
}
Value as_form(const AttentionForm& form, Value heads) {
  if (form.is_packed()) return from_heads(heads);
  return form.by_token ? swap_heads(heads) : heads;
}

Heads split(const AttentionForm& form, std::span<const Value> inputs) {
  if (!form.is_packed())
    return {as_heads(form, inputs[0]), as_heads(form, inputs[1]), as_heads(form, inputs[2])};
  const int64_t width = inputs[0].dim(2) / 3;
  const auto part = [&](int64_t i) {
    return to_heads(slice(inputs[0], 2, i * width, (i + 1) * width), form.heads);
  };
  return {part(0), part(1), part(2)};
}

// Below any score that counts, yet finite in the dtype, so that a row without an allowed key stays
// free of NaN.
double lowest(DType dtype) { return dtype == DType::kF16 ? -65504.0 : -3e38; }

// Which keys each query may see; null when all. `mask` may be null.
Value allowed_keys(const AttentionForm& form, const Heads& heads, Value mask) {
  const Shape scores{heads.q.dim(0), heads.q.dim(1), heads.q.dim(2), heads.k.dim(2)};
  Value allowed;
  if (form.causal) {
    const TensorType square{DType::kI64, {scores[2], scores[3]}};
    Graph& graph = heads.q.graph();
    allowed = broadcast(ge(iota(graph, square, 0), iota(graph, square, 1)), scores);
  }
  if (!mask) return allowed;
  mask = broadcast(mask, scores);
  return allowed ? logical_and(allowed, mask) : mask;
}

Value scaled_scores(const AttentionForm& form, const Heads& heads) {
  return matmul(heads.q, heads.k, false, /*transpose_b=*/true) * form.scale;
}

Value logsumexp(Value scores, Value allowed) {
  const Value wide = cast(scores, logsumexp_dtype(scores.dtype()));
  const Value max = reduce_max(wide, {-1}, /*keepdims=*/true);
  Value y = reduce_sum(exp(wide - max), {-1}, /*keepdims=*/true);
  y = reduce_sum(log(y) + max, {-1});
  if (!allowed) return y;
  const Value count = reduce_sum(cast(allowed, y.dtype()), {-1});
  const Value zero = constant_like(y, 0.0);
  return where(gt(count, zero), y, zero);
}

// 2 operations for each multiply-add of `products` products of queries with keys.
Cost attention_cost(const AttentionForm& form, Types inputs, Types outputs, double products) {
  const AttentionLayout l = attention_layout(form, inputs);
  const double scores = static_cast<double>(l.batch * l.heads) * static_cast<double>(l.queries) *
                        static_cast<double>(l.keys) * (form.causal ? 0.5 : 1.0);
  const double depth = 0.5 * static_cast<double>(l.depth + l.width);
  return {scores * (2.0 * products * depth + 5.0), total_bytes(inputs) + total_bytes(outputs)};
}

bool all_none(const BatchFlowContext& c) {
  for (const BatchFlow& flow : c.flows)
    if (!flow.is_none()) return false;
  return true;
}

std::vector<BatchFlow> all_outputs(const BatchFlowContext& c, const BatchFlow& flow) {
  return std::vector<BatchFlow>(c.outputs.size(), flow);
}

// A batch of heads' batches, or of heads where they have an axis of their own.
std::vector<BatchFlow> flow_by_head(const AttentionForm& form, const BatchFlowContext& c) {
  if (all_none(c)) return all_outputs(c, BatchFlow::none());
  const BatchFlow merged = merge_elementwise(c);
  const int64_t last = form.is_packed() || form.by_token ? 0 : 1;
  if (merged.is_split() && merged.axis <= last) return all_outputs(c, merged);
  return all_outputs(c, BatchFlow::mixed("the attention runs over the batch"));
}

}  // namespace

size_t bias_input(Types inputs, size_t first) {
  return inputs.size() > first && inputs[first].dtype != DType::kBool ? first : 0;
}

size_t mask_input(Types inputs, size_t first) {
  return inputs.size() > first && inputs[first].dtype == DType::kBool ? first : 0;
}

AttentionLayout attention_layout(const AttentionForm& form, Types inputs) {
  AttentionLayout l;
  if (form.is_packed()) {
    const Shape& x = inputs[0].shape;
    const int64_t row = x[2], part = row / 3;
    l.batch = x[0], l.heads = form.heads;
    l.queries = l.keys = x[1];
    l.depth = l.width = part / form.heads;
    const auto third = [&](int64_t i) {
      return HeadLayout{i * part, l.queries * row, l.depth, row};
    };
    l.q = third(0), l.k = third(1), l.v = third(2);
    l.y = {0, l.queries * part, l.depth, part};
    return l;
  }
  const Shape &q = inputs[0].shape, &v = inputs[2].shape;
  const size_t head = form.by_token ? 2 : 1, row = form.by_token ? 1 : 2;
  l.batch = q[0], l.heads = q[head], l.queries = q[row], l.depth = q[3];
  l.keys = v[row], l.width = v[3];
  const auto rows = [&](int64_t count, int64_t size) {
    const int64_t batch = l.heads * count * size;
    return form.by_token ? HeadLayout{0, batch, size, l.heads * size}
                         : HeadLayout{0, batch, count * size, size};
  };
  l.q = rows(l.queries, l.depth), l.k = rows(l.keys, l.depth);
  l.v = rows(l.keys, l.width), l.y = rows(l.queries, l.width);
  return l;
}

// ---- attention ----

std::vector<TensorType> Attention::infer(Types inputs) const {
  const AttentionLayout layout = check_operands("attention", *this, inputs, 0);
  return result_types(*this, layout, inputs[0].dtype);
}

std::vector<Value> Attention::vjp(const VjpContext& c) const {
  // The kernel takes no gradient of the logsumexp, which only a second derivative asks for, and
  // none with a bias.
  if (c.dout(1) || bias_input(c.node.input_types(), operands()) != 0) return expanded_vjp(c);
  AttentionGrad grad;
  static_cast<AttentionForm&>(grad) = *this;
  const auto operands = c.node.inputs.begin() + static_cast<int64_t>(this->operands());
  std::vector<Value> inputs(c.node.inputs.begin(), operands);
  inputs.insert(inputs.end(), {c.out(0), c.out(1), c.dout(0)});
  inputs.insert(inputs.end(), operands, c.node.inputs.end());
  Node* node = add_node(std::move(grad), std::move(inputs)).node;
  std::vector<Value> gradients(c.node.inputs.size());
  for (size_t i = 0; i < this->operands(); ++i) gradients[i] = {node, static_cast<int>(i)};
  return gradients;
}

std::vector<Value> Attention::expand(std::span<const Value> inputs) const {
  const Heads parts = split(*this, inputs);
  const Value last = inputs.size() > operands() ? inputs.back() : Value{};
  const Value mask = last && last.dtype() == DType::kBool ? last : Value{};
  const Value allowed = allowed_keys(*this, parts, mask);
  Value scores = scaled_scores(*this, parts);
  if (last && !mask) scores = scores + last;
  if (allowed) scores = where(allowed, scores, constant_like(scores, lowest(scores.dtype())));
  Value weights = softmax(scores);
  if (allowed) weights = where(allowed, weights, constant_like(weights, 0.0));
  const Value y = matmul(weights, parts.v);
  return {as_form(*this, y), logsumexp(scores, mask ? allowed : Value{})};
}

Cost Attention::cost(Types inputs, Types outputs) const {
  return attention_cost(*this, inputs, outputs, 2);
}

std::vector<BatchFlow> Attention::batch_flow(const BatchFlowContext& c) const {
  // A query on its own axis sees the same keys whichever other queries there are, unless `causal`
  // or the mask counts them.
  if (c.flows.size() == 3 && c.flows[0].is_split_on(2) && c.flows[1].is_none() &&
      c.flows[2].is_none() && !causal && !by_token)
    return all_outputs(c, BatchFlow::split(2));
  return flow_by_head(*this, c);
}

// ---- the gradient of attention ----

std::vector<TensorType> AttentionGrad::infer(Types inputs) const {
  const AttentionLayout layout = check_operands("attention_grad", *this, inputs, 3);
  const std::vector<TensorType> results = result_types(*this, layout, inputs[0].dtype);
  const TensorType &y = inputs[operands()], &logsumexp = inputs[operands() + 1],
                   &dy = inputs[operands() + 2];
  check(y == results[0] && dy == results[0] && logsumexp == results[1],
        "[attention_grad] y, logsumexp and dy do not fit; got {}, {} and {}, expected {}, {} and "
        "{}",
        to_string(y),
        to_string(logsumexp),
        to_string(dy),
        to_string(results[0]),
        to_string(results[1]),
        to_string(results[0]));
  return {inputs.begin(), inputs.begin() + static_cast<int64_t>(operands())};
}

std::vector<Value> AttentionGrad::expand(std::span<const Value> inputs) const {
  const Heads parts = split(*this, inputs);
  const size_t n = operands();
  const Value mask = inputs.size() > n + 3 ? inputs.back() : Value{};
  const Value y = as_heads(*this, inputs[n]), dy = as_heads(*this, inputs[n + 2]);
  const Value row = reshape(inputs[n + 1], {y.dim(0), y.dim(1), y.dim(2), 1});

  Value scores = cast(scaled_scores(*this, parts), row.dtype()) - row;
  const Value allowed = allowed_keys(*this, parts, mask);
  if (allowed) scores = where(allowed, scores, constant_like(scores, lowest(scores.dtype())));
  const Value weights = cast(exp(scores), y.dtype());
  const Value dweights = matmul(dy, parts.v, false, /*transpose_b=*/true);
  const Value delta = reduce_sum(dy * y, {-1}, /*keepdims=*/true);
  const Value dscores = weights * (dweights - delta) * scale;
  const Value dq = matmul(dscores, parts.k);
  const Value dk = matmul(dscores, parts.q, /*transpose_a=*/true);
  const Value dv = matmul(weights, dy, /*transpose_a=*/true);
  const std::vector<Value> parted{as_form(*this, dq), as_form(*this, dk), as_form(*this, dv)};
  return is_packed() ? std::vector<Value>{concat(parted, 2)} : parted;
}

Cost AttentionGrad::cost(Types inputs, Types outputs) const {
  return attention_cost(*this, inputs, outputs, 5);
}

std::vector<BatchFlow> AttentionGrad::batch_flow(const BatchFlowContext& c) const {
  return flow_by_head(*this, c);
}

// ---- builders ----

Value attention(Value q, Value k, Value v, AttentionOptions options) {
  Attention op;
  op.causal = options.causal;
  op.by_token = options.by_token;
  op.scale = options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.dim(-1)));
  std::vector<Value> inputs{q, k, v};
  if (options.mask) inputs.push_back(options.mask);
  return add_node(std::move(op), std::move(inputs));
}

Value packed_attention(Value qkv, int64_t heads, AttentionOptions options) {
  Attention op;
  op.causal = options.causal;
  op.heads = heads;
  op.scale = options.scale;
  if (op.scale == 0.0 && heads > 0 && qkv.dim(-1) >= 3 * heads)
    op.scale = 1.0 / std::sqrt(static_cast<double>(qkv.dim(-1) / 3 / heads));
  std::vector<Value> inputs{qkv};
  if (options.mask) inputs.push_back(options.mask);
  return add_node(std::move(op), std::move(inputs));
}

void register_attention(OpRegistry& r) {
  r.add<Attention>();
  r.add<AttentionGrad>();
}

}  // namespace ridge
