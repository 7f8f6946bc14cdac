// A convolution together with the loop that reads it: bias, activation and residual run over its
// results while the caches hold them.
#pragma once

#include <vector>

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/product_loop.h"

namespace ridge {

class FusedConv2d final : public ProductLoop<FusedConv2d, Conv2d> {
 public:
  static constexpr OpTraits kTraits{.name = "fused_conv2d",
                                    .min_inputs = 2,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};
};

/// The node of op fused_conv2d that computes what `loop` does of the convolution of `x` and `w` and
/// of `others`.
Node& fused_conv2d(Graph& graph,
                   const Conv2d& product,
                   const Fused& loop,
                   Value x,
                   Value w,
                   const std::vector<Value>& others,
                   Site site);

}  // namespace ridge
