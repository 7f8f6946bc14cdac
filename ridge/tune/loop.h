// The closed loop over a training configuration: measure, try one technique at a time, keep what is
// proven faster and not worse, and prove the sum of it once more in fresh processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridge/config/text.h"
#include "ridge/proof/report/summary.h"
#include "ridge/proof/trial_record.h"
#include "ridge/tune/engine/techniques.h"

namespace ridge {

struct OptimizeRequest {
  std::string config_text;        ///< TOML.
  std::string config_name;        ///< Path of the file, for messages.
  std::vector<ConfigFlag> flags;  ///< Laid over it; no technique changes what they set.
  std::string program;            ///< Path of ridge, which the variants run in.
  double budget_seconds = 120;
  /// Bytes that state, arena and what the loader stages may take together: the fastest way to keep
  /// within them is then what is looked for. 0: any number.
  int64_t memory_bytes = 0;
  /// Changes that make other updates (SemanticClass::kTrajectory) may be tried.
  bool allow_trajectory = false;
  uint64_t seed = 0;    ///< Of the coins.
  bool is_dry = false;  ///< Nothing is tried: all is predicted, and listed in the order of trials.
  std::span<const Technique> techniques = ridge::techniques();
};

/// Told while the loop goes on.
class OptimizeObserver {
 public:
  virtual ~OptimizeObserver() = default;
  virtual void on_message(const std::string& text) = 0;
  virtual void on_trial(const TrialRecord& record) = 0;
  /// What begins now, such as "trying jit"; it goes on until anything else is told.
  virtual void on_work(const std::string& /*what*/) {}
};

struct OptimizeResult {
  OptimizeSummary summary;
  std::vector<TrialRecord> trials;
};

/// Ends within the budget, or soon after stop_requested(), with the best that is proven by then;
/// its claim is 1 and its recipe empty when nothing is. Touches no file of the user. Every
/// technique has a record, whenever it ends. UserError where the configuration cannot be run as it
/// is.
OptimizeResult optimize(const OptimizeRequest& request, OptimizeObserver& observer);

}  // namespace ridge
