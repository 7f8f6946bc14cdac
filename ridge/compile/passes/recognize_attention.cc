// Makes one op of an attention whose scores nobody else reads:
//
//   s = matmul(q * a, transpose(k) * b) * c         ->   attention(q, k, v, m, scale = a b c)
//   matmul(softmax(where(m, s, -inf)), v)
//
// (B, H, T, D), or (B, T, D) as those of one head. Any of the numbers may be missing or a divisor,
// and so may the mask, which may be a sum with where(m, 0, -inf) too. Several masks allow what all
// of them allow. A mask that allows query t the keys 0..t is the op's `causal`.
//
// Where masks allow a query no key, softmax gives NaN and the op zeros, as PyTorch does. A model
// that replaces this NaN by 0 has the op's result in any case. Large finite numbers instead of -inf
// give such a query the mean of all values: they count where the mask is causal, which allows each
// query its own key. Any other sum is no mask.
//
// Heads in groups: keys and values that are repeated for R heads of queries are read as they were
// before, by the R T queries of a group, unless a mask tells these apart.
#include <cmath>
#include <limits>

#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// Keys that are allowed, or forbidden, before they are broadcast to the scores.
struct Mask {
  Value keys;
  bool is_forbidding = false;
};

struct Parts {
  Value q, k, v;
  bool is_transposed = false;  ///< k is (..., D, S).
  double scale = 1;
  bool is_causal = false;
  std::vector<Mask> masks = {};
};

// ---- masks ----

// True where each element is its index along that axis, counted from the end: 1 is the last.
bool is_index(Value value, int64_t axis_from_end) {
  const Value before = before_broadcast(value);
  const Node& node = behind_reshapes(*before.node);
  if (!node.is<Iota>()) return false;
  const auto& iota = node.op_as<Iota>();
  if (&node == before.node) return std::ssize(iota.shape) - iota.axis == axis_from_end;
  return iota.shape.size() == 1 && axis_from_end <= before.rank() &&
         before.dim(before.rank() - axis_from_end) == iota.shape[0];
}

bool is_lower_triangle(const Constant& constant, int64_t size) {
  if (std::ssize(constant.ints) != size * size) return false;
  for (int64_t i = 0; i < size * size; ++i)
    if ((constant.ints[static_cast<size_t>(i)] != 0) != (i % size <= i / size)) return false;
  return true;
}

// True where the mask allows query t the keys 0..t of as many.
bool is_causal(const Mask& mask, const Shape& scores) {
  const int64_t size = scores.back();
  const Node& node = behind_reshapes(*mask.keys.node);
  for (const Shape& shape : {scores, mask.keys.shape(), node.outputs[0].shape})
    if (shape.size() < 2 || shape.back() != size || shape[shape.size() - 2] != size) return false;
  if (mask.keys.type().elements() != size * size) return false;
  if (node.is<Constant>())
    return !mask.is_forbidding && is_lower_triangle(node.op_as<Constant>(), size);
  const auto compares = [&](int64_t left, int64_t right) {
    return is_index(node.inputs[0], left) && is_index(node.inputs[1], right);
  };
  if (mask.is_forbidding)
    return (node.is<Greater>() && compares(1, 2)) || (node.is<Less>() && compares(2, 1));
  return (node.is<GreaterEqual>() && compares(2, 1)) || (node.is<LessEqual>() && compares(1, 2));
}

// True for numbers that leave a key no weight beside an allowed one: added to a score they are the
// score, in 24 bits, and less than it by more than any exponential of f32 can show.
bool is_low(double number, DType dtype) {
  constexpr double kLow = -1e30;
  return number <= kLow && dtype != DType::kF16;
}

// Adds the mask that where(...) is over scores; false where it is none.
bool add_mask(Parts& parts, Mask mask, double number, const Value& scores) {
  mask.keys = before_broadcast(mask.keys);
  const bool is_infinite = number == -std::numeric_limits<double>::infinity();
  const bool is_finite_causal = is_low(number, scores.dtype()) && is_causal(mask, scores.shape());
  if (!is_infinite && !is_finite_causal) return false;
  if (mask.keys.rank() < 1 || mask.keys.dim(-1) != scores.dim(-1)) return false;
  if (is_causal(mask, scores.shape()))
    parts.is_causal = true;
  else
    parts.masks.push_back(mask);
  return true;
}

