#include "ridge/tune/pytorch/forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "ridge/proof/statistics.h"

namespace ridge {
namespace {

// The range of a next value follows from the mean and the deviation of those before it, as of
// normal numbers. So few of them leave the deviation itself uncertain, and the range wider.
constexpr size_t kEnoughTrials = 3;
constexpr double kOutside = 0.1;  // at each end

// A measured gain is itself off by this factor.
constexpr double kMeasured = 1.01;

// The part of a step that these are about was timed, and they save a share of it. The ceilings of
// others follow from operators that they could speed up at most, and say little: there the gains
// themselves are alike.
constexpr std::string_view kOfTimedParts[] = {"loader.", "optimizer.", "save."};

struct Shares {
  std::string_view technique;
  double low, high;
};

// Estimates by what bench/README.md says of programs like those of examples/pytorch, for techniques
// that this machine has not tried often enough. They are shares of what the ceiling is about.
constexpr Shares kElsewhere[] = {
    {"loader.cache", 0.5, 1},         {"loader.workers", 0, 0.9},
    {"loader.background", 0, 0.8},    {"loader.prefetch", -0.1, 0.3},
    {"loader.pin", -0.02, 0.1},       {"model.channels_last", 0, 0.6},
    {"model.autocast", -0.15, 0.75},  {"model.compile", 0, 0.35},
    {"model.quantize", -0.1, 0.5},    {"matmul.tf32", 0, 0.4},
    {"cudnn.benchmark", 0, 0.2},      {"optimizer.fused", 0, 0.8},
    {"optimizer.foreach", 0, 0.6},    {"optimizer.compile", 0, 0.8},
    {"save.background", 0, 0.3},      {"threads", -0.1, 0.15},
    {"allocator.keep", 0, 0.5},       {"allocator", -0.1, 0.5},
    {"huge_pages", -0.02, 0.1},       {"cuda_allocator", -0.02, 0.05},
    {"loader.batch", 0, 0.9},         {"loader.to_device", -0.02, 0.2},
    {"optimizer.accumulate", 0, 0.7},
};

// Any other technique.
constexpr Shares kHardlyAny{"", -0.02, 0.05};

Shares elsewhere(std::string_view technique) {
  const auto found = std::ranges::find(kElsewhere, technique, &Shares::technique);
  return found == std::end(kElsewhere) ? kHardlyAny : *found;
}

struct Ends {
  double low, high;
};

// One more value lies between both in four cases of five.
Ends usual(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double middle = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  const double deviation = std::sqrt(squares / (count - 1));
  const double half =
      student_quantile(1 - kOutside, count - 1) * deviation * std::sqrt(1 + 1 / count);
  return {middle - half, middle + half};
}

// Logarithms of the gain.
Ends by_shares(const Ends& shares, std::optional<double> ceiling) {
  return {std::log(gain_of_share(shares.low, ceiling)),
          std::log(gain_of_share(shares.high, ceiling))};
}

Ends by_history(std::string_view technique,
                std::optional<double> ceiling,
                std::span<const PastGain> history) {
  const bool saves_share = std::ranges::any_of(
      kOfTimedParts, [&](std::string_view part) { return technique.starts_with(part); });
  std::vector<double> values;
  for (const PastGain& past : history)
    values.push_back(saves_share ? saved_share(past.gain, past.ceiling) : std::log(past.gain));
  return saves_share ? by_shares(usual(values), ceiling) : usual(values);
}

// Twice as wide as the estimate.
Ends by_estimate(std::string_view technique, std::optional<double> ceiling) {
  const Shares shares = elsewhere(technique);
  const Ends ends = by_shares({shares.low, shares.high}, ceiling);
  const double more = (ends.high - ends.low) / 2;
  return {ends.low - more, ends.high + more};
}

}  // namespace

Forecast forecast(std::string_view technique,
                  std::string_view change,
                  std::optional<double> ceiling,
                  const GainHistory& history) {
  const auto known = history.find(change);
  const bool has_history = known != history.end() && known->second.size() >= kEnoughTrials;
  const Ends gain =
      has_history ? by_history(technique, ceiling, known->second) : by_estimate(technique, ceiling);
  const double most = ceiling.value_or(kNoCeiling);
  return {.gain = {std::min(most, std::exp(gain.low) / kMeasured),
                   std::min(most, std::exp(gain.high) * kMeasured)},
          .has_history = has_history};
}

}  // namespace ridge
