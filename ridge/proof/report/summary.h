// The results of `ridge optimize` apart from the single trials: its report is made from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/proof/report/step_timeline.h"

namespace ridge {

struct MemoryShare {
  std::string role;  ///< "parameter", "optimizer", "arena"
  int64_t bytes = 0;
  bool operator==(const MemoryShare&) const = default;
};

/// One variant in steady state.
struct VariantSpeed {
  double step_ms = 0;       ///< Median; 0: not measured.
  double step_samples = 0;  ///< Mean over an epoch; 0: not known.
  double samples_per_s = 0;
  double loader_wait_share = 0;  ///< 0 to 1.
  int64_t planned_bytes = 0;
  int64_t measured_bytes = 0;  ///< 0: not measured.
  int64_t device_bytes = 0;    ///< Memory of GPUs at its peak; 0: none, or not measured.
  /// Shares, 0 to 1, of the time of all processors that it may use, and of the GPU, in which they
  /// do nothing for it; nothing: not measured.
  std::optional<double> cpu_idle_share = {}, device_idle_share = {};
  std::optional<double> joules_per_step;  ///< Nothing: not measured.
  std::string config;                     ///< TOML of all that it ran with.
  StepTimeline timeline;                  ///< One step; without launches: not recorded.
  std::vector<MemoryShare> memory;        ///< Its bytes by role; sums to planned_bytes.
  /// Median and 99th percentile of single runs of a model, and the time from its file to the first
  /// result. Nothing: not measured.
  std::optional<double> p50_ms = {}, p99_ms = {}, first_ms = {};

  /// A step of `step_samples` takes so many seconds, and waits for data in a share of them.
  void set_step(double seconds, double wait_share) {
    step_ms = 1e3 * seconds;
    samples_per_s = seconds > 0 ? step_samples / seconds : 0;
    loader_wait_share = wait_share;
  }
};

/// The only number that is claimed: from the final proof, in fresh processes. It is of the time for
/// the same samples.
struct OptimizeClaim {
  double speedup = 1, low = 1, high = 1;  ///< All 1: nothing was gained.
  int64_t pairs = 0;
  double confidence = 0.95;
  bool per_sample = false;  ///< Steps before and after take different numbers of samples.
  /// The other runtime that it is held against; empty: the subject as it is.
  std::string than = {};
};

/// "No evidence of loss above `margin`, at `power`": all fixed before the runs.
struct OptimizeGuard {
  std::optional<double> margin{};  ///< Loss allowed; nothing: no change called for paired runs.
  std::optional<double> power{};   ///< Probability that a result without any loss passes.
  std::string verdict = "passed";  ///< passed, failed, cannot_tell, not_needed
  std::string text;                ///< Says in one line what was compared.
};

/// Something that the doctor finds worth fixing (docs/findings.md).
struct StepFinding {
  std::string rule, title;  ///< "R01", "input starved: nothing to compute until data comes"
  double share = 0;         ///< Share of a step.
  double ceiling = 1;       ///< Times as fast, if all of it were gone.
  std::string fix{};        ///< Advice in a sentence or two.
};

/// The doctor's examination of some recorded steps: of the result, of the subject as it is where
/// nothing was gained.
struct StepExamination {
  std::vector<StepFinding> findings{};  ///< The first one holds it back most.
  std::string problem{};                ///< Why there was none; empty: there was.
};

enum class ConfirmVerdict : uint8_t { kConfirmed, kRefused, kCannotTell };
constexpr std::string_view names_of(ConfirmVerdict) { return "confirmed|refused|cannot_tell"; }

/// Longer runs of both, whose losses were compared at the end.
struct OptimizeConfirmation {
  ConfirmVerdict verdict = ConfirmVerdict::kCannotTell;
  std::string loss{};                  ///< "held-out loss", "training loss"; empty: none was seen.
  int64_t pairs = 0, steps = 0;        ///< Pairs of runs with the same seed, and steps of each.
  std::optional<double> margin{};      ///< Fixed before a run of the result; nothing: not fixed.
  std::optional<double> difference{};  ///< Loss of the result less that of the subject as it was.
  std::string text{};                  ///< The statement, in one line.
};

struct OptimizeSummary {
  std::string target;  ///< "examples/fashion_mnist.toml on cpu"
  /// Names the thing that stays as it is where nothing was gained.
  std::string subject = "configuration";
  /// The use of the recipe: this text, the recipe's path, and `recipe_rest`.
  std::string recipe_use = "ridge train CONFIG --recipe", recipe_rest;
  std::string doctor_use;  ///< The command that says where a step's time goes; empty: none.
  /// Another runtime that is faster than the subject as it is, such as "ONNX Runtime 1.22.0": the
  /// proof is held against it. Empty: there is none.
  std::string rival = {};
  std::string advice = {};  ///< The better way, where nothing was gained; empty: none is known.
  std::string machine;
  VariantSpeed baseline, result;  ///< Equal unless is_faster().
  OptimizeClaim claim;
  OptimizeGuard guard;
  std::string recipe;  ///< TOML; empty where nothing was gained.
  double budget_s = 0;
  double seconds = 0;                    ///< Wall time of the run.
  std::optional<double> price_per_hour;  ///< This machine's price, as the user gave it.
  bool is_dry = false;                   ///< Nothing was tried.
  /// Lines: the cost of the parts of a step before, and the ceilings.
  std::vector<std::string> parts;
  std::optional<OptimizeConfirmation> confirmation{};  ///< Nothing: nobody asked for one.
  std::optional<StepExamination> examination{};  ///< Nothing: no subject of this kind has one.
  std::string energy_of;  ///< "all processor packages and the GPU"; empty where none was measured.
  /// The reason why no joules were measured; empty where they were.
  std::string energy_problem;
  std::vector<std::string> notes;  ///< Remarks for the reader: noise, an early end.
  /// Paths of the written files; empty: not written.
  std::string recipe_path, ledger_path, report_path;

  bool gained() const { return !recipe.empty(); }
  /// A recipe that only keeps within a limit of memory has no proof.
  bool is_faster() const { return gained() && claim.pairs > 0; }
};

}  // namespace ridge
