// Two-dimensional convolution of bytes over NHWC images, with sums in i32 and results that may be
// scaled.
#pragma once

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/product_i8.h"

namespace ridge {

/// x (N, H, W, C), w (KH, KW, C / groups, O), each i8 or u8; then x_zero () of the dtype of x,
/// w_zero () or (O) of the dtype of w, and the inputs of ProductI8, whose a is x, whose b is w and
/// whose columns are the O channels. The result is (N, OH, OW, O) of the sums that ProductI8
/// describes, over the elements of a window and the channels of its group: group g maps the g-th
/// part of the input channels to the g-th part of the output channels. Pixels beyond the image are
/// x_zero. The same bits on every backend. No gradient.
class Conv2dI8 final : public OpOf<Conv2dI8>, public ProductI8 {
 public:
  static constexpr OpTraits kTraits{.name = "conv2d_i8",
                                    .min_inputs = 4,
                                    .max_inputs = 7,
                                    .dtypes = dtype_set(DType::kI8, DType::kU8),
                                    .op_class = OpClass::kMove,
                                    .gradient = Gradient::kNone};
  WindowFields window;
  int64_t groups = 1;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override;

 private:
  /// The result of one group by a matrix product of bytes.
  Value product(std::span<const Value> inputs) const;
};

/// Zero points that are null are 0. The result of i8 or u8 needs `to.zero`.
Value conv2d_i8(Value x,
                Value w,
                Value x_zero,
                Value w_zero,
                WindowFields window = {},
                int64_t groups = 1,
                const ScaledTo& to = {});

}  // namespace ridge