// Adds where(keys, 0, -inf) as a mask.
bool add_summand(Parts& parts, const Term& term, const Value& scores) {
  const Node& node = *term.value.node;
  if (term.sign != 1 || !node.is<Where>()) return false;
  const auto yes = number_of(node.inputs[1]), no = number_of(node.inputs[2]);
  if (!yes || !no || (*yes == 0) == (*no == 0)) return false;
  return *yes == 0 ? add_mask(parts, {node.inputs[0], false}, *no, scores)
                   : add_mask(parts, {node.inputs[0], true}, *yes, scores);
}

// The scores before where(keys, scores, -inf); null where it is no mask.
Value before_where(Parts& parts, const Node& node, const Value& all) {
  const auto yes = number_of(node.inputs[1]), no = number_of(node.inputs[2]);
  if (yes.has_value() == no.has_value() ||
      !add_mask(parts, {node.inputs[0], yes.has_value()}, yes ? *yes : *no, all))
    return {};
  return node.inputs[yes ? 2 : 1];
}

// The summand of the scores that is no mask; null where there are several.
Value before_sum(Parts& parts, const Sum& sum, const Value& all) {
  if (sum.number != 0) return {};
  Value rest;
  for (const Term& term : sum.terms) {
    if (add_summand(parts, term, all)) continue;
    if (rest || term.sign != 1) return {};
    rest = term.value;
  }
  return rest;
}

// The scores without their masks, which go into `parts`; null where something else is added.
Value without_masks(Parts& parts, const Value& all, const Readers& readers) {
  Value scores = all;
  while (scores && readers.is_read_once(scores)) {
    const Node& node = *scores.node;
    if (node.is<Where>())
      scores = before_where(parts, node, all);
    else if (node.is<Add>() || node.is<Sub>())
      scores = before_sum(parts, sum_of(scores, readers), all);
    else
      break;
  }
  return scores;
}

// ---- the parts ----

bool is_plain(const MatMul& op) {
  return !op.transpose_a && op.round_to == DType::kF32 && !op.tf32 && !op.f32_result;
}

// The operand without the numbers that it is multiplied with, which go into `scale`.
Value without_numbers(Value value, double& scale, const Readers& readers) {
  const Product product = product_of(value, readers);
  if (product.factors.size() != 1 || product.factors[0].exponent != 1 ||
      product.factors[0].base.shape() != value.shape())
    return value;
  scale *= product.number;
  return product.factors[0].base;
}

// The softmax that the weights are, of which a NaN may have been replaced by 0; null for none.
const Node* softmax_of(Value weights, const Readers& readers) {
  if (!readers.is_read_once(weights)) return nullptr;
  const Node& node = *weights.node;
  if (node.is<Softmax>()) return &node;
  if (!node.is<Where>() || number_of(node.inputs[1]) != 0.0) return nullptr;
  const Node &is_nan = *node.inputs[0].node, &softmax = *node.inputs[2].node;
  const bool fits = is_nan.is<NotEqual>() && is_nan.inputs[0] == node.inputs[2] &&
                    is_nan.inputs[1] == node.inputs[2] && softmax.is<Softmax>() &&
                    readers.of(is_nan) == 1 && readers.of(softmax) == 3;
  return fits ? &softmax : nullptr;
}

