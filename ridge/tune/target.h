// The subject of a tuning loop: something that can be run with a recipe over it, timed, and judged.
// The loop (loop.h) decides what is tried, in which order, and what is kept; a target says what
// could be tried, runs it, and guards its numbers. A configuration of the engine and a third-party
// program are two targets. A target is handed the best variant so far whenever it needs it, for the
// loop owns it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/io/recipe_claim.h"
#include "ridge/proof/guard_outcome.h"
#include "ridge/proof/proof_budget.h"
#include "ridge/tune/loop.h"

namespace ridge {

/// A variant cannot be run: it crashed, hung, or refused its recipe, in words for the ledger.
class VariantFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A recipe as text. Only its target reads it.
struct RecipeText {
  std::string toml;  ///< Empty: the subject as it is.
  std::string hash;  ///< The hash of what it changes; claims and places do not count.
};

/// One recipe, open and ready to be timed. Its members throw VariantFailed and TrialStopped.
class TunedVariant : public Runner {
 public:
  /// Starts it again where its process has ended.
  virtual void revive() {}
  /// Sets the end of its work anew, by now_ns().
  virtual void work_until(int64_t /*until_ns*/) {}
  /// The hash of its plan; empty where it has none.
  virtual std::string plan_hash() const { return {}; }
  /// Seconds from its start until it could be timed, the last time.
  virtual double open_seconds() const { return 0; }
  /// Seconds for which it can be timed before its program ends by itself, where a step takes
  /// `step_seconds`; 0: it does not end, or nobody has seen it end.
  virtual double run_seconds(double /*step_seconds*/) const { return 0; }
};

/// One change that a technique would make to the best recipe so far, or why it would make none.
struct Change {
  std::string technique;     ///< "loader.workers"
  std::string key{};         ///< Names the change among all of the run: technique and values.
  std::string text{};        ///< "loader.workers 0 -> 2"; empty: it would change nothing.
  std::string hypothesis{};  ///< Why it would help.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  size_t id = 0;       ///< The target's own number of it; later ones of a technique go further.
  bool loads = false;  ///< It makes loading shorter, not computing.
  /// Not empty: it is not to be tried, and this is the verdict and its reason.
  std::string settled{};
  TrialVerdict settled_as = TrialVerdict::kNotTried;
  bool is_foreseen = false;  ///< It is measured although it is settled: the user asks for it.
  std::optional<double> ceiling{};  ///< The most that it could gain; nothing: no bound is known.
  std::string ceiling_text{};       ///< Why a change with a ceiling that low is not tried.
  std::optional<SpeedRange> predicted{};  ///< Its gain as measurements predict it.
  /// The prediction is by other subjects: it decides the order, and leaves nothing out.
  bool is_rough = false;
  bool needs_measurement = false;  ///< A quick measurement would say what it gains, or say it anew.
  int64_t least_steps = 1;         ///< Steps of a block of its trial at the least.
  double gain = 1;                 ///< The factor of speed that its trial measured.
};

/// Two variants that are timed against each other, such as the best so far and a candidate.
struct VariantPair {
  TunedVariant& before;
  TunedVariant& after;
};

/// The parts of a loop that its target may use while the loop goes on.
struct LoopView {
  const LoopBudget& budget;
  OptimizeObserver& observer;
  OptimizeSummary& summary;
  double& noise;  ///< Deviation of a pair's logarithm, for a target that measures it to set.

  /// A line of the report about the parts of a step, which the observer is told at once.
  void report(std::string part) const {
    observer.on_message(part);
    summary.parts.push_back(std::move(part));
  }
};

/// The classes of a kept change that is taken out, and of the highest change that stays.
struct RestClasses {
  SemanticClass dropped, left;
};

/// A proof of a pair, or its replay.
struct ProofOptions {
  TrialOptions trial;
  int64_t pairs = kProofPairs;         ///< Pairs that the proof should have.
  OptimizeSummary* summary = nullptr;  ///< Gets all that a report says of both; nullptr: nobody.
};

class Target {
 public:
  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  /// Fills what a report says of the subject, opens it as it is, and measures what a step of it
  /// costs. UserError or VariantFailed where it cannot be run or the budget is too small for it.
  virtual std::unique_ptr<TunedVariant> start(const LoopView& loop) = 0;
  /// Opens the recipe of which this is the TOML, for work that ends at `until_ns` by now_ns(). It
  /// wins over what the user set. Trials run on data `epoch` 0, a proof on 1 and a replay on 2.
  virtual std::unique_ptr<TunedVariant> open(const std::string& recipe,
                                             int64_t epoch,
                                             int64_t until_ns) = 0;
  /// Opens the error of a subject that cannot be run: "'COMMAND' cannot be tuned".
  virtual std::string cannot_run() const = 0;

