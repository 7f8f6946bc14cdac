// A third-party PyTorch program as the target of a tuning loop: what could be changed from outside,
// by a recipe (recipe.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/proof/ledger/ledger_history.h"
#include "ridge/tune/pytorch/program.h"
#include "ridge/tune/target.h"

namespace ridge {

struct ForeignOptimizeRequest {
  ForeignTarget target;
  /// How long the user's own run takes as it is: what a change costs once, as compiling does, has
  /// to come back within it. Nothing: what the command takes, or an hour where its end is not seen.
  std::optional<double> planned_seconds{};
  /// Trust in the recipes that are opened: those of the loop are its own, those of a ledger are
  /// not.
  RecipeTrust trust = RecipeTrust::kAnyVariable;
  GainHistory history{};  ///< Earlier runs on this machine measured these.
  /// Names of trial_order() that are tried alone; empty: all.
  std::vector<std::string> only{};
  /// Seconds for which both train after the proof (confirm.h); nothing: they do not.
  std::optional<double> confirm_seconds{};
  LoopOptions loop{.budget_seconds = 300};
};

/// 16 hex digits of the command.
std::string command_hash(const attach::CommandTemplate& command);

/// The program as a target of run_loop(), whose errors say what was looked for where it comes to no
/// step, and of replay().
std::unique_ptr<Target> program_target(ForeignOptimizeRequest request);

}  // namespace ridge
