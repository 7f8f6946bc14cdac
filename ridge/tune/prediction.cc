#include "ridge/tune/prediction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/stats.h"

namespace ridge {
namespace {

// Where loading begins to overlap with computing, or ends to, measured gains lay within these
// shares of the modelled one: threads that take turns on a CPU lose more than the model says, and
// rarely win more.
constexpr double kLeastShare = 0.7, kMostShare = 1.2;

// Of what would be gained if threads took no time from each other, where the model sees no gain.
constexpr double kIdleShare = 0.35;

// Logarithms: what parts cost each other that are measured alone; the same for each e-fold of the
// gain, since little is left then for what was not measured to count in; and what a trial that ends
// early is off by, of the noise of a pair.
constexpr double kApart = 0.025, kApartOfGain = 0.05, kEarlyEnd = 0.5;

// Of what the model is off where the step is known, what it may be off by where it is not.
constexpr double kSameMistake = 0.5, kMostMistake = 0.1;

// A part as it would be, `sign` errors off.
double after(double seconds, const PartChange& change, int sign) {
  return seconds * std::exp(change.log_ratio + sign * change.error);
}

StepCosts after(const StepCosts& before, const StepChange& change, int sign) {
  StepCosts costs = before;
  costs.compute = after(before.compute, change.compute, sign);
  costs.load = after(before.load, change.load, sign);
  costs.workers = change.workers_after;
  costs.threads = change.threads_after;
  return costs;
}

// The same as if threads took no time from each other.
double free_step(const StepCosts& costs) {
  return costs.workers == 0 ? costs.compute + costs.load : std::max(costs.compute, costs.load);
}

double stretched(double gain, double share) { return 1 + (gain - 1) * share; }

// Both ends of the error, by both models.
SpeedRange modelled_range(const StepCosts& before, const StepChange& change, int cpus) {
  SpeedRange range{.low = INFINITY, .high = 0};
  for (const int sign : {-1, 1}) {
    const StepCosts costs = after(before, change, sign);
    for (const double gain : {modelled_step(before, cpus) / modelled_step(costs, cpus),
                              free_step(before) / free_step(costs)}) {
      range.low = std::min(range.low, gain);
      range.high = std::max(range.high, gain);
    }
  }
  return range;
}

}  // namespace

double modelled_step(const StepCosts& costs, int cpus) {
  if (costs.workers == 0) return costs.compute + costs.load;
  const double cpu_seconds =
      costs.compute * static_cast<double>(std::min<int64_t>(costs.threads, cpus)) +
      costs.load * static_cast<double>(std::min<int64_t>(costs.workers, cpus));
  return std::max({costs.compute, costs.load, cpu_seconds / static_cast<double>(cpus)});
}

int64_t least_block_steps(const StepCosts& costs, int64_t queue) {
  constexpr double kNear = 0.8;  // as near as that, some samples do
  const double alone = costs.load * static_cast<double>(costs.workers);
  return costs.workers > 0 && alone > kNear * costs.compute ? 4 * std::max<int64_t>(1, queue) : 1;
}

PartChange part_change(std::span<const double> before, std::span<const double> after) {
  check_internal(!before.empty() && before.size() == after.size(),
                 "[part_change] {} times before, {} after",
                 before.size(),
                 after.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < before.size(); ++i) ratios.push_back(std::log(after[i] / before[i]));
  // What the median of normal data is off by, four times of five; a deviation that so few pairs
  // tell is too small as a rule.
  constexpr double kFourOfFive = 1.28, kMedian = 1.2533, kDeviation = 1.4826;
  const auto count = static_cast<double>(ratios.size());
  return {.log_ratio = median(ratios),
          .error = kFourOfFive * kMedian * kDeviation * median_absolute_deviation(ratios) *
                   (1 + 2 / count) / std::sqrt(count)};
}

SpeedRange predicted_speedup(const StepCosts& before, const StepChange& change, int cpus) {
  SpeedRange range;
  if ((before.workers == 0) == (change.workers_after == 0)) {
    range = modelled_range(before, change, cpus);
  } else {
    // A part's error counts by the part's share of the step.
    const auto gain_at = [&](int sign) {
      return modelled_step(before, cpus) / modelled_step(after(before, change, sign), cpus);
    };
    const double least = std::min(gain_at(1), gain_at(-1));
    const double most = std::max(gain_at(1), gain_at(-1));
    range.low = stretched(least, least > 1 ? kLeastShare : kMostShare);
    range.high = stretched(most, most > 1 ? kMostShare : kLeastShare);
    // Threads that compute do not hold their CPUs all of the time, whatever the model says.
    range.high = std::max(
        range.high, stretched(free_step(before) / free_step(after(before, change, 0)), kIdleShare));
  }
  range.low *= change.work;
  range.high *= change.work;
  const double mistake =
      before.step > 0 ? std::abs(std::log(before.step / modelled_step(before, cpus))) : 0;
  const double known =
      kApart + kEarlyEnd * before.noise + std::min(kMostMistake, kSameMistake * mistake);
  const auto end = [known](double gain, int sign) {
    return std::max(0.05,
                    gain * std::exp(sign * (known + kApartOfGain * std::abs(std::log(gain)))));
  };
  return {.low = end(range.low, -1), .high = end(range.high, 1)};
}

double loading_ceiling(const StepCosts& costs) { return std::max(1.0, costs.step / costs.compute); }

double reporting_ceiling(const StepCosts& costs) {
  return costs.report < costs.step ? std::max(1.0, costs.step / (costs.step - costs.report)) : 1.0;
}

double computing_ceiling(const StepCosts& costs) {
  return std::clamp(costs.step / std::max(costs.load, costs.host), 1.0, kNoCeiling);
}

double batch_ceiling(const StepCosts& costs, double growth) {
  return std::max(1.0, std::min(growth, costs.step / costs.load));
}

BatchCosts batch_costs(
    double seconds, PartChange with_more, int64_t micro, int64_t more, int64_t samples) {
  check_internal(micro < more && samples > 0, "[batch_costs] {} parts, then {}", micro, more);
  const double longer = seconds * std::exp(with_more.log_ratio);
  const auto parts = static_cast<double>(more - micro);
  BatchCosts costs;
  costs.launch = std::clamp((longer - seconds) / parts, 0.0, seconds / static_cast<double>(micro));
  costs.launch_error = longer * with_more.error / parts;
  costs.sample =
      (seconds - static_cast<double>(micro) * costs.launch) / static_cast<double>(samples);
  return costs;
}

double launching_ceiling(const StepCosts& costs, const BatchCosts& batch, int64_t micro) {
  const double launches =
      std::min(costs.compute, static_cast<double>(micro) * (batch.launch + batch.launch_error));
  return std::max(1.0, costs.step / std::max(costs.step - launches, 0.05 * costs.step));
}

}  // namespace ridge
