#include "ridge/compile/passes/attention_operands.h"

#include <optional>
#include <vector>

#include "ridge/graph/ops/shape.h"

namespace ridge {
namespace {

using Axes = std::vector<int64_t>;

// (B, T, H, D), of which the heads (B, H, T, D), or (B, H, D, T) where `is_transposed`, are a
// transpose; null where they are none. Of one sample they may be one of (T, H, D).
Value by_token(Value heads, bool is_transposed) {
  const Node& node = *heads.node;
  if (node.is<Transpose>()) {
    const Axes expected = is_transposed ? Axes{0, 2, 3, 1} : Axes{0, 2, 1, 3};
    return node.op_as<Transpose>().perm == expected ? node.inputs[0] : Value{};
  }
  if (!node.is<Reshape>() || is_transposed || heads.dim(0) != 1) return {};
  const Value flat = node.inputs[0];
  const Shape& shape = heads.shape();
  if (flat.shape() != Shape(shape.begin() + 1, shape.end()) || !flat.node->is<Transpose>() ||
      flat.node->op_as<Transpose>().perm != Axes{1, 0, 2})
    return {};
  return reshape(flat.node->inputs[0], {1, shape[2], shape[1], shape[3]});
}

// ---- one projection for all three ----

// Part `number` of three, which a transpose brought side by side.
struct Third {
  const Node* moved;
  int64_t number;
};

std::optional<Third> third_of(Value value) {
  const Node& cut = behind_reshapes(*value.node);
  if (!cut.is<Slice>()) return std::nullopt;
  const Value all = cut.inputs[0];
  const Node& moved = behind_reshapes(*all.node);
  const bool fits = moved.is<Transpose>() && all.dim(0) == 3 && cut.outputs[0].shape[0] == 1 &&
                    cut.outputs[0].elements() * 3 == all.type().elements();
  if (!fits) return std::nullopt;
  return Third{&moved, cut.op_as<Slice>().start[0]};
}

// The node of which q, k and v are the three parts; null where there is none.
const Node* whole_of(Value q, Value k, Value v) {
  const auto first = third_of(q), second = third_of(k), last = third_of(v);
  const bool fits = first && second && last && first->number == 0 && second->number == 1 &&
                    last->number == 2 && first->moved == second->moved &&
                    first->moved == last->moved;
  return fits ? first->moved : nullptr;
}

// The axes of an operand that have more than one element, in the order of its transpose.
Axes order_of(const Node& transpose) {
  const Shape& shape = transpose.inputs[0].shape();
  Axes number(shape.size());
  int64_t count = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) number[i] = count++;
  Axes order;
  for (const int64_t axis : transpose.op_as<Transpose>().perm)
    if (shape[static_cast<size_t>(axis)] != 1) order.push_back(number[static_cast<size_t>(axis)]);
  return order;
}

// (B, T, 3 H D), of which the heads are the thirds: as (B, T, 3, H, D), or for one sample as
// (T, 3, H D); null where they are not.
Value packed(const AttentionHeads& heads) {
  const Shape& q = heads.q.shape();
  if (heads.is_transposed || heads.k.shape() != q || heads.v.shape() != q) return {};
  const int64_t batch = q[0], tokens = q[2], width = q[1] * q[3];
  if (const Node* moved = whole_of(heads.q, heads.k, heads.v)) {
    const Value whole = moved->inputs[0];
    const bool fits = whole.shape() == Shape{batch, tokens, 3, q[1], q[3]} &&
                      moved->op_as<Transpose>().perm == Axes{2, 0, 3, 1, 4};
    return fits ? reshape(whole, {batch, tokens, 3 * width}) : Value{};
  }
  const Value first = by_token(heads.q, false), second = by_token(heads.k, false),
              last = by_token(heads.v, false);
  if (batch != 1 || tokens == 1 || width == 1 || !first || !second || !last) return {};
  const Node* moved = whole_of(first, second, last);
  if (moved == nullptr || order_of(*moved) != Axes{1, 0, 2}) return {};
  Shape sizes;
  for (const int64_t size : moved->inputs[0].shape())
    if (size != 1) sizes.push_back(size);
  return sizes == Shape{tokens, 3, width} ? reshape(moved->inputs[0], {1, tokens, 3 * width})
                                          : Value{};
}

}  // namespace

Value attention_before_heads(const AttentionHeads& heads, AttentionOptions options) {
  if (heads.q.rank() != 4) return {};
  if (const Value qkv = packed(heads)) {
    const Shape& q = heads.q.shape();
    const Value y = packed_attention(qkv, q[1], options);
    return transpose(reshape(y, {q[0], q[2], q[1], q[3]}), {0, 2, 1, 3});
  }
  const Value q = by_token(heads.q, false), v = by_token(heads.v, false);
  const Value k = q && v ? by_token(heads.k, heads.is_transposed) : Value{};
  if (!k) return {};
  options.by_token = true;
  return transpose(attention(q, k, v, options), {0, 2, 1, 3});
}

}  // namespace ridge
