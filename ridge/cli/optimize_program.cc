#include "ridge/cli/optimize_program.h"

#include <cstdlib>
#include <filesystem>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/machine/machine.h"
#include "ridge/cli/optimize_output.h"
#include "ridge/cli/signals.h"
#include "ridge/tune/pytorch/technique.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// "train" of "python train.py".
std::string name_of(const attach::CommandTemplate& command) {
  for (const std::string& word : command.words())
    if (word.ends_with(".py")) return fs::path(word).stem().string();
  return fs::path(command.words().front()).filename().string();
}

// Results of all programs go there, and nowhere near a program's own files unless --out says so.
// Empty where no variable says where that is.
fs::path state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return fs::path(state) / "ridge";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".local" / "state" / "ridge";
}

fs::path default_folder(const attach::CommandTemplate& command) {
  const fs::path folder = state_folder();
  check(!folder.empty(),
        "neither XDG_STATE_HOME nor HOME says where results can be kept; give --out DIR");
  return folder / (name_of(command) + "-" + command_hash(command).substr(0, 8) + "-optimize");
}

GainHistory history_of(const std::string& machine) {
  const fs::path folder = state_folder();
  if (folder.empty()) return {};
  return gain_history(ledgers_beneath(folder), machine);
}

}  // namespace

ForeignTarget make_target(const ForeignCommand& command, const RerunOptions& options) {
  attach::CommandTemplate text(*command);
  const attach::Consent consent = attach::consent_to(text, options.sandbox, options.rerun);
  return {.command = std::move(text),
          .consent = consent,
          .supervisor = fs::read_symlink("/proc/self/exe").string()};
}

int run_optimize_program(const OptimizeProgramOptions& options, const ForeignCommand& command) {
  const double budget = options.budget.value_or(kProgramBudget);
  check_budget(budget);
  const ForeignOptimizeRequest request{.target = make_target(command, options.rerun),
                                       .planned_seconds = options.planned,
                                       .history = history_of(machine_fingerprint("cpu")),
                                       .only = chosen_techniques(options.only),
                                       .confirm_seconds = options.confirm,
                                       .loop = {.budget_seconds = budget,
                                                .allow_trajectory = options.allow_trajectory,
                                                .seed = options.seed,
                                                .is_dry = options.dry_run}};
  if (options.dry_run) {
    const StopSignals signals;
    TrialLog log(nullptr);
    return tell_result(run_loop(*program_target(request), request.loop, log),
                       {options.json, options.all});
  }
  const fs::path out =
      options.out.empty() ? default_folder(request.target.command) : fs::path(options.out);
  make_folder(out);
  LedgerWriter ledger(out / "ledger.jsonl",
                      {.target = name_of(request.target.command),
                       .config = request.target.command.text(),
                       .config_hash = command_hash(request.target.command),
                       .machine = machine_fingerprint("cpu"),
                       .version = RIDGE_VERSION,
                       .started = utc_time(wall_ns()),
                       .budget_s = budget,
                       .seed = options.seed});
  const StopSignals signals;
  TrialLog log(&ledger);
  OptimizeResult result = run_loop(*program_target(request), request.loop, log);
  if (options.price_per_hour > 0) result.summary.price_per_hour = options.price_per_hour;
  return write_result(std::move(result), out, {options.json, options.all});
}

}  // namespace ridge
