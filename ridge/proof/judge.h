// Decides from paired times whether one variant of a program is faster than another. The test is a
// bet against chance that may be looked at after every pair, and that no noise can win: drift,
// bursts and autocorrelation included.
//
// A coin decides for each pair whether the variant under test is timed as ABBA or as BAAB. Where it
// changes the time by the factor exp(-theta) and nothing else, what is left of the pair's log ratio
// after theta is noise times the coin's sign: symmetric given all that went before, whatever
// process the noise is. A player who stakes a share of the capital on the sign of each pair cannot
// expect to gain (Ville, 1939; Shafer, "Testing by betting", 2021): capital of 1 / alpha, ever, has
// probability alpha at most. The bets are against the largest theta that is not worth having, so a
// true gain above it makes the capital grow.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ridge/base/stats.h"

namespace ridge {

enum class Verdict : uint8_t { kOpen, kFaster, kNotFaster };

/// Gains are logarithms of before / after: 0.0198 is 1.02 times as fast.
struct JudgeOptions {
  double worth = 0.00995;      ///< kFaster: the gain is above this one.
  double hope = 0.0198;        ///< kNotFaster: the gain is below this one. At least `worth`.
  double accept_error = 0.05;  ///< Probability of kFaster, ever, for a gain of `worth` or less.
  double reject_error = 0.05;  ///< Probability of kNotFaster, ever, for `hope` or more.

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    constexpr double kLeastError = 1e-12;
    visit("worth", self.worth, -1.0, 1.0);
    visit("hope", self.hope, -1.0, 1.0);
    visit("accept_error", self.accept_error, kLeastError, 1.0);
    visit("reject_error", self.reject_error, kLeastError, 1.0);
  }
};

/// Capital of a player who starts with 1 and stakes several shares of it on every pair.
class Bets {
 public:
  /// `win` is in [-1, 1]: what a stake of 1 wins.
  void add(double win);
  double log_capital() const;

 private:
  std::array<double, 6> log_capital_{};  ///< One for each share.
};

class Judge {
 public:
  explicit Judge(const JudgeOptions& options) : options_(options) {}

  /// One pair, in the order of measurement: log(time before / time after), times of blocks taken as
  /// ABBA or BAAB by a fair coin. InternalError unless finite. The first verdict stands.
  Verdict add(double log_ratio);

  Verdict verdict() const { return verdict_; }
  /// Logarithm of the capital of a player who starts with 1 and bets that the gain is above
  /// `worth`, or below `hope`. A capital of 1 / error makes the verdict. Both stay as they are once
  /// it stands.
  double log_capital_for() const { return faster_.log_capital(); }
  double log_capital_against() const { return slower_.log_capital(); }
  std::span<const double> log_ratios() const { return log_ratios_; }

  /// The gains that the bets do not contradict: contains the true one with at least this confidence
  /// whatever rule ended the series, verdicts included. Nothing before enough pairs could tell.
  std::optional<ConfidenceInterval> interval(double confidence) const;

  /// Median of the log ratios; 0 without any.
  double centre() const;

 private:
  JudgeOptions options_;
  Verdict verdict_ = Verdict::kOpen;
  Bets faster_, slower_;  ///< Against a gain of at most `worth`; against one of at least `hope`.
  std::vector<double> log_ratios_;
  std::vector<double> scales_;  ///< One for each pair, from the pairs before it alone; 0: no bet.
};

constexpr double kVerdictConfidence = 0.95;

/// The verdict, but kOpen in place of kFaster until all gains that the bets do not contradict with
/// kVerdictConfidence are above 0: what is called faster has no interval that says otherwise.
Verdict borne_out(const Judge& judge);

/// Pairs after which a gain of `gain` would be accepted with a probability of about `power`, where
/// log ratios of pairs scatter by `deviation` (normal). For predictions and reports: no verdict
/// depends on it. `most` where that many do not suffice.
int64_t pairs_for_power(
    const JudgeOptions& options, double gain, double deviation, double power, int64_t most);

}  // namespace ridge
