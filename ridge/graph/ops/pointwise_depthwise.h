// A pointwise convolution, the depthwise one that alone reads it, and the loops behind both, as in
// the inverted residual blocks of MobileNetV2 (Sandler et al., 2018): the image between the two,
// which is the largest of the block, is never written as a whole.
#pragma once

#include <vector>

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/fused.h"

namespace ridge {

/// z = second(depthwise(first(conv2d(x, w), ...), v), ...) of the inputs x (N, H, W, C), w (1, 1,
/// C, O), v (KH, KW, 1, O), then `first_operands` inputs of the loop `first` and all others for the
/// loop `second`. Both loops are elementwise; each reads its convolution as its input "0" and has
/// one result, of that one's dtype and elements, the first of its shape too.
///
/// The plain form is the two convolutions and the two bodies, node by node.
class PointwiseDepthwise final : public OpOf<PointwiseDepthwise> {
 public:
  static constexpr OpTraits kTraits{.name = "pointwise_depthwise",
                                    .min_inputs = 3,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};
  WindowFields window;  ///< The window of the depthwise convolution.
  Fused first, second;
  int64_t first_operands = 0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  /// None: rows are read again after others were written.
  bool may_overwrite(size_t, size_t) const override { return false; }
  void fields(FieldVisitor& v) override;

  /// The types of the results of both convolutions.
  struct Images {
    TensorType between, last;
  };
  Images images(std::span<const TensorType> inputs) const;
};

}  // namespace ridge
