// Matrix product of bytes, with sums in i32 and results that may be scaled.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// a (..., M, K), b (..., K, N), each i8 or u8, the leading dimensions equal, or those of b absent;
/// with transpose_a a is (..., K, M), with transpose_b b is (..., N, K). Then a_zero () or (M) of
/// the dtype of a, b_zero () or (N) of the dtype of b. The result is (..., M, N) of dtype `to`:
///
///   sum = the sum over k of (a - a_zero) * (b - b_zero), modulo 2^32 as an i32
///   x   = f32(sum) * scale + bias, each operation rounded to nearest even
///
/// - i32: sum. There are no other inputs.
/// - f32: x. Inputs besides are scale () or (N), and where there is one bias (N), of f32.
/// - i8, u8: x rounded to the nearest integer (to the even one of two), plus the zero point of the
///   result, saturating; 0 for NaN. Inputs besides are scale, the zero point () of dtype `to`, and
///   where there is one bias.
///
/// The same bits on every backend. No gradient.
class MatMulI8 final : public OpOf<MatMulI8> {
 public:
  static constexpr OpTraits kTraits{.name = "matmul_i8",
                                    .min_inputs = 4,
                                    .max_inputs = 7,
                                    .dtypes = dtype_set(DType::kI8, DType::kU8),
                                    .op_class = OpClass::kMove,
                                    .gradient = Gradient::kNone};
  bool transpose_a = false;
  bool transpose_b = false;
  DType to = DType::kI32;

  /// Places of the inputs; bias() is that of the bias where there is one.
  static constexpr size_t kA = 0, kB = 1, kAZero = 2, kBZero = 3, kScale = 4, kZero = 5;
  bool is_scaled() const { return to != DType::kI32; }
  bool is_rounded() const { return is_scaled() && to != DType::kF32; }
  size_t bias() const { return is_rounded() ? 6 : 5; }

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override;
};

/// The scale of the results of a product, and what belongs to it; null values are left out.
struct ScaledTo {
  DType dtype = DType::kI32;
  Value scale = {}, zero = {}, bias = {};
};

/// The product with NumPy broadcasting of the leading dimensions. Zero points that are null are 0.
/// The result of i8 or u8 needs `to.zero`. With transpose_b b is (..., N, K).
Value matmul_i8(Value a,
                Value b,
                Value a_zero,
                Value b_zero,
                const ScaledTo& to = {},
                bool transpose_b = false);

}  // namespace ridge