std::optional<Parts> parts_of(const Node& node, const Readers& readers) {
  if (!node.is<MatMul>() || !is_plain(node.op_as<MatMul>()) || node.op_as<MatMul>().transpose_b)
    return std::nullopt;
  const int64_t rank = node.inputs[0].rank();
  const Node* softmax = softmax_of(node.inputs[0], readers);
  if (softmax == nullptr || rank < 3 || rank > 4) return std::nullopt;
  Parts parts{.q = {}, .k = {}, .v = node.inputs[1]};
  const Value scores = without_masks(parts, softmax->inputs[0], readers);
  if (!scores) return std::nullopt;
  const Value made = without_numbers(scores, parts.scale, readers);
  const Node& product = *made.node;
  if (!product.is<MatMul>() || !is_plain(product.op_as<MatMul>()) || readers.of(product) != 1 ||
      made.shape() != softmax->outputs[0].shape)
    return std::nullopt;
  parts.q = without_numbers(product.inputs[0], parts.scale, readers);
  parts.k = without_numbers(product.inputs[1], parts.scale, readers);
  parts.is_transposed = !product.op_as<MatMul>().transpose_b;
  if (parts.is_transposed && swaps_last_axes(*parts.k.node)) {
    parts.k = without_numbers(parts.k.node->inputs[0], parts.scale, readers);
    parts.is_transposed = false;
  }
  if (!std::isfinite(parts.scale) || parts.scale == 0) return std::nullopt;
  return parts;
}

// ---- the op ----

// (B, T, D) as (B, 1, T, D).
Value with_heads(Value x) {
  return x.rank() == 4 ? x : reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)});
}

// All masks as one (B or 1, H or 1, T or 1, S); null where there is none.
Value allowed_keys(const Parts& parts, const Rewrite& rewrite) {
  Value allowed;
  for (const Mask& mask : parts.masks) {
    Value keys = rewrite.mapped(mask.keys);
    if (mask.is_forbidding) keys = logical_not(keys);
    Shape shape = keys.shape();
    shape.insert(shape.begin(), static_cast<size_t>(parts.q.rank()) - shape.size(), 1);
    keys = with_heads(reshape(keys, shape));
    allowed = allowed ? logical_and(allowed, keys) : keys;
  }
  return allowed;
}

// (B, G, 1, S, D), where the value repeats it for the heads of each group; null where it does not.
Value before_repeat(Value value) {
  if (value.rank() != 4 || !value.node->is<Reshape>()) return {};
  const Value repeated = value.node->inputs[0];
  if (repeated.rank() != 5 || !repeated.node->is<Broadcast>()) return {};
  const Value before = repeated.node->inputs[0];
  const Shape& shape = repeated.shape();
  const Shape expected{shape[0], shape[1], 1, shape[3], shape[4]};
  const bool fits = value.shape() == Shape{shape[0], shape[1] * shape[2], shape[3], shape[4]};
  return fits && before.shape() == expected ? before : Value{};
}

Value without_repeat(Value before) {
  return reshape(before, {before.dim(0), before.dim(1), before.dim(3), before.dim(4)});
}

Value build(const Parts& parts, const Rewrite& rewrite) {
  Value q = with_heads(rewrite.mapped(parts.q));
  Value k = with_heads(rewrite.mapped(parts.k)), v = with_heads(rewrite.mapped(parts.v));
  if (parts.is_transposed) k = transpose_last(k);
  const Value mask = allowed_keys(parts, rewrite);
  const Value few_k = before_repeat(k), few_v = before_repeat(v);
  const bool tells_apart = parts.is_causal || (mask && mask.dim(1) * mask.dim(2) != 1);
  if (few_k && few_v && few_k.dim(1) == few_v.dim(1) && !tells_apart) {
    q = reshape(q, {q.dim(0), few_k.dim(1), -1, q.dim(3)});
    k = without_repeat(few_k);
    v = without_repeat(few_v);
  }
  const Value y =
      attention(q, k, v, {.causal = parts.is_causal, .scale = parts.scale, .mask = mask});
  Shape shape = parts.q.shape();
  shape.back() = parts.v.dim(-1);
  return reshape(y, shape);
}

BuildMatch find_attention(const Node& node, const Readers& readers) {
  const auto parts = parts_of(node, readers);
  if (!parts) return nullptr;
  return [parts = *parts](const Rewrite& rewrite) { return build(parts, rewrite); };
}

}  // namespace

bool recognize_attention(Graph& graph, PassContext& context) {
  return replace_matches(graph, context, find_attention);
}

}  // namespace ridge
