#include "ridge/compress/weights.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "ridge/base/error.h"

namespace ridge::compress {
namespace {

constexpr double kMost = 127;
// Half of what i32 holds: the sum that the bias is added to needs the rest.
constexpr double kMostBias = 0x1p30;
// Shares of the largest magnitude that are tried for the least squared error.
constexpr double kShares[] = {1, 0.97, 0.94, 0.91, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6};
constexpr double kLeastScale = 1e-30;

/// The elements of one channel lie `inner` at a time, every `count` * `inner`.
struct Channels {
  int64_t count, inner;

  Channels(const Shape& shape, int64_t axis) : count(shape[static_cast<size_t>(axis)]), inner(1) {
    for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  }
  size_t of(int64_t element) const { return static_cast<size_t>(element / inner % count); }
  // Calls body(element, channel) for elements 0, 1, ...: without divisions, which would take most
  // of the time.
  template <typename F>
  void for_each(size_t elements, F&& body) const {
    for (size_t i = 0; i < elements;)
      for (size_t channel = 0; channel < static_cast<size_t>(count); ++channel)
        for (int64_t k = 0; k < inner; ++k, ++i) body(i, channel);
  }
};

// The nearest integer, the even one of two, of |x| < 2^51; a call of nearbyint is slower.
double nearest(double x) {
  constexpr double kOnes = 0x1.8p52;  // its last digit is 1
  return x + kOnes - kOnes;
}

double rounded(float value, double scale) {
  return std::clamp(nearest(static_cast<double>(value) / scale), -kMost, kMost);
}

// Squared errors of all channels with these scales.
std::vector<double> errors_of(std::span<const float> weights,
                              const Channels& channels,
                              const std::vector<double>& scales) {
  std::vector<double> errors(scales.size());
  channels.for_each(weights.size(), [&](size_t i, size_t channel) {
    const double off =
        rounded(weights[i], scales[channel]) * scales[channel] - static_cast<double>(weights[i]);
    errors[channel] += off * off;
  });
  return errors;
}

std::vector<double> largest_of(std::span<const float> weights, const Channels& channels) {
  std::vector<double> largest(static_cast<size_t>(channels.count));
  channels.for_each(weights.size(), [&](size_t i, size_t channel) {
    largest[channel] = std::max(largest[channel], static_cast<double>(std::abs(weights[i])));
  });
  return largest;
}

}  // namespace

ByteWeights quantize_weights(const Tensor& weights,
                             int64_t axis,
                             RangeMethod method,
                             const std::vector<double>& least_scales) {
  const std::span<const float> w = weights.span<float>();
  const Channels channels(weights.type().shape, axis);
  const std::vector<double> largest = largest_of(w, channels);
  const auto scales_for = [&](double share) {
    std::vector<double> scales;
    for (size_t i = 0; i < largest.size(); ++i) {
      const double least = least_scales.empty() ? 0 : least_scales[i];
      // A scale is an f32 in the file, and so it is here.
      const double scale = largest[i] > 0 ? std::max(largest[i] * share / kMost, kLeastScale) : 0;
      const auto chosen = static_cast<float>(std::max(scale, least));
      scales.push_back(chosen > 0 ? static_cast<double>(chosen) : 1);
    }
    return scales;
  };
  std::vector<double> scales = scales_for(1);
  if (method == RangeMethod::kMse) {
    std::vector<double> least = errors_of(w, channels, scales);
    for (const double share : kShares) {
      const std::vector<double> tried = scales_for(share);
      const std::vector<double> errors = errors_of(w, channels, tried);
      for (size_t i = 0; i < scales.size(); ++i) {
        if (errors[i] >= least[i]) continue;
        least[i] = errors[i];
        scales[i] = tried[i];
      }
    }
  }
  ByteWeights result{.integers = Tensor({DType::kI8, weights.type().shape}),
                     .scales = Tensor({DType::kF32, {channels.count}})};
  const std::span<int8_t> integers = result.integers.span<int8_t>();
  channels.for_each(w.size(), [&](size_t i, size_t channel) {
    integers[i] = static_cast<int8_t>(rounded(w[i], scales[channel]));
  });
  for (size_t i = 0; i < scales.size(); ++i) result.scales.set(static_cast<int64_t>(i), scales[i]);
  return result;
}

std::vector<double> least_scales_for(const Tensor& bias, double input_scale) {
  std::vector<double> scales;
  for (int64_t i = 0; i < bias.elements(); ++i)
    scales.push_back(std::abs(bias.at(i)) / (input_scale * kMostBias));
  return scales;
}

IntegerBias quantize_bias(const Tensor& bias, float input_scale, const Tensor& weight_scales) {
  IntegerBias result{.integers = Tensor({DType::kI32, bias.type().shape}),
                     .scales = Tensor({DType::kF32, bias.type().shape})};
  for (int64_t i = 0; i < bias.elements(); ++i) {
    const float scale = input_scale * static_cast<float>(weight_scales.at(i));
    result.scales.set(i, static_cast<double>(scale));
    const double q = scale > 0 ? std::nearbyint(bias.at(i) / static_cast<double>(scale)) : 0;
    result.integers.set(i, std::clamp(q, -2 * kMostBias, 2 * kMostBias - 1));
  }
  return result;
}

std::vector<double> moved_mean(const Tensor& weights,
                               const ByteWeights& quantized,
                               int64_t axis,
                               int64_t groups,
                               const std::vector<double>& means) {
  const Shape& shape = weights.type().shape;
  const Channels outputs(shape, axis), inputs(shape, axis == 0 ? 1 : 0);
  check_internal(static_cast<int64_t>(means.size()) == inputs.count * groups,
                 "[moved_mean] {} means for {} channels",
                 means.size(),
                 inputs.count * groups);
  std::vector<double> moved(static_cast<size_t>(outputs.count));
  const auto per_group = static_cast<size_t>(std::max<int64_t>(outputs.count / groups, 1));
  const std::span<const float> w = weights.span<float>();
  const std::span<const int8_t> integers = quantized.integers.span<int8_t>();
  const std::span<const float> scales = quantized.scales.span<float>();
  outputs.for_each(w.size(), [&](size_t i, size_t output) {
    const size_t input =
        output / per_group * static_cast<size_t>(inputs.count) + inputs.of(static_cast<int64_t>(i));
    const double now = integers[i] * static_cast<double>(scales[output]);
    moved[output] += (static_cast<double>(w[i]) - now) * means[input];
  });
  return moved;
}

}  // namespace ridge::compress
