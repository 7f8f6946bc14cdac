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

// q, k and v, or qkv.
inline std::vector<Value> attention_operands(const AttentionCase& f, CaseBuilder& b) {
  if (f.packed) return {b.input({f.batch, f.queries, 3 * f.heads * f.depth})};
  return {b.input({f.batch, f.heads, f.queries, f.depth}),
          b.input({f.batch, f.heads, f.keys, f.depth}),
          b.input({f.batch, f.heads, f.keys, f.width})};
}

template <class Op>
Op attention_op(const AttentionCase& f) {
  Op op;
  op.causal = f.causal;
  op.scale = 1.0 / std::sqrt(static_cast<double>(f.depth));
  op.heads = f.packed ? f.heads : 0;
  return op;
}

inline CaseBuilder attention_of(const AttentionCase& f, DType dtype, uint64_t seed = 7) {
  CaseBuilder b(dtype, seed);
  std::vector<Value> inputs = attention_operands(f, b);
  if (!f.mask.empty()) inputs.push_back(b.input(DType::kBool, f.mask, 0, 1));
  const Value y = add_node(attention_op<Attention>(f), std::move(inputs));
  b.finish({y, {y.node, 1}});
  return b;
}

// y, logsumexp and dy are any numbers: what the op makes of them needs no attention before it.
inline CaseBuilder gradient_of(const AttentionCase& f, DType dtype, uint64_t seed = 8) {
  CaseBuilder b(dtype, seed);
  std::vector<Value> inputs = attention_operands(f, b);
  const Shape y = f.packed ? Shape{f.batch, f.queries, f.heads * f.depth}
                           : Shape{f.batch, f.heads, f.queries, f.width};
  inputs.push_back(b.input(y));
  inputs.push_back(b.input(logsumexp_dtype(dtype), {f.batch, f.heads, f.queries}, 1.0, 3.0));
  inputs.push_back(b.input(y));
  if (!f.mask.empty()) inputs.push_back(b.input(DType::kBool, f.mask, 0, 1));
  Node* const node = add_node(attention_op<AttentionGrad>(f), std::move(inputs)).node;
  std::vector<Value> gradients{{node, 0}};
  if (!f.packed) gradients.insert(gradients.end(), {{node, 1}, {node, 2}});
  b.finish(gradients);
  return b;
}

}  // namespace ridge::test
