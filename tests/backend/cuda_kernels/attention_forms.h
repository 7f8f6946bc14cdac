// Attentions and their gradients as lone nodes with numbers, for tests of printed kernels.
#pragma once

#include <cmath>
#include <vector>

#include "ridge/graph/ops/attention.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// The sizes of an attention, and in which form its operands come.
struct AttentionCase {
  int64_t batch = 1, heads = 1, queries = 1, keys = 1, depth = 1, width = 1;
  bool causal = false;
  Shape mask = {};
  bool packed = false;
};

/// An Attention, or an AttentionGrad. `input(type, low, high)` makes an operand: y, logsumexp and
/// dy are any numbers, for what the op makes of them needs no attention before it.
template <class Op, typename Input>
Value attention_node(const AttentionCase& f, DType dtype, Input input) {
  const auto add = [&](Shape shape) { return input(TensorType{dtype, shape}, -2.0, 2.0); };
  std::vector<Value> inputs;
  if (f.packed)
    inputs = {add({f.batch, f.queries, 3 * f.heads * f.depth})};
  else
    inputs = {add({f.batch, f.heads, f.queries, f.depth}),
              add({f.batch, f.heads, f.keys, f.depth}),
              add({f.batch, f.heads, f.keys, f.width})};
  if constexpr (std::is_same_v<Op, AttentionGrad>) {
    const Shape y = f.packed ? Shape{f.batch, f.queries, f.heads * f.depth}
                             : Shape{f.batch, f.heads, f.queries, f.width};
    inputs.push_back(add(y));
    inputs.push_back(
        input(TensorType{logsumexp_dtype(dtype), {f.batch, f.heads, f.queries}}, 1.0, 3.0));
    inputs.push_back(add(y));
  }
  if (!f.mask.empty()) inputs.push_back(input(TensorType{DType::kBool, f.mask}, 0.0, 1.0));
  Op op;
  op.causal = f.causal;
  op.scale = 1.0 / std::sqrt(static_cast<double>(f.depth));
  op.heads = f.packed ? f.heads : 0;
  return add_node(std::move(op), std::move(inputs));
}

template <class Op>
CaseBuilder attention_case(const AttentionCase& f, DType dtype, uint64_t seed) {
  CaseBuilder b(dtype, seed);
  Node* const node = attention_node<Op>(f, dtype, [&](TensorType type, double low, double high) {
                       return b.input(type.dtype, type.shape, low, high);
                     }).node;
  std::vector<Value> results;
  for (int i = 0; i < std::ssize(node->outputs); ++i) results.push_back({node, i});
  b.finish(results);
  return b;
}
inline CaseBuilder attention_of(const AttentionCase& f, DType dtype) {
  return attention_case<Attention>(f, dtype, 7);
}
inline CaseBuilder gradient_of(const AttentionCase& f, DType dtype) {
  return attention_case<AttentionGrad>(f, dtype, 8);
}

}  // namespace ridge::test
