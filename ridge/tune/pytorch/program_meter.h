// The times of a third-party program: a first run of it, a step of it as it is, and a step with
// what was kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/proof/proof_budget.h"
#include "ridge/tune/pytorch/program.h"
#include "ridge/tune/pytorch/runner.h"

namespace ridge {

/// The first run of a program.
struct ProgramProbe {
  attach::ProcessFacts facts;
  std::string how;           ///< How it is kept from the user's files, in words.
  double start_seconds = 0;  ///< Seconds from the start of the program to its first step.
  int64_t whole_steps = 0;   ///< Steps of a run from start to end; 0: it did not end by itself.
  double whole_seconds = 0;  ///< Seconds of such a run.
};

class ProgramMeter {
 public:
  /// The user's own run takes `planned_seconds`, where the user says so. In a dry run no budget is
  /// too small.
  ProgramMeter(const ForeignTarget& target, std::optional<double> planned_seconds, bool is_dry)
      : target_(target), planned_seconds_(planned_seconds), is_dry_(is_dry) {}

  /// Runs the program until it has made some steps. VariantFailed where it fails or makes none,
  /// UserError where the budget is too small for it, TrialStopped with stop_requested().
  void probe(const LoopView& loop);
  /// Times a step of the program as it is, and reports it.
  void measure_baseline(ForeignRunner& best, const LoopView& loop);
  /// UserError where no verdict can stand within the budget; notes where starts take most of it.
  void check_budget(const ForeignRunner& best, double guard_seconds, const LoopView& loop);
  /// `best` was kept, as `trial` timed it.
  void keep(const ForeignRunner& best, const TrialResult& trial);

  const attach::ProcessFacts& facts() const { return probe_.facts; }
  /// Seconds of a step with what was kept, and the share of it that waits for data.
  double step_seconds() const { return step_seconds_; }
  double wait_share() const { return wait_share_; }
  /// Seconds of a run that ends after so many steps.
  double run_seconds(int64_t steps) const {
    return start_seconds_ + static_cast<double>(steps) * step_seconds_;
  }
  /// Steps of the user's own run: as planned, or as a run had that ended by itself.
  double planned_steps(const ForeignRunner& best) const;
  /// False: planned_steps() are those of an hour, for nobody knows better.
  bool is_run_known() const { return planned_seconds_ || probe_.whole_steps > 0; }
  /// The costs of timing the pair; Target::timing_costs().
  TimingCosts timing_costs(const ForeignRunner& best,
                           const ForeignRunner& other,
                           bool of_baseline) const;

 private:
  ProgramTimes times() const;
  void take_trouble(const ProgramTimes& known, const LoopView& loop, bool is_noted) const;

  const ForeignTarget& target_;
  std::optional<double> planned_seconds_;
  bool is_dry_;
  ProgramProbe probe_;
  double start_seconds_ = 0;     ///< Seconds from the start of the program until it steps.
  double baseline_seconds_ = 0;  ///< Seconds of a step of the program as it is.
  double step_seconds_ = 0, wait_share_ = 0;
};

}  // namespace ridge
