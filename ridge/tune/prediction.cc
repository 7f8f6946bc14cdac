#include "ridge/tune/prediction.h"

#include <algorithm>

namespace ridge {
namespace {

// Measured gains lay within these shares of the modelled one: threads that take turns on a CPU
// lose more than the model says, and rarely win more.
constexpr double kLeastShare = 0.7, kMostShare = 1.2;

// What remains uncertain where the model sees no change.
constexpr double kNoise = 0.02;

}  // namespace

double modelled_step(const StepCosts& costs, int cpus) {
  if (costs.workers == 0) return costs.compute + costs.load;
  const double cpu_seconds =
      costs.compute * static_cast<double>(std::min<int64_t>(costs.threads, cpus)) +
      costs.load * static_cast<double>(std::min<int64_t>(costs.workers, cpus));
  return std::max({costs.compute, costs.load, cpu_seconds / static_cast<double>(cpus)});
}

SpeedRange predicted_speedup(const StepCosts& before, const StepCosts& after, int cpus) {
  const double work = after.samples / before.samples;
  const double gain = work * modelled_step(before, cpus) / modelled_step(after, cpus) - 1;
  const double least = gain > 0 ? kLeastShare : kMostShare;
  const double most = gain > 0 ? kMostShare : kLeastShare;
  return {.low = std::max(0.05, 1 + gain * least - kNoise), .high = 1 + gain * most + kNoise};
}

double loading_ceiling(const StepCosts& costs) { return std::max(1.0, costs.step / costs.compute); }

double computing_ceiling(const StepCosts& costs) {
  return std::max(1.0, costs.step / std::max(costs.load, costs.host));
}

double batch_ceiling(const StepCosts& costs, double growth) {
  return std::max(1.0, std::min(growth, costs.step / costs.load));
}

}  // namespace ridge
