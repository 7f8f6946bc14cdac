// Ranges of activations and scales of weights, by properties over random values.
#include "ridge/compress/ranges.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridge/compress/weights.h"
#include "tests/compress/small_models.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using namespace compress;

// Values of several shapes: normal, one-sided, with few that are far out, two clusters.
std::vector<float> drawn_values(std::mt19937& random, int kind, int64_t count) {
  std::vector<float> values = normal_numbers(random, count);
  for (size_t i = 0; i < values.size(); ++i) {
    if (kind == 1) values[i] = std::max(values[i], 0.f);
    if (kind == 2 && i % 97 == 0) values[i] *= 30;
    if (kind == 3) values[i] = values[i] * 0.1f + (i % 2 == 0 ? 4.f : -1.f);
  }
  return values;
}

Histogram histogram_of(const std::vector<float>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  Histogram histogram({*least, *most});
  histogram.add(values);
  return histogram;
}

// The mean squared error of the values themselves, by the formula of QuantizeLinear.
double true_error(const std::vector<float>& values, const ByteScale& scale) {
  double error = 0;
  for (const float x : values) {
    const double q =
        std::clamp(std::nearbyint(x / scale.scale) + scale.zero, 0.f, 255.f) - scale.zero;
    error += std::pow(q * static_cast<double>(scale.scale) - static_cast<double>(x), 2);
  }
  return error / static_cast<double>(values.size());
}

TEST(Ranges, LeastSquaresIsNoWorseThanTheOthers) {
  std::mt19937 random(1);
  for (int i = 0; i < cases(40); ++i) {
    const std::vector<float> values = drawn_values(random, i % 4, 4000);
    const Histogram histogram = histogram_of(values);
    const auto error = [&](RangeMethod method) {
      return squared_error(histogram, byte_scale(choose_range(histogram, method)));
    };
    EXPECT_LE(error(RangeMethod::kMse), error(RangeMethod::kMinMax));
    // Not by the histogram's measure alone: bins are as wide as an eighth of a step at most.
    const auto of = [&](RangeMethod method) {
      return true_error(values, byte_scale(choose_range(histogram, method)));
    };
    EXPECT_LE(of(RangeMethod::kMse), of(RangeMethod::kMinMax) * 1.02) << i;
  }
}

TEST(Ranges, CutsOffWhatLiesFarOut) {
  std::mt19937 random(2);
  std::vector<float> values = normal_numbers(random, 100000);
  values[5] = 400;
  const Histogram histogram = histogram_of(values);
  EXPECT_EQ(choose_range(histogram, RangeMethod::kMinMax).most, 400);
  const Range range = choose_range(histogram, RangeMethod::kPercentile);
  EXPECT_LT(range.most, 8);
  EXPECT_LT(choose_range(histogram, RangeMethod::kMse).most, 390);
  EXPECT_GT(true_error(values, byte_scale(choose_range(histogram, RangeMethod::kMinMax))),
            true_error(values, byte_scale(choose_range(histogram, RangeMethod::kMse))));
}

TEST(Ranges, KeepZeroExact) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> drawn(-5, 5);
  for (int i = 0; i < cases(300); ++i) {
    const double a = drawn(random), b = drawn(random);
    const ByteScale scale = byte_scale({std::min(a, b), std::max(a, b)});
    EXPECT_EQ(scale.rounded(0), 0);
    // The bounds are off by half a step at most, and half of one that zero's place costs.
    for (const double bound : {std::min({a, b, 0.0}), std::max({a, b, 0.0})})
      EXPECT_NEAR(scale.rounded(bound), bound, 1.001 * static_cast<double>(scale.scale));
  }
}

TEST(Ranges, OfOneValueAreExact) {
  EXPECT_EQ(byte_scale({0, 0}), (ByteScale{1, 0}));
  for (const double value : {3.25, -7.5, 1e-3}) {
    Histogram histogram({value, value});
    histogram.add(std::vector<float>(50, static_cast<float>(value)));
    for (const RangeMethod method :
         {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kMse})
      EXPECT_NEAR(byte_scale(choose_range(histogram, method)).rounded(value),
                  value,
                  1e-6 * std::abs(value));
  }
  EXPECT_GT(byte_scale({0, 1e-40}).scale, 0);
}

