// Matrix products as lone nodes, for tests of kernels and of cuBLASLt.
#pragma once

#include "ridge/graph/ops/matmul.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// Shapes as they lie in memory, and how they are multiplied.
struct ProductForm {
  Shape a = {}, b = {};
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::kF32, round_to = DType::kF32;
  bool tf32 = false, f32_result = false;
};

/// `input(shape)` makes a factor of the form's dtype.
template <typename Input>
Value product_of(const ProductForm& f, Input input) {
  MatMul op;
  op.transpose_a = f.transpose_a, op.transpose_b = f.transpose_b;
  op.accumulate = accumulate_dtype(f.dtype), op.round_to = f.round_to;
  op.tf32 = f.tf32, op.f32_result = f.f32_result;
  const Value left = input(f.a), right = input(f.b);
  return add_node(std::move(op), {left, right});
}

inline CaseBuilder product_case(const ProductForm& form, uint64_t seed = 3) {
  CaseBuilder b(form.dtype, seed);
  b.finish({product_of(form, [&](const Shape& shape) { return b.input(shape); })});
  return b;
}

}  // namespace ridge::test
