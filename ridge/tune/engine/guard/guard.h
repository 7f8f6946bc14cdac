// The numeric guard: whether a candidate program trains as the reference does. What is compared
// depends on the semantic class of the change.
//
//   class 0   the bits of the whole state after some steps
//   class 1   step by step: both start from the same states along the reference's trajectory
//             (teacher forcing), with the same real batches; the state after the step is compared
//             tensor by tensor, with the same formula in f64 (the oracle) as the truth
//   class 2   the same with the limits of the lower precision, then whole runs in pairs
//
// A change of the trajectory (class 3) has no steps to compare: trajectory.h.
//
// The gradient is read off the moments, g = (m' - beta1 m) / (1 - beta1), so that nothing inside a
// program needs to be instrumented.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/nn/options.h"
#include "ridge/proof/paired_runs.h"
#include "ridge/tune/engine/guard/data.h"
#include "ridge/tune/engine/guard/variant.h"

namespace ridge {

struct GuardOptions {
  SemanticClass semantic_class = SemanticClass::kReassociation;  ///< Not kTrajectory.
  nn::OptimizerOptions optimizer;                                ///< The reference's.
  nn::ScheduleOptions schedule;                                  ///< The reference's.
  int64_t total_steps = 1000;                                    ///< Of the whole run.

  int64_t hash_steps = 3;  ///< Class 0.

  int64_t stride = 2;   ///< Steps of the reference between the states that steps start from.
  int64_t batches = 3;  ///< At each state; at least 2, since they show the mini-batch noise.
  /// Most passes over the points of the schedule: later ones are only run while a tensor's data
  /// cannot tell.
  int64_t rounds = 3;

  int64_t pairs = 5;       ///< Of runs; at least 3.
  int64_t run_steps = 40;  ///< Of each run; the last half of its losses counts.
};

enum class GuardTest : uint8_t {
  kHash,      ///< Class 0: the bits of the state.
  kAccuracy,  ///< Error against the oracle, beside the reference's own or the precision's.
  kNoise,     ///< Variance of the error against the mini-batch noise.
  kSlope,     ///< Slope of candidate on reference.
  kUpdate,    ///< New parameters, given equal moments.
  kExact,     ///< What must be equal: flags, and gradient buffers that must be clear.
  kOverflow,  ///< A step that is not finite must change nothing.
  kLoss,      ///< Paired runs.
};
std::string_view name_of(GuardTest test);

struct GuardFailure {
  GuardTest test = GuardTest::kHash;
  std::string tensor;  ///< Such as "layers.0.weight: gradient"; empty for the whole state.
  int64_t step = 0;    ///< Number of the step at which it showed most.
  double value = 0, limit = 0;
};

enum class GuardVerdict : uint8_t { kPassed, kFailed, kCannotTell };

/// One tensor as the steps saw it. Errors are norms relative to the oracle's tensor.
struct GuardRow {
  std::string tensor;
  double error = 0, reference_error = 0, error_limit = 0;
  double noise_share = 0;  ///< Variance of the error over the variance from batch to batch.
  double slope = 1, slope_error = 0;  ///< With its standard error.
  GuardVerdict verdict = GuardVerdict::kPassed;
};

struct GuardReport {
  bool passed = false;
  std::vector<GuardFailure> failures;  ///< Worst first.
  std::vector<GuardRow> tensors;
  int64_t undecided = 0;  ///< Rows whose data cannot tell.
  int64_t points = 0;     ///< States that steps started from.
  std::optional<GuardRuns> runs;
  std::string text;  ///< One line.
};

/// `oracle` is the reference in f64 (oracle_config). Afterwards the reference has its state back;
/// the others have any.
struct GuardVariants {
  Variant& reference;
  Variant& candidate;
  Variant& oracle;
};

/// All that the class asks for; runs only where the steps passed. UserError for kTrajectory, and
/// for data too few for the batches.
GuardReport guard(const GuardVariants& variants,
                  const GuardData& data,
                  const GuardOptions& options);

/// The most steps that guard() runs, those of all three programs together: what a budget can go by.
/// The oracle's take about twice as long as the reference's.
int64_t most_guard_steps(const GuardOptions& options);

/// The parts of it. Each starts from the state that the reference has.
GuardReport guard_hash(const GuardVariants& variants,
                       const GuardData& data,
                       const GuardOptions& options);
GuardReport guard_steps(const GuardVariants& variants,
                        const GuardData& data,
                        const GuardOptions& options);
GuardReport guard_runs(const GuardVariants& variants,
                       const GuardData& data,
                       const GuardOptions& options);

struct GuardBisection {
  bool mended = false;
  std::vector<std::string> modules;  ///< None can be left out; empty where nothing mends it.
  int64_t trials = 0;
};
/// The least of `modules` that a candidate must keep in f32 to pass. `passes` makes a candidate of
/// some (pins_of) and guards it. At most `most_trials` calls: where they do not suffice, modules
/// that could be left out may be among the result.
GuardBisection bisect_modules(const std::vector<std::string>& modules,
                              const std::function<bool(const std::vector<std::string>&)>& passes,
                              int64_t most_trials);

}  // namespace ridge