Tensor weights_of(std::mt19937& random, const Shape& shape) {
  Tensor weights({DType::kF32, shape});
  const std::vector<float> numbers = normal_numbers(random, weights.elements());
  std::copy(numbers.begin(), numbers.end(), weights.span<float>().begin());
  return weights;
}

double error_of(const Tensor& weights, const ByteWeights& bytes, int64_t axis, int64_t channel) {
  int64_t inner = 1;
  const Shape& shape = weights.type().shape;
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  double error = 0;
  for (int64_t i = 0; i < weights.elements(); ++i) {
    if (i / inner % shape[static_cast<size_t>(axis)] != channel) continue;
    const double now = bytes.integers.at(i) * bytes.scales.at(channel);
    error += (now - weights.at(i)) * (now - weights.at(i));
  }
  return error;
}

TEST(Weights, HaveTheLargestOfEachChannelAt127) {
  std::mt19937 random(4);
  for (const int64_t axis : {0, 1}) {
    const Tensor weights = weights_of(random, {6, 5, 3});
    const ByteWeights bytes = quantize_weights(weights, axis, RangeMethod::kMinMax);
    ASSERT_EQ(bytes.scales.elements(), axis == 0 ? 6 : 5);
    for (int64_t channel = 0; channel < bytes.scales.elements(); ++channel) {
      double largest = 0;
      for (int64_t i = 0; i < weights.elements(); ++i)
        if ((axis == 0 ? i / 15 : i / 3 % 5) == channel)
          largest = std::max(largest, std::abs(bytes.integers.at(i)));
      EXPECT_EQ(largest, 127);
    }
    for (int64_t i = 0; i < weights.elements(); ++i) {
      const double scale = bytes.scales.at(axis == 0 ? i / 15 : i / 3 % 5);
      EXPECT_NEAR(bytes.integers.at(i) * scale, weights.at(i), 0.5001 * scale);
    }
  }
}

TEST(Weights, OfLeastSquaresAreNoWorse) {
  std::mt19937 random(5);
  for (int i = 0; i < cases(20); ++i) {
    Tensor weights = weights_of(random, {4, 60});
    weights.set(7, 9);  // of the first channel, far out
    const ByteWeights plain = quantize_weights(weights, 0, RangeMethod::kMinMax);
    const ByteWeights least = quantize_weights(weights, 0, RangeMethod::kMse);
    for (int64_t channel = 0; channel < 4; ++channel)
      EXPECT_LE(error_of(weights, least, 0, channel), error_of(weights, plain, 0, channel));
  }
}

TEST(Weights, OfAChannelOfZerosKeepTheBias) {
  Tensor weights({DType::kF32, {2, 3}}), bias({DType::kF32, {2}});
  weights.set(0, 1.5);
  bias.set(0, 0.25);
  bias.set(1, 0.3);
  const float input_scale = 0.02f;
  const ByteWeights bytes = quantize_weights(
      weights, 0, RangeMethod::kMinMax, least_scales_for(bias, static_cast<double>(input_scale)));
  const IntegerBias integers = quantize_bias(bias, input_scale, bytes.scales);
  for (int64_t i = 3; i < 6; ++i) EXPECT_EQ(bytes.integers.at(i), 0);
  EXPECT_NEAR(integers.integers.at(1) * integers.scales.at(1), 0.3, 1e-7);
  EXPECT_NEAR(integers.integers.at(0) * integers.scales.at(0), 0.25, 0.51 * integers.scales.at(0));
  const ByteWeights none = quantize_weights(weights, 0, RangeMethod::kMse);
  EXPECT_EQ(none.scales.at(1), 1);
}

TEST(Weights, MakeRoomForALargeBias) {
  Tensor weights({DType::kF32, {1, 2}}), bias({DType::kF32, {1}});
  weights.set(0, 1e-7);
  bias.set(0, 1000);
  const ByteWeights bytes =
      quantize_weights(weights, 0, RangeMethod::kMinMax, least_scales_for(bias, 1e-3));
  const IntegerBias integers = quantize_bias(bias, 1e-3f, bytes.scales);
  EXPECT_NEAR(integers.integers.at(0) * integers.scales.at(0), 1000, 1e-3);
}

}  // namespace
}  // namespace ridge::test
