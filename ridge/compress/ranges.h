// Ranges of activations: histograms of what calibration saw, and the scale and zero point of u8
// that follow from them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ridge/base/named_enum.h"

namespace ridge::compress {

/// How the range that u8 covers follows from a histogram:
///   minmax      from the least to the largest value
///   percentile  without the 0.01 % of values that lie outermost, in all
///   mse         the range, within minmax, of the least squared error
enum class RangeMethod : uint8_t { kMinMax, kPercentile, kMse };
constexpr std::string_view names_of(RangeMethod) { return "minmax|percentile|mse"; }

/// x is about (q - zero) * scale for q from 0 to 255.
struct ByteScale {
  float scale = 1;
  uint8_t zero = 0;

  /// The number that x becomes: rounded to nearest even, saturating.
  double rounded(double x) const;
  bool operator==(const ByteScale&) const = default;
};

struct Range {
  double least = 0, most = 0;
};

/// The scale for numbers of the range, which is widened to hold zero: zero is exact. A range of
/// zero alone has scale 1.
ByteScale byte_scale(Range range);

/// Counts of values in bins of equal width.
class Histogram {
 public:
  static constexpr size_t kBins = 2048;

  /// For values of that range.
  explicit Histogram(Range range) : range_(range), counts_(kBins) {}

  void add(std::span<const float> values);
  const Range& range() const { return range_; }
  /// The middle of a bin; the least and the largest value are the middles of the outermost.
  double middle(size_t bin) const;
  const std::vector<uint64_t>& counts() const { return counts_; }

 private:
  Range range_;
  std::vector<uint64_t> counts_;
};

/// The mean of the squared error of the values, each taken for the middle of its bin.
double squared_error(const Histogram& histogram, const ByteScale& scale);

Range choose_range(const Histogram& histogram, RangeMethod method);

}  // namespace ridge::compress
