// Matrix product.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// (..., M, K) x (..., K, N) -> (..., M, N), the leading dimensions equal. With transpose_a the
/// first input is (..., K, M); with transpose_b the second is (..., N, K). `accumulate` is the
/// dtype of the running sum: f64 for f64, f32 for all others; the result is rounded once, or, with
/// f32_result, for 16-bit inputs alone, it is the sum in f32. With
/// round_to, f16 or bf16 and for f32 alone, the inputs are rounded to it before they are multiplied
/// (f16: to infinity from 65520 on); the result is f32. With tf32, for f32 alone, a backend that
/// has TF32 may round them to its 11 bits. Rounding counts as linear: gradients and claims about
/// batches ignore it.
class MatMul final : public OpOf<MatMul> {
 public:
  static constexpr OpTraits kTraits{.name = "matmul",
                                    .min_inputs = 2,
                                    .max_inputs = 2,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kRule,
                                    .linear = {.each = 3}};
  bool transpose_a = false;
  bool transpose_b = false;
  DType accumulate = DType::kF32;
  DType round_to = DType::kF32;  ///< f32: nothing is rounded.
  bool tf32 = false;
  bool f32_result = false;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// The dtype in which products of `dtype` are summed.
DType accumulate_dtype(DType dtype);

/// Product with NumPy broadcasting of the leading dimensions. A 2-d second factor folds the leading
/// dimensions of the first into its rows. Both factors have at least two dimensions.
Value matmul(Value a, Value b, bool transpose_a = false, bool transpose_b = false);

}  // namespace ridge
