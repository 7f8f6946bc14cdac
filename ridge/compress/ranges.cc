#include "ridge/compress/ranges.h"

#include <algorithm>
#include <cmath>

namespace ridge::compress {
namespace {

constexpr double kLevels = 255;
// A smaller scale is no f32 that engines divide by without loss.
constexpr double kLeastScale = 1e-30;
constexpr double kOutermost = 1e-4;
// Bounds that are tried for the least squared error, as shares of the largest range.
constexpr int kShares = 64;

// The bound that leaves at most half of kOutermost of the values beyond it.
double percentile_bound(const Histogram& histogram, bool is_upper) {
  const std::vector<uint64_t>& counts = histogram.counts();
  double total = 0, beyond = 0;
  for (const uint64_t count : counts) total += static_cast<double>(count);
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t bin = is_upper ? counts.size() - 1 - i : i;
    beyond += static_cast<double>(counts[bin]);
    if (beyond > total * kOutermost / 2) return histogram.middle(bin);
  }
  return is_upper ? histogram.range().most : histogram.range().least;
}

// One bound after the other is moved to where the error is least, twice; the widest range is among
// those that are tried, so that no result is worse.
Range least_squares(const Histogram& histogram) {
  const Range all{std::min(histogram.range().least, 0.0), std::max(histogram.range().most, 0.0)};
  Range best = all;
  double least = squared_error(histogram, byte_scale(best));
  for (int round = 0; round < 2; ++round)
    for (double Range::* bound : {&Range::least, &Range::most}) {
      const Range from = best;
      for (int share = 1; share <= kShares; ++share) {
        Range tried = from;
        tried.*bound = all.*bound * share / kShares;
        const double error = squared_error(histogram, byte_scale(tried));
        if (error >= least) continue;
        least = error;
        best = tried;
      }
    }
  return best;
}

}  // namespace

double ByteScale::rounded(double x) const {
  const double q = std::nearbyint(x / static_cast<double>(scale)) + zero;
  return (std::clamp(q, 0.0, kLevels) - zero) * static_cast<double>(scale);
}

ByteScale byte_scale(Range range) {
  const double least = std::min(range.least, 0.0), most = std::max(range.most, 0.0);
  if (least == most) return {};
  ByteScale result;
  result.scale = static_cast<float>(std::max((most - least) / kLevels, kLeastScale));
  const double zero = std::nearbyint(-least / static_cast<double>(result.scale));
  result.zero = static_cast<uint8_t>(std::clamp(zero, 0.0, kLevels));
  return result;
}

void Histogram::add(std::span<const float> values) {
  const double width = (range_.most - range_.least) / static_cast<double>(kBins - 1);
  for (const float value : values) {
    const double at = width > 0 ? (static_cast<double>(value) - range_.least) / width : 0;
    const double bin = std::clamp(std::nearbyint(at), 0.0, static_cast<double>(kBins - 1));
    ++counts_[static_cast<size_t>(bin)];
  }
}

double Histogram::middle(size_t bin) const {
  const double share = static_cast<double>(bin) / static_cast<double>(kBins - 1);
  return range_.least + share * (range_.most - range_.least);
}

double squared_error(const Histogram& histogram, const ByteScale& scale) {
  double total = 0, error = 0;
  for (size_t bin = 0; bin < histogram.counts().size(); ++bin) {
    const uint64_t count = histogram.counts()[bin];
    if (count == 0) continue;
    const double x = histogram.middle(bin), off = scale.rounded(x) - x;
    total += static_cast<double>(count);
    error += static_cast<double>(count) * off * off;
  }
  return total > 0 ? error / total : 0;
}

Range choose_range(const Histogram& histogram, RangeMethod method) {
  switch (method) {
    case RangeMethod::kMinMax:
      return histogram.range();
    case RangeMethod::kPercentile:
      return {percentile_bound(histogram, false), percentile_bound(histogram, true)};
    case RangeMethod::kMse:
      return least_squares(histogram);
  }
  return histogram.range();
}

}  // namespace ridge::compress
