#include "ridge/proof/trial_order.h"

#include <algorithm>
#include <cmath>

#include "ridge/proof/judge.h"

namespace ridge {
namespace {

// A trial of what is likely to gain less, and sure not to gain kWorthHoping, would end without a
// change.
constexpr double kWorthTrying = 1.01, kWorthHoping = 1.05;

constexpr double kEqual = 1.1;

// Pairs before the judge has enough to bet with, and what the bets need besides: both seen in
// trials of known gains.
constexpr double kLeastPairs = 8, kPairsOfNoise = 30, kMostPairs = 200;

}  // namespace

double middle_of(const SpeedRange& predicted) { return std::sqrt(predicted.low * predicted.high); }

bool is_worth_trying(const SpeedRange& predicted) {
  return middle_of(predicted) >= kWorthTrying || predicted.high >= kWorthHoping;
}

double value_of(const Promise& promise) { return (1 - 1 / promise.gain) / promise.seconds; }

std::optional<size_t> most_promising(std::span<const std::optional<Promise>> promises) {
  std::optional<size_t> best;
  double most = 0;
  for (size_t i = 0; i < promises.size(); ++i) {
    if (!promises[i]) continue;
    double value = value_of(*promises[i]);
    if (promises[i]->loads && value > 0) value *= kEqual;
    if (best && value <= most) continue;
    best = i;
    most = value;
  }
  return best;
}

double pairs_expected(double gain, double noise) {
  const double above = std::log(std::max(gain, 1.0)) - JudgeOptions{}.worth;
  if (above <= 0) return kMostPairs;
  const double ratio = noise / above;
  return std::min(kMostPairs, kLeastPairs + kPairsOfNoise * ratio * ratio);
}

}  // namespace ridge