  /// The names of all techniques.
  virtual std::vector<std::string> techniques() const = 0;
  /// All changes that are worth trying beside `kept`, in the order in which they are, and those of
  /// techniques with nothing to try. The loop tries none twice.
  virtual std::vector<Change> changes(std::span<const Change> kept, TunedVariant& best) = 0;
  /// The recipe with all of `kept`, in their order; with `proven` where that is given, completed by
  /// what it says of the subject.
  virtual RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven = nullptr) = 0;
  /// The recipe of what a proof is held against: the subject as it is, or the better way that the
  /// user has already.
  virtual RecipeText baseline() { return recipe({}); }
  /// Writes the files that a recipe names into the folder where it lies.
  virtual void write_files(const std::string& /*recipe*/, const std::filesystem::path& /*folder*/) {
  }
  /// Fills in the change's prediction, by parts of the best and of the candidate.
  virtual void measure(Change& /*change*/, VariantPair /*pair*/) {}

  /// False, with verdict and reason in the record, where an open candidate is not worth timing: a
  /// limit does not allow it, it was not applied, or its bits are others.
  virtual bool is_sound(const Change& change, VariantPair pair, TrialRecord& record) = 0;
  /// How both are timed: the length of blocks, the work of a step, the bets.
  virtual TrialOptions trial_options(VariantPair pair, int64_t until_ns) const = 0;
  /// Seconds of a step of the best so far.
  virtual double step_seconds() const = 0;
  /// Seconds that the guard of one more change of the class takes.
  virtual double guard_seconds(SemanticClass semantic_class) const = 0;
  /// Judges the numbers of the candidate, which is the best with the change. A change in the place
  /// of a failed one with which it would pass is among changes() from then on. TrialStopped at
  /// `until_ns` by now_ns().
  virtual GuardOutcome guard(const Change& change, VariantPair pair, int64_t until_ns) = 0;
  /// Why a faster candidate does not pay: what it costs once does not come back. Empty: it does.
  virtual std::string not_paid(VariantPair /*pair*/, const TrialResult& /*trial*/) const {
    return {};
  }
  /// The change was kept, and `best` has it: what the trial measured is what a step costs now.
  virtual void keep(const Change& change, TunedVariant& best, const TrialResult& trial) = 0;
  /// Judges the first of the pair, which has what is left of the second when a change is taken out:
  /// whether its numbers are those of the subject as it is, as the class of the rest allows.
  virtual GuardOutcome guard_rest(RestClasses classes, VariantPair pair, int64_t until_ns) = 0;

  /// compare() with what a proof has besides, such as joules and fresh starts.
  virtual TrialResult prove(VariantPair pair, const ProofOptions& options) = 0;
  /// Seconds that are reserved behind the pairs of prove(): for its own work, and for examine().
  virtual double proof_extra_seconds() const { return 0; }
  /// After the proof of `kept`, and beyond the budget: what was kept trains for longer beside the
  /// subject as it is. Nothing where nobody asked for it.
  virtual std::optional<OptimizeConfirmation> confirm(std::span<const Change> /*kept*/,
                                                      const LoopView& /*loop*/) {
    return std::nullopt;
  }
  /// After the proof of `kept`: fills what a report says besides, by runs of its own that end with
  /// the budget. Whatever fails in them is a remark of the report.
  virtual void examine(std::span<const Change> /*kept*/, const LoopView& /*loop*/) {}
};

}  // namespace ridge
