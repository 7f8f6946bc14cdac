// The closed loop over a target (target.h): try one change at a time, keep what is proven faster
// and not worse, and prove the sum of it once more in fresh processes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

class Target;

struct LoopOptions {
  double budget_seconds = 120;
  /// Changes that make other updates (SemanticClass::kTrajectory) may be tried.
  bool allow_trajectory = false;
  uint64_t seed = 0;    ///< The seed of the coins.
  bool is_dry = false;  ///< Nothing is tried: changes are predicted, and listed in their order.
};

/// Is informed while the loop goes on.
class OptimizeObserver {
 public:
  virtual ~OptimizeObserver() = default;
  virtual void on_message(const std::string& text) = 0;
  virtual void on_trial(const TrialRecord& record) = 0;
  /// Work that begins now, such as "trying jit"; it goes on until the next call.
  virtual void on_work(const std::string& /*text*/) {}
};

/// Seconds of a run of the loop, from its construction on.
class LoopBudget {
 public:
  explicit LoopBudget(double seconds) : seconds_(seconds) {}

  double total() const { return seconds_; }
  double spent() const { return static_cast<double>(now_ns() - start_ns_) * 1e-9; }
  double left() const { return seconds_ - spent(); }
  /// Its end by now_ns().
  int64_t end_ns() const { return deadline(left()); }
  /// A time by now_ns().
  static int64_t deadline(double seconds_from_now) {
    return now_ns() + static_cast<int64_t>(std::max(0.0, seconds_from_now) * 1e9);
  }

 private:
  double seconds_;
  int64_t start_ns_ = now_ns();
};

struct OptimizeResult {
  OptimizeSummary summary;
  std::vector<TrialRecord> trials;
};

/// Ends within the budget, or soon after stop_requested(), with the best that is proven by then;
/// its claim is 1 and its recipe empty when nothing is. Each technique has a record, whenever it
/// ends. UserError where the subject cannot be run as it is.
OptimizeResult run_loop(Target& target, const LoopOptions& options, OptimizeObserver& observer);

}  // namespace ridge
