// The batch norm before a convolution, applied to the rows of pixels that are about to be read.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "ridge/backend/cpu/batch_norm_plan.h"

namespace ridge::cpu {

/// normalized() of graph/ops/batch_norm.h for f32, any rows of it; the bits are those of
/// batch_norm.
class InputNorm {
 public:
  InputNorm(const TensorType& x, const std::string& activation, std::string_view op)
      : channels_(x.shape.back()),
        activation_(static_cast<size_t>(norm_activation(activation, op))) {}

  /// Numbers that bind() needs.
  int64_t table() const { return kNormTables * channels_; }

  /// x with {mean, scale, shift}.
  BatchNormData bind(const void* x, std::span<const void* const> norm, float* table) const {
    BatchNormData bound{};
    bound.channels = channels_;
    bound.x = x;
    bound.table = table;
    for (size_t i = 0; i < 3; ++i)
      std::copy_n(static_cast<const float*>(norm[i]),
                  channels_,
                  table + static_cast<int64_t>(i) * channels_);
    return bound;
  }

  /// Rows [begin, end) to `to`.
  void write(const BatchNormData& bound, int64_t begin, int64_t end, float* to) const {
    BatchNormData shifted = bound;
    shifted.x = static_cast<const float*>(bound.x) + begin * channels_;
    shifted.result = to;
    batch_norm_kernels().forward[static_cast<size_t>(DType::kF32)][activation_].write(
        shifted, 0, end - begin);
  }

 private:
  int64_t channels_;
  size_t activation_;
};

}  // namespace ridge::cpu
