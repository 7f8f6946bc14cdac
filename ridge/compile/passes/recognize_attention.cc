// Makes one op of an attention whose scores nobody else reads:
//
//   s = matmul(q * a, transpose(k) * b) * c         ->   attention(q, k, v, m, scale = a b c)
//   matmul(softmax(where(m, s, -inf)), v)
//
// (B, H, T, D), or (B, T, D) as those of one head. Any of the numbers may be missing or a divisor,
// and so may the mask, which may be a sum with where(m, 0, -inf) too. Several masks allow what all
// of them allow. A mask that allows query t the keys 0..t is the op's `causal`. What else is added
// to the scores is the op's bias: of positions, or (1 - m) * -1e9.
//
// Softmax gives NaN for a query that masks allow no key, and the op zeros, as PyTorch does. A model
// that replaces this NaN by 0 has the op's result in any case. Large finite numbers instead of -inf
// give such a query the mean of all values: they are a mask where it is causal and the only one,
// which allows each query its own key, and a bias elsewhere. Beside a mask of padding a query may
// have no key left, and then it reads padding and later keys alike.
//
// Windows: scores (B, H, T, S) may take a bias as (b, w, H, T, S), one for each of w windows.
//
// Heads that were moved between tokens and channels, or out of one projection for all three, are
// read where they lay before.
//
// Heads in groups: keys and values that are repeated for R heads of queries are read as they were
// before, by the R T queries of a group, unless a mask tells these apart.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ridge/compile/passes/attention_operands.h"
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

// Summands of the scores, before they are broadcast to `shape`.
struct Bias {
  Term term;
  Shape shape;
};

struct Parts {
  Value q, k, v;
  bool is_transposed = false;  ///< k is (..., D, S).
  double scale = 1;
  bool is_causal = false;
  std::vector<Mask> masks = {};
  std::vector<Bias> biases = {};
  std::optional<Mask> low_mask = {};  ///< Its keys get `low_number` for a score.
  double low_number = 0;
  size_t before_low_mask = 0;    ///< Number of others that are applied to its result.
  bool takes_low_causal = true;  ///< A causal mask of large finite numbers is `is_causal`.
  bool has_low_causal = false;   ///< It was.
  bool replaces_nan = false;

  size_t others() const { return masks.size() + biases.size() + (is_causal ? 1 : 0); }
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

// Leaves the rest of a mask that allows what a causal one and another one allow.
bool take_causal(Mask& mask, const Shape& scores) {
  const Node& node = *mask.keys.node;
  if (mask.is_forbidding || !node.is<LogicalAnd>()) return false;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Value rest = before_broadcast(node.inputs[1 - i]);
    if (rest.rank() < 1 || rest.dim(-1) != scores.back() ||
        !is_causal({before_broadcast(node.inputs[i])}, scores))
      continue;
    mask.keys = rest;
    return true;
  }
  return false;
}

// Adds the mask that where(...) is over scores; false where it is none.
bool add_mask(Parts& parts, Mask mask, double number, const Value& scores) {
  mask.keys = before_broadcast(mask.keys);
  const bool is_infinite = number == -std::numeric_limits<double>::infinity();
  if (is_infinite && take_causal(mask, scores.shape())) parts.is_causal = true;
  const bool is_low_causal = !is_infinite && parts.takes_low_causal &&
                             is_low(number, scores.dtype()) && is_causal(mask, scores.shape());
  if (!is_infinite && !is_low_causal) return false;
  parts.has_low_causal = parts.has_low_causal || is_low_causal;
  if (mask.keys.rank() < 1 || mask.keys.dim(-1) != scores.dim(-1)) return false;
  if (is_causal(mask, scores.shape()))
    parts.is_causal = true;
  else
    parts.masks.push_back(mask);
  return true;
}

// Adds where(keys, 0, -inf) as a mask.
bool add_mask_term(Parts& parts, const Term& term, const Value& scores) {
  const Node& node = *term.value.node;
  if (term.sign != 1 || !node.is<Where>()) return false;
  const auto yes = number_of(node.inputs[1]), no = number_of(node.inputs[2]);
  if (!yes || !no || (*yes == 0) == (*no == 0)) return false;
  return *yes == 0 ? add_mask(parts, {node.inputs[0], false}, *no, scores)
                   : add_mask(parts, {node.inputs[0], true}, *yes, scores);
}

// The scores before where(keys, scores, -inf), or the same with a large finite number, of which
// there is one at most; null where it is no mask.
Value before_where(Parts& parts, const Node& node, const Value& all) {
  const auto yes = number_of(node.inputs[1]), no = number_of(node.inputs[2]);
  if (yes.has_value() == no.has_value()) return {};
  const Mask mask{node.inputs[0], yes.has_value()};
  const double number = yes ? *yes : *no;
  if (!add_mask(parts, mask, number, all)) {
    if (parts.low_mask || !is_low(number, all.dtype()) || !std::isfinite(number)) return {};
    parts.low_mask = Mask{before_broadcast(mask.keys), mask.is_forbidding};
    parts.low_number = number;
    parts.before_low_mask = parts.others();
  }
  return node.inputs[yes ? 2 : 1];
}

