#include "ridge/tune/pytorch/forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace ridge {
namespace {

// The next value lies between the least and the most of n in (n - 1) / (n + 1) of all cases, which
// is four of five for nine.
constexpr size_t kEnoughTrials = 9;

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
Shares usual(std::vector<double> shares) {
  std::ranges::sort(shares);
  const size_t outside = (shares.size() + 1) / 10;  // At each end, counted from 1.
  return {"", shares[outside - 1], shares[shares.size() - outside]};
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
