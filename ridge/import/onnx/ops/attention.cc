// Attention and rotary embeddings.
#include "ridge/graph/ops/attention.h"

#include <cmath>
#include <limits>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/indexing.h"
#include "ridge/import/onnx/node_context.h"
#include "ridge/import/onnx/op_table.h"

namespace ridge::onnx {
namespace {

// (B, T, heads D) as (B, heads, T, D); what has four dimensions stays.
Value by_heads(Value x, int64_t heads) {
  if (x.rank() == 4) return x;
  check(x.rank() == 3 && heads >= 1 && x.dim(2) % heads == 0,
        "{} heads of {}",
        heads,
        to_string(x.type()));
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

// Each head `times` times, one beside the other.
Value repeated_heads(Value x, int64_t times) {
  if (times == 1) return x;
  const Shape shape{x.dim(0), x.dim(1), times, x.dim(2), x.dim(3)};
  const Value wide = broadcast(reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)}), shape);
  return reshape(wide, {x.dim(0), x.dim(1) * times, x.dim(2), x.dim(3)});
}

Value four_axes(Value mask) {
  Shape shape = mask.shape();
  check(shape.size() <= 4, "its mask has {} dimensions", shape.size());
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return reshape(mask, shape);
}

// Which keys a query may see: (B or 1, H or 1, T or 1, S) bool and numbers that are added to the
// scores; null where there is none.
struct Masks {
  Value allowed, added;
};

// A mask that is shorter than the keys forbids the rest.
Value up_to(Value mask, int64_t keys, double value) {
  const int64_t missing = keys - mask.dim(3);
  check(missing >= 0, "its mask is of {} keys; there are {}", mask.dim(3), keys);
  return missing == 0 ? mask : pad(mask, {0, 0, 0, 0}, {0, 0, 0, missing}, value);
}

// The attention op has the plain causal form itself.
bool is_causal_alone(const NodeContext& n) {
  return n.integer("is_causal", 0) != 0 && !n.has(3) && !n.has(4) && !n.has(6);
}

Masks masks_of(NodeContext& n, int64_t queries, int64_t keys, int64_t past) {
  Masks masks;
  if (n.has(3)) {
    const Value mask = four_axes(n.value(3));
    if (mask.dtype() == DType::kBool)
      masks.allowed = up_to(mask, keys, 0.0);
    else
      masks.added = up_to(mask, keys, -std::numeric_limits<double>::infinity());
  }
  const auto allow = [&](Value which) {
    masks.allowed = masks.allowed ? logical_and(masks.allowed, which) : which;
  };
  if (n.integer("is_causal", 0) != 0) {
    const TensorType type{DType::kI64, {1, 1, queries, keys}};
    const Value query = iota(n.graph(), type, 2), key = iota(n.graph(), type, 3);
    allow(le(key, query + static_cast<double>(past)));
  }
  if (n.has(6)) {
    const Value counts = cast(n.value(6), DType::kI64);
    const Value key = iota(n.graph(), {DType::kI64, {1, 1, 1, keys}}, 3);
    allow(lt(key, reshape(counts, {counts.type().elements(), 1, 1, 1})));
  }
  return masks;
}

// The scores, which outputs may ask for at three stages, and the result.
Value by_plain_ops(NodeContext& n, Value q, Value k, Value v, const Masks& masks, double scale) {
  const double softcap = n.number("softcap", 0.0);
  const int64_t stage = n.integer("qk_matmul_output_mode", 0);
  // Half of the scale on each side, where 16 bits could overflow.
  Value scores = matmul(q * std::sqrt(scale), k * std::sqrt(scale), false, true);
  if (softcap > 0.0) scores = tanh(scores / softcap) * softcap;
  const Value unmasked = scores;
  if (masks.added) scores = scores + cast(masks.added, scores.dtype());
  if (masks.allowed)
    scores = where(
        masks.allowed, scores, constant_like(scores, -std::numeric_limits<double>::infinity()));
  const Value weights = softmax(scores);
  if (n.wants(3)) n.give(3, stage <= 1 ? unmasked : stage == 2 ? scores : weights);
  return matmul(weights, v);
}

