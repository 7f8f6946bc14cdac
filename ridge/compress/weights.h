// Weights as i8 with a scale for each output channel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/compress/ranges.h"

namespace ridge::compress {

/// w is about integers * scales, symmetric: from -127 to 127.
struct ByteWeights {
  Tensor integers;  ///< i8, of the shape of the weights.
  Tensor scales;    ///< f32, one for each channel of the axis.
};

/// Quantizes `weights`, f32, along `axis`: by the largest magnitude of each channel or, with kMse,
/// by the share of it with the least squared error. `least_scales`, empty or one for each channel,
/// bounds the scales from below. A channel of zeros has its least scale, or 1.
ByteWeights quantize_weights(const Tensor& weights,
                             int64_t axis,
                             RangeMethod method,
                             const std::vector<double>& least_scales = {});

/// The least scales of weights with which `bias`, in units of input_scale * scale, is within i32.
std::vector<double> least_scales_for(const Tensor& bias, double input_scale);
/// The bias in these units, i32, and the units, f32.
struct IntegerBias {
  Tensor integers, scales;
};
IntegerBias quantize_bias(const Tensor& bias, float input_scale, const Tensor& weight_scales);

/// For each output channel of `axis`, the sum over elements of (weights - what they became) times
/// the mean of the input channel that an element is multiplied with: how far the mean of the result
/// is moved. `input_axis` is that of input channels, of which a group of output channels has its
/// own, in `groups` groups.
std::vector<double> moved_mean(const Tensor& weights,
                               const ByteWeights& quantized,
                               int64_t axis,
                               int64_t groups,
                               const std::vector<double>& means);

}  // namespace ridge::compress
