#include "ridge/tune/pytorch/forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>

#include "ridge/proof/statistics.h"

namespace ridge {
namespace {

// The range of a next value follows from the mean and the deviation of those before it, as of
// normal numbers. So few of them leave the deviation itself uncertain, and the range wider.
constexpr size_t kEnoughTrials = 4;
constexpr double kOutside = 0.1;  // at each end

// A measured gain is itself off by this factor.
constexpr double kMeasured = 1.01;

struct Shares {
  std::string_view technique;
  double low, high;
};

// Estimates by what bench/README.md says of programs like those of examples/pytorch, for techniques
// that this machine has not tried often enough. They are shares of what the ceiling is about.
constexpr Shares kElsewhere[] = {
    {"loader.cache", 0.5, 1},         {"loader.workers", 0, 0.9},  {"loader.background", 0, 0.8},
    {"loader.prefetch", -0.1, 0.3},   {"loader.pin", -0.02, 0.1},  {"model.channels_last", 0, 0.6},
    {"model.autocast", -0.15, 0.75},  {"model.compile", 0, 0.35},  {"matmul.tf32", 0, 0.4},
    {"cudnn.benchmark", 0, 0.2},      {"optimizer.fused", 0, 0.8}, {"optimizer.foreach", 0, 0.6},
    {"optimizer.compile", 0, 0.8},    {"save.background", 0, 0.3}, {"threads", -0.1, 0.15},
    {"allocator.keep", 0, 0.5},       {"allocator", -0.1, 0.5},    {"huge_pages", -0.02, 0.1},
    {"cuda_allocator", -0.02, 0.05},  {"loader.batch", 0, 0.9},    {"loader.to_device", -0.02, 0.2},
    {"optimizer.accumulate", 0, 0.7},
};

// Any other technique.
constexpr Shares kHardlyAny{"", -0.02, 0.05};

Shares elsewhere(std::string_view technique) {
  const auto found = std::ranges::find(kElsewhere, technique, &Shares::technique);
  return found == std::end(kElsewhere) ? kHardlyAny : *found;
}

// One more value lies between both in four cases of five.
Shares usual(std::span<const double> shares) {
  const auto count = static_cast<double>(shares.size());
  const double middle = std::accumulate(shares.begin(), shares.end(), 0.0) / count;
  double squares = 0;
  for (const double share : shares) squares += (share - middle) * (share - middle);
  const double deviation = std::sqrt(squares / (count - 1));
  const double half =
      student_quantile(1 - kOutside, count - 1) * deviation * std::sqrt(1 + 1 / count);
  return {"", middle - half, middle + half};
}

}  // namespace

Forecast forecast(std::string_view technique,
                  std::optional<double> ceiling,
                  const SavedShares& history) {
  const auto known = history.find(technique);
  const bool has_history = known != history.end() && known->second.size() >= kEnoughTrials;
  const Shares shares = has_history ? usual(known->second) : elsewhere(technique);
  double low = std::log(gain_of_share(shares.low, ceiling));
  double high = std::log(gain_of_share(shares.high, ceiling));
  if (!has_history) {
    const double more = (high - low) / 2;
    low -= more;
    high += more;
  }
  const double most = ceiling.value_or(kNoCeiling);
  return {.gain = {std::min(most, std::exp(low) / kMeasured),
                   std::min(most, std::exp(high) * kMeasured)},
          .has_history = has_history};
}

}  // namespace ridge