void attention_of(NodeContext& n) {
  const bool is_flat = n.rank(0) == 3;
  for (size_t i = 0; i < 3; ++i)
    check(n.rank(i) == (is_flat ? 3 : 4), "input {} has {} dimensions", i, n.rank(i));
  const int64_t heads = is_flat ? n.integer("q_num_heads") : n.shape(0)[1];
  const int64_t kv_heads = is_flat ? n.integer("kv_num_heads") : n.shape(1)[1];
  const Value q = by_heads(n.value(0), heads);
  Value k = by_heads(n.value(1), kv_heads), v = by_heads(n.value(2), kv_heads);
  const int64_t past = n.has(4) ? n.value(4).dim(2) : 0;
  if (n.has(4)) k = concat({n.value(4), k}, 2);
  if (n.has(5)) v = concat({n.value(5), v}, 2);
  if (n.wants(1)) n.give(1, k);
  if (n.wants(2)) n.give(2, v);
  check(kv_heads >= 1 && heads % kv_heads == 0, "{} heads share {}", heads, kv_heads);
  k = repeated_heads(k, heads / kv_heads);
  v = repeated_heads(v, heads / kv_heads);
  const double scale = n.number("scale", 1.0 / std::sqrt(static_cast<double>(q.dim(3))));
  const bool is_additive = n.has(3) && n.dtype(3) != DType::kBool;
  const bool is_plain = is_additive || n.wants(3) || n.number("softcap", 0.0) > 0.0;
  const bool is_causal = !is_plain && is_causal_alone(n);
  const Masks masks = is_causal ? Masks{} : masks_of(n, q.dim(2), k.dim(2), past);
  Value y = is_plain
                ? by_plain_ops(n, q, k, v, masks, scale)
                : attention(q, k, v, {.causal = is_causal, .scale = scale, .mask = masks.allowed});
  if (is_flat) {
    y = transpose(y, {0, 2, 1, 3});
    y = reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
  }
  n.give(0, y);
}

// Inputs: x, cosines, sines [, positions]. Pairs of x are turned by the angle of their position.
void rotary_embedding(NodeContext& n) {
  const bool is_flat = n.rank(0) == 3;
  const int64_t heads = n.integer("num_heads", 0);
  const Value x = by_heads(n.value(0), heads);  // (B, H, T, D)
  int64_t width = n.integer("rotary_embedding_dim", 0);
  if (width == 0) width = x.dim(3);
  check(width % 2 == 0 && width >= 2 && width <= x.dim(3), "it turns {} of {}", width, x.dim(3));
  const int64_t half = width / 2;
  const auto table = [&](size_t input) {
    Value angles = n.value(input);
    if (n.has(3)) angles = gather(angles, from_front(n.value(3), angles.dim(0)), 0);
    check(angles.rank() == 3 && angles.dim(2) == half, "its table is {}", to_string(angles.type()));
    return reshape(angles, {angles.dim(0), 1, angles.dim(1), half});
  };
  const Value cosine = table(1), sine = table(2);
  const bool is_interleaved = n.integer("interleaved", 0) != 0;
  const Value turned = slice(x, 3, 0, width);
  const Value first = is_interleaved ? slice(turned, 3, 0, width, 2) : slice(turned, 3, 0, half);
  const Value second =
      is_interleaved ? slice(turned, 3, 1, width, 2) : slice(turned, 3, half, width);
  const Value real = first * cosine - second * sine;
  const Value imaginary = first * sine + second * cosine;
  Value y;
  if (is_interleaved) {
    Shape pairs = real.shape();
    pairs.push_back(1);
    y = reshape(concat({reshape(real, pairs), reshape(imaginary, pairs)}, 4), turned.shape());
  } else {
    y = concat({real, imaginary}, 3);
  }
  if (width < x.dim(3)) y = concat({y, slice(x, 3, width, x.dim(3))}, 3);
  n.give(is_flat ? reshape(transpose(y, {0, 2, 1, 3}), n.shape(0)) : y);
}

constexpr OpRow kAttentionOps[] = {
    {"Attention", attention_of, 23},
    {"RotaryEmbedding", rotary_embedding, 23},
};

}  // namespace

std::span<const OpRow> attention_ops() { return kAttentionOps; }

}  // namespace ridge::onnx
