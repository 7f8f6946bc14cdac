// What a change would gain, from what its parts cost alone. Parts are measured by taking the others
// away (engine_variant.h), the change as a whole is only modelled: a trial then says how good that
// was.
#pragma once

#include <cstdint>

#include "ridge/tune/trial_record.h"

namespace ridge {

/// What a step of a variant costs, in seconds.
struct StepCosts {
  double step = 0;        ///< As it is.
  double compute = 0;     ///< On batches that lie in memory: without the loader.
  double load = 0;        ///< A batch, by the loader alone, with all its threads.
  double host = 0;        ///< Without kernels.
  double wait_share = 0;  ///< Of the step, in which it waits for data.
  int64_t workers = 0;    ///< Of the loader.
  int64_t threads = 1;    ///< That compute.
  double samples = 1;     ///< Of a step.
};

/// Seconds of a step by its parts. Without workers it loads, then computes. With them both go on
/// at the same time, as fast as the slower of them and as the CPUs allow.
double modelled_step(const StepCosts& costs, int cpus);

/// How much faster `after` would be than `before`, a sample: the ratio that the model gives, with
/// room for what it leaves out. after.step is not read.
SpeedRange predicted_speedup(const StepCosts& before, const StepCosts& after, int cpus);

/// The most that a change could gain that makes loading free, and one that makes computing free.
double loading_ceiling(const StepCosts& costs);
double computing_ceiling(const StepCosts& costs);
/// The most that a batch could gain a sample that is so many times as large: what a step costs
/// once, and it all, is spread over more samples; loading is not.
double batch_ceiling(const StepCosts& costs, double growth);

}  // namespace ridge