// ---- biases ----

bool is_broadcast_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (size_t i = 1; i <= from.size(); ++i)
    if (from[from.size() - i] != 1 && from[from.size() - i] != to[to.size() - i]) return false;
  return true;
}

bool add_bias(Parts& parts, const Term& term, const Value& scores) {
  if (!is_broadcast_to(term.value.shape(), scores.shape())) return false;
  parts.biases.push_back({term, scores.shape()});
  return true;
}

// True for a product of that shape below masks, numbers and sums.
bool holds_product(Value value, const Shape& shape, const Readers& readers) {
  if (value.shape() != shape || !readers.is_read_once(value)) return false;
  const Node& node = *value.node;
  if (node.is<MatMul>()) return true;
  if (node.is<Where>()) {
    const bool is_first = number_of(node.inputs[2]).has_value();
    return holds_product(before_broadcast(node.inputs[is_first ? 1 : 2]), shape, readers);
  }
  if (node.is<Add>() || node.is<Sub>()) {
    const Sum sum = sum_of(value, readers);
    return std::any_of(sum.terms.begin(), sum.terms.end(), [&](const Term& term) {
      return term.sign == 1 && holds_product(term.value, shape, readers);
    });
  }
  if (node.is<Reshape>()) {
    const Value from = node.inputs[0];
    const int64_t fewer = std::min(value.rank(), from.rank());
    const bool is_of_windows = fewer == 4 && std::max(value.rank(), from.rank()) == 5;
    return is_of_windows && holds_product(from, from.shape(), readers);
  }
  const Product product = product_of(value, readers);
  return product.factors.size() == 1 && product.factors[0].exponent == 1 &&
         product.factors[0].base != value && holds_product(product.factors[0].base, shape, readers);
}

// The summand of the scores that holds the product; null where none does.
Value before_sum(Parts& parts, const Sum& sum, const Value& all, const Readers& readers) {
  if (sum.number != 0) return {};
  Value rest;
  for (const Term& term : sum.terms) {
    if (!rest && term.sign == 1 && holds_product(term.value, all.shape(), readers))
      rest = term.value;
    else if (!add_mask_term(parts, term, all) && !add_bias(parts, term, all))
      return {};
  }
  return rest;
}

// The scores (B, H, T, S) to which biases were added as (b, w, H, T, S); null where they were not.
Value before_windows(Parts& parts, const Node& node, const Readers& readers) {
  const Value wide = node.inputs[0];
  const Shape& shape = node.outputs[0].shape;
  if (shape.size() != 4 || wide.rank() != 5 || wide.dim(0) * wide.dim(1) != shape[0] ||
      !std::equal(shape.begin() + 1, shape.end(), wide.shape().begin() + 2))
    return {};
  const Sum sum = sum_of(wide, readers);
  if (sum.number != 0) return {};
  Value rest;
  for (const Term& term : sum.terms) {
    const Node& inner = *term.value.node;
    if (!rest && term.sign == 1 && inner.is<Reshape>() && inner.inputs[0].shape() == shape &&
        readers.is_read_once(term.value))
      rest = inner.inputs[0];
    else if (!add_bias(parts, term, wide))
      return {};
  }
  return rest;
}

// The scores without masks and biases, which go into `parts`; null where something else is done
// with them.
Value without_masks(Parts& parts, const Value& all, const Readers& readers) {
  Value scores = all;
  while (scores && readers.is_read_once(scores)) {
    const Node& node = *scores.node;
    if (node.is<Where>())
      scores = before_where(parts, node, all);
    else if (node.is<Add>() || node.is<Sub>())
      scores = before_sum(parts, sum_of(scores, readers), all, readers);
    else if (node.is<Reshape>())
      scores = before_windows(parts, node, readers);
    else
      break;
  }
  return scores;
}

