// Convolution of bytes with one input channel and one output channel a group, directly: no patches,
// sums in registers until they are results.
#pragma once

#include <memory>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/gemm/gemm_i8.h"

namespace ridge::cpu {

class DepthwiseI8 {
 public:
  static bool accepts(const ConvGeometry& g);
  /// `form`: the instructions that multiply; those of AVX-512 suit kAmx, too. InternalError where
  /// they are missing.
  DepthwiseI8(const ConvGeometry& g,
              bool x_is_signed,
              bool w_is_signed,
              I8Form form = best_i8_form());

  size_t workspace_bytes() const;
  /// The operands are x (images), w (kernel, channels) and their zero points, of x a single one;
  /// columns of the results are channels, and there is no row scale. Otherwise they are those of
  /// gemm_i8(), with its arithmetic. `workspace` has workspace_bytes(), at any alignment.
  void run(const I8Operands& operands, const I8Results& results, void* workspace) const;

 private:
  struct Layout;
  class Run;
  ConvGeometry g_;
  bool x_is_signed_, w_is_signed_;
  // The one for weights that have zero points is another where not all kernels take them.
  std::shared_ptr<const Layout> layout_, layout_with_zeros_;
};

}  // namespace ridge::cpu
