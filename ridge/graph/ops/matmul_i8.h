// Matrix product of bytes, with sums in i32 and results that may be scaled.
#pragma once

#include "ridge/graph/ops/product_i8.h"

namespace ridge {

/// a (..., M, K), b (..., K, N), each i8 or u8, the leading dimensions equal, or those of b absent;
/// with transpose_a a is (..., K, M), with transpose_b b is (..., N, K). Then a_zero () or (M) of
/// the dtype of a, b_zero () or (N) of the dtype of b, and the inputs of ProductI8. The result is
/// (..., M, N) of the sums over K that ProductI8 describes. The same bits on every backend. No
/// gradient.
class MatMulI8 final : public OpOf<MatMulI8>, public ProductI8 {
 public:
  static constexpr OpTraits kTraits{.name = "matmul_i8",
                                    .min_inputs = 4,
                                    .max_inputs = 7,
                                    .dtypes = dtype_set(DType::kI8, DType::kU8),
                                    .op_class = OpClass::kMove,
                                    .gradient = Gradient::kNone};
  bool transpose_a = false;
  bool transpose_b = false;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override;
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