// A large finite number replaces a score as it does when it is added, unless something else was
// added to that score; what replaces NaN by 0 has another result than a bias.
bool are_exact(const Parts& parts) {
  if (parts.low_mask && parts.others() != parts.before_low_mask) return false;
  return !parts.replaces_nan || (!parts.low_mask && parts.biases.empty());
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

std::optional<Parts> parts_of(const Node& node, const Readers& readers, bool takes_low_causal) {
  if (!node.is<MatMul>() || !is_plain(node.op_as<MatMul>()) || node.op_as<MatMul>().transpose_b)
    return std::nullopt;
  const int64_t rank = node.inputs[0].rank();
  const Node* softmax = softmax_of(node.inputs[0], readers);
  if (softmax == nullptr || rank < 3 || rank > 4) return std::nullopt;
  Parts parts{.q = {}, .k = {}, .v = node.inputs[1], .takes_low_causal = takes_low_causal};
  const Value scores = without_masks(parts, softmax->inputs[0], readers);
  if (parts.has_low_causal && (parts.others() > 1 || parts.low_mask))
    return parts_of(node, readers, false);
  parts.replaces_nan = !node.inputs[0].node->is<Softmax>();
  if (!scores || !are_exact(parts)) return std::nullopt;
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

// (B or 1, H or 1, T or 1, S or 1), of a value that is broadcast to scores of that rank.
Value aligned(Value value, size_t rank) {
  Shape shape = value.shape();
  shape.insert(shape.begin(), rank - shape.size(), 1);
  return with_heads(reshape(value, shape));
}

Value allowed_keys(const Mask& mask, const Parts& parts, const Rewrite& rewrite) {
  const Value keys = rewrite.mapped(mask.keys);
  return aligned(mask.is_forbidding ? logical_not(keys) : keys,
                 static_cast<size_t>(parts.q.rank()));
}

// All masks as one; null where there is none.
Value allowed_keys(const Parts& parts, const Rewrite& rewrite) {
  Value allowed;
  for (const Mask& mask : parts.masks) {
    const Value keys = allowed_keys(mask, parts, rewrite);
    allowed = allowed ? logical_and(allowed, keys) : keys;
  }
  return allowed;
}

// `number` where a key is forbidden, else 0.
Value bias_of(Value allowed, double number, DType dtype) {
  const TensorType scalar{dtype, {}};
  return where(
      allowed, constant(allowed.graph(), scalar, 0.0), constant(allowed.graph(), scalar, number));
}

Value bias_of(const Bias& bias, const Rewrite& rewrite) {
  const Value value = rewrite.mapped(bias.term.value);
  const Value added = bias.term.sign == 1 ? value : -value;
  if (bias.shape.size() != 5) return aligned(added, bias.shape.size());
  Shape shape = added.shape();
  shape.insert(shape.begin(), 5 - shape.size(), 1);
  const Shape windows{bias.shape[0], bias.shape[1], shape[2], shape[3], shape[4]};
  return reshape(broadcast(reshape(added, shape), windows), {-1, shape[2], shape[3], shape[4]});
}

// Biases and masks as one mask of the op, which is a bias where there are any; null for none.
Value mask_of(const Parts& parts, const Rewrite& rewrite) {
  const Value allowed = allowed_keys(parts, rewrite);
  const DType dtype = parts.q.dtype();
  Value sum;
  if (parts.low_mask)
    sum = bias_of(allowed_keys(*parts.low_mask, parts, rewrite), parts.low_number, dtype);
  else if (parts.biases.empty())
    return allowed;
  for (const Bias& bias : parts.biases) {
    const Value value = bias_of(bias, rewrite);
    sum = sum ? sum + value : value;
  }
  if (allowed) sum = sum + bias_of(allowed, -std::numeric_limits<double>::infinity(), dtype);
  Shape shape = sum.shape();
  shape[3] = parts.k.dim(parts.is_transposed ? -1 : -2);
  return broadcast(sum, shape);
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
  const Value mask = mask_of(parts, rewrite);
  const AttentionOptions options{.causal = parts.is_causal, .scale = parts.scale, .mask = mask};
  const AttentionHeads heads{rewrite.mapped(parts.q),
                             rewrite.mapped(parts.k),
                             rewrite.mapped(parts.v),
                             parts.is_transposed};
  if (const Value y = attention_before_heads(heads, options)) return y;
  Value q = with_heads(heads.q), k = with_heads(heads.k), v = with_heads(heads.v);
  if (parts.is_transposed) k = transpose_last(k);
  const Value few_k = before_repeat(k), few_v = before_repeat(v);
  const bool tells_apart = parts.is_causal || (mask && mask.dim(1) * mask.dim(2) != 1);
  if (few_k && few_v && few_k.dim(1) == few_v.dim(1) && !tells_apart) {
    q = reshape(q, {q.dim(0), few_k.dim(1), -1, q.dim(3)});
    k = without_repeat(few_k);
    v = without_repeat(few_v);
  }
  const Value y = attention(q, k, v, options);
  Shape shape = parts.q.shape();
  shape.back() = parts.v.dim(-1);
  return reshape(y, shape);
}

BuildMatch find_attention(const Node& node, const Readers& readers) {
  const auto parts = parts_of(node, readers, /*takes_low_causal=*/true);
  if (!parts) return nullptr;
  return [parts = *parts](const Rewrite& rewrite) { return build(parts, rewrite); };
}

}  // namespace

bool recognize_attention(Graph& graph, PassContext& context) {
  return replace_matches(graph, context, find_attention);
}

}  // namespace ridge
