#include "ridge/proof/judge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/philox.h"

namespace ridge {
namespace {

// Shares of the capital that are staked side by side, an equal part of it each: small ones win
// slowly on faint gains, large ones quickly on clear ones. Below 1, so that no pair can lose
// everything.
constexpr std::array kStakes = {0.1, 0.2, 0.4, 0.6, 0.8, 0.95};

// Pairs without a bet at the start, which give the first scale.
constexpr size_t kUnstaked = 2;

// A pair wins in proportion to its log ratio up to this many deviations, and no more beyond: one
// pair that a burst hit says no more than its sign.
constexpr double kClip = 2.0;

// Clocks are not better than this.
constexpr double kLeastScale = 1e-5;

// Returns the win of one pair at a stake of 1, in [-1, 1], for a bet that the gain is above
// `theta`.
double winnings(double log_ratio, double theta, double scale) {
  return std::clamp((log_ratio - theta) / (kClip * scale), -1.0, 1.0);
}

// The largest logarithm of the capital at any time, cut at `stop`. `sign` 1 bets on gains above
// theta, -1 on gains below it. Capital once had counts: a player may stop.
double most_log_capital(std::span<const double> log_ratios,
                        std::span<const double> scales,
                        double theta,
                        double sign,
                        double stop) {
  Bets bets;
  double most = 0;
  for (size_t i = kUnstaked; i < log_ratios.size(); ++i) {
    bets.add(sign * winnings(log_ratios[i], theta, scales[i]));
    most = std::max(most, bets.log_capital());
    if (most >= stop) return stop;
  }
  return most;
}

// From what is known before the pair, and shifted with all of it: the deviation of normal data.
double scale_of(std::span<const double> earlier) {
  return std::max(kLeastScale, 1.4826 * median_absolute_deviation(earlier));
}

}  // namespace

void Bets::add(double win) {
  for (size_t i = 0; i < kStakes.size(); ++i) log_capital_[i] += std::log1p(kStakes[i] * win);
}

double Bets::log_capital() const {
  const double most = *std::max_element(log_capital_.begin(), log_capital_.end());
  double sum = 0;
  for (double c : log_capital_) sum += std::exp(c - most);
  return most + std::log(sum / static_cast<double>(kStakes.size()));
}

Verdict Judge::add(double log_ratio) {
  check_internal(std::isfinite(log_ratio), "[Judge::add] log ratio {}", log_ratio);
  const bool staked = log_ratios_.size() >= kUnstaked;
  const double scale = staked ? scale_of(log_ratios_) : 0.0;
  scales_.push_back(scale);
  log_ratios_.push_back(log_ratio);
  if (!staked || verdict_ != Verdict::kOpen) return verdict_;
  faster_.add(winnings(log_ratio, options_.worth, scale));
  slower_.add(-winnings(log_ratio, options_.hope, scale));
  if (faster_.log_capital() >= -std::log(options_.accept_error))
    verdict_ = Verdict::kFaster;
  else if (slower_.log_capital() >= -std::log(options_.reject_error))
    verdict_ = Verdict::kNotFaster;
  return verdict_;
}

double Judge::centre() const { return log_ratios_.empty() ? 0 : median(log_ratios_); }

std::optional<ConfidenceInterval> Judge::interval(double confidence) const {
  if (log_ratios_.size() <= kUnstaked) return std::nullopt;
  const double stop = -std::log((1 - confidence) / 2);
  // The capital of a player against theta falls with theta: the bound is where it crosses `stop`.
  const auto bound = [&](double sign) -> std::optional<double> {
    const auto contradicted = [&](double theta) {
      return most_log_capital(log_ratios_, scales_, theta, sign, stop) >= stop;
    };
    double out = centre() - sign * 100.0, in = centre();
    if (!contradicted(out)) return std::nullopt;
    for (int i = 0; i < 60; ++i) {
      const double middle = 0.5 * (out + in);
      (contradicted(middle) ? out : in) = middle;
    }
    return out;
  };
  const auto low = bound(1), high = bound(-1);
  if (!low || !high) return std::nullopt;
  return ConfidenceInterval{*low, *high, confidence};
}

Verdict borne_out(const Judge& judge) {
  if (judge.verdict() != Verdict::kFaster) return judge.verdict();
  const auto interval = judge.interval(kVerdictConfidence);
  return interval && interval->low > 0 ? Verdict::kFaster : Verdict::kOpen;
}

int64_t pairs_for_power(
    const JudgeOptions& options, double gain, double deviation, double power, int64_t most) {
  constexpr int kSeries = 200;
  const uint64_t key = rng_philox_key(0, 0x706f776572);
  std::vector<int64_t> ends;
  for (int series = 0; series < kSeries; ++series) {
    Judge judge(options);
    int64_t pairs = 0;
    while (pairs < most && judge.verdict() == Verdict::kOpen) {
      const PhiloxWords words =
          rng_block(key, static_cast<uint64_t>(series), static_cast<uint64_t>(pairs++));
      const double u = (words.word[0] + 0.5) * 0x1p-32, v = words.word[1] * 0x1p-32;
      judge.add(gain + deviation * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
    }
    ends.push_back(judge.verdict() == Verdict::kFaster ? pairs : most);
  }
  std::sort(ends.begin(), ends.end());
  return ends[std::min<size_t>(kSeries - 1, static_cast<size_t>(std::ceil(power * kSeries)))];
}

}  // namespace ridge
