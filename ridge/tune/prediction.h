// What a change would gain, from what its parts cost alone. Parts are measured by taking the others
// away (engine_variant.h), the change as a whole is only modelled: a trial then says how good that
// was.
#pragma once

#include <cstdint>
#include <span>

#include "ridge/proof/trial_record.h"

namespace ridge {

/// The costs of a step of a variant, in seconds.
struct StepCosts {
  double step = 0;        ///< The whole step.
  double compute = 0;     ///< On batches that lie in memory: without the loader.
  double load = 0;        ///< A batch, by the loader alone, with all its threads.
  double host = 0;        ///< Without kernels.
  double report = 0;      ///< The report of a step: its result is read, lines are written.
  double wait_share = 0;  ///< Share of the step in which it waits for data.
  int64_t workers = 0;    ///< Threads of the loader.
  int64_t threads = 1;    ///< Threads of the host that compute.
  double samples = 1;     ///< Samples of a step.
  double noise = 0;       ///< Standard deviation of the logarithm of a pair of blocks.
};

/// Seconds of a step by its parts. Without workers it loads, then computes. With them both go on
/// at the same time, as fast as the slower of them and as the CPUs allow.
double modelled_step(const StepCosts& costs, int cpus);

/// Steps that a block needs for what loads ahead to be timed as it runs: where a sample takes
/// longer to load than a step to compute and threads make up for it, the last load of a block
/// outlasts its last step. `queue` batches are kept ready.
int64_t least_block_steps(const StepCosts& costs, int64_t queue);

/// The change of the time of a part: log(after / before), and how far off that may be.
struct PartChange {
  double log_ratio = 0, error = 0;
};

/// The change between times of both, taken in turn: the i-th of each are neighbours, at least one
/// of each, all above 0. The error is what the median of so many pairs is off by, in four cases of
/// five, by what they scatter; single bursts do not count.
PartChange part_change(std::span<const double> before, std::span<const double> after);

/// All that a change does to a step.
struct StepChange {
  PartChange compute{}, load{};  ///< What it does not touch has no change and no error.
  int64_t workers_after = 0, threads_after = 1;
  double work = 1;  ///< Samples of a step after over those before.
};

/// How much faster a step of `before` would be, a sample. A part that both variants were timed on
/// has the error of that; where loading and computing go on at once, what they take from each other
/// is only modelled, and the range holds both ends.
SpeedRange predicted_speedup(const StepCosts& before, const StepChange& change, int cpus);

/// The most that a change could gain that makes loading free, and one that makes computing free,
/// but not more than kNoCeiling.
double loading_ceiling(const StepCosts& costs);
double computing_ceiling(const StepCosts& costs);
/// The most that a change could gain that makes reports of steps free.
double reporting_ceiling(const StepCosts& costs);
/// The most that a batch could gain a sample that is so many times as large: what a step costs
/// once, and it all, is spread over more samples; loading is not.
double batch_ceiling(const StepCosts& costs, double growth);

/// t = launch + a sample's share: what a micro-batch costs whatever its size, and what each sample
/// adds, in seconds.
struct BatchCosts {
  double launch = 0;        ///< At least 0.
  double launch_error = 0;  ///< How far it may be off.
  double sample = 0;
};

/// From the time of a step's computation in `micro` parts, and of one in `more` parts; `micro` <
/// `more`, at a batch of `samples`.
BatchCosts batch_costs(
    double seconds, PartChange with_more, int64_t micro, int64_t more, int64_t samples);

/// The most that could be gained by what only saves launches, of a step in `micro` parts.
double launching_ceiling(const StepCosts& costs, const BatchCosts& batch, int64_t micro);

}  // namespace ridge
