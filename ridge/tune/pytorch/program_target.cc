#include "ridge/tune/pytorch/program_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/io/checksum.h"
#include "ridge/proof/record_trial.h"
#include "ridge/tune/pytorch/confirm_runs.h"
#include "ridge/tune/pytorch/forecast.h"
#include "ridge/tune/pytorch/program_guard.h"
#include "ridge/tune/pytorch/program_report.h"
#include "ridge/tune/pytorch/technique.h"

namespace ridge {
namespace {

// A change of somebody's program has to be worth its words in a recipe. What gains less than the
// second is soon given up: a trial costs a start of the program besides.
constexpr double kWorth = 1.02, kHope = 1.05;

constexpr std::string_view kNoHistory =
    "; its predicted range is a wide estimate, for this machine has tried it less than four times";

// A change that the user has to allow is timed where that takes no more than this share of the
// budget: a start of the program, and some pairs of so many seconds in all.
constexpr double kForeseenShare = 0.1, kForeseenSeconds = 5;
constexpr int64_t kForeseenPairs = 4;

// The examination after the proof has this share of the budget for itself; one that takes longer is
// made where that much is left.
constexpr double kExaminationShare = 0.05;

// The user's own run takes so many seconds, where nobody says and none has ended.
constexpr double kPlannedSeconds = 3600;

ForeignRunner& as_program(TunedVariant& variant) { return static_cast<ForeignRunner&>(variant); }

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

bool times_saves(const ForeignRunner& program) {
  return std::ranges::any_of(knobs(), [&](const Knob& knob) {
    return knob.times_saves && !program.recipe().get(knob.key).empty();
  });
}

// Samples of a step of it over those of a step of the program as it is.
int64_t work_in(const ForeignRunner& program) {
  int64_t work = 1;
  for (const attach::KnobFacts& knob : program.facts().knobs)
    if (knob.state == "applied") work *= knob.work;
  return work;
}

double once_seconds(const attach::ProcessFacts& facts) {
  double seconds = 0;
  for (const attach::KnobFacts& knob : facts.knobs) seconds += knob.seconds;
  return seconds;
}

class ProgramTarget final : public Target {
 public:
  explicit ProgramTarget(ForeignOptimizeRequest request)
      : request_(std::move(request)),
        techniques_(chosen_techniques(request_.only)),
        machine_(find_machine()),
        guard_(request_.target, costs_, usable_cpus()) {
    machine_.cpus = usable_cpus();
  }

  std::unique_ptr<TunedVariant> start(const LoopView& loop) override {
    describe_program(request_.target.command, loop.summary);
    costs_ = probe_program(request_.target, loop);
    check_budget(expected_times(costs_), loop);
    proposals_ = foreign_proposals(costs_.facts, machine_, variable, techniques_);
    std::unique_ptr<TunedVariant> variant = open({}, 0, loop.budget.end_ns());
    ForeignRunner& best = as_program(*variant);
    measure_baseline(costs_, best);
    report_baseline(loop, costs_);
    guard_.begin(loop, most_work());
    const std::string trouble = check_budget(
        measured_times(costs_, best, guard_.seconds(SemanticClass::kBitIdentical)), loop);
    if (!trouble.empty()) {
      loop.summary.notes.push_back(trouble);
      loop.observer.on_message(trouble);
    }
    return variant;
  }

  std::unique_ptr<TunedVariant> open(const std::string& recipe,
                                     int64_t /*epoch*/,
                                     int64_t until_ns) override {
    return std::make_unique<ForeignRunner>(
        request_.target,
        recipe.empty() ? ForeignRecipe{} : parse_foreign_recipe(recipe, "recipe", request_.trust),
        ForeignRunnerOptions{.deadline_ns = until_ns, .whole_steps = costs_.whole_steps});
  }

  std::string cannot_run() const override {
    return fmt::format("'{}' cannot be tuned", request_.target.command.text());
  }

  std::vector<std::string> techniques() const override { return techniques_; }

  RecipeText recipe(std::span<const Change> kept, const RecipeClaim* proven) override {
    ForeignRecipe recipe = recipe_of(kept);
    if (recipe.empty()) return {"", recipe_hash(recipe)};
    if (proven != nullptr) {
      recipe.proven = *proven;
      recipe.proven.config = command_hash(request_.target.command);
      recipe.proven.command = request_.target.command.text();
    }
    return {to_toml(recipe), recipe_hash(recipe)};
  }

  std::vector<Change> changes(std::span<const Change> kept, TunedVariant& /*best*/) override {
    const ForeignRecipe best = recipe_of(kept);
    const PartShares parts = costs_.parts();
    std::vector<Change> changes;
    for (size_t id = 0; id < proposals_.size(); ++id) {
      const ForeignProposal& proposal = proposals_[id];
      const bool is_refused = !proposal.refusal.empty();
      const std::optional<double> ceiling = ceiling_of(proposal, parts);
      const ForeignRecipe with = is_refused ? best : with_proposal(best, proposal);
      const std::string text = is_refused ? "" : change_text(best, with);
      const Forecast gain = forecast(proposal.technique, text, ceiling, request_.history);
      const bool is_foreseen = is_timed_without_leave(proposal);
      const auto timed = foreseen_.find(id);
      changes.push_back(
          {.technique = proposal.technique,
           .key = trial_key(proposal, id, best),
           .text = text,
           .hypothesis = is_refused || gain.has_history
                             ? proposal.hypothesis
                             : proposal.hypothesis + std::string(kNoHistory),
           .semantic_class = proposal.semantic_class,
           .id = id,
           .loads = proposal.part == ForeignPart::kLoading,
           .settled = settled_beside(proposal, best, work_of(costs_.facts, best)),
           .settled_as = is_refused ? TrialVerdict::kRefused : TrialVerdict::kNotTried,
           .is_foreseen = is_foreseen,
           .ceiling = ceiling,
           .ceiling_text = std::string(kUnsupported),
           .predicted = timed != foreseen_.end()    ? std::optional(timed->second)
                        : is_refused || is_foreseen ? std::nullopt
                                                    : std::optional(gain.gain),
           .is_rough = true,
           .needs_measurement = is_foreseen && timed == foreseen_.end(),
           .least_steps = least_block_steps(batches_ahead(costs_.facts, with))});
    }
    return changes;
  }

  // Times a change without the user's leave, to say what it would bring.
  void measure(Change& change, VariantPair pair) override {
    if (work_in(as_program(pair.after)) == work_in(as_program(pair.before))) return;
    TrialOptions options = trial_options(pair, LoopBudget::deadline(kForeseenSeconds));
    options.most_pairs = options.least_pairs = kForeseenPairs;
    SpeedRange gain{.low = kNoCeiling, .high = 0};
    for (const Pair& one : compare(pair.before, pair.after, options).pairs) {
      if (one.dropped) continue;
      gain.low = std::min(gain.low, std::exp(one.log_ratio()));
      gain.high = std::max(gain.high, std::exp(one.log_ratio()));
    }
    if (gain.high <= 0) return;
    change.predicted = gain;
    foreseen_[change.id] = gain;
  }

  bool is_sound(const Change& /*change*/, VariantPair pair, TrialRecord& record) override {
    const ForeignRunner& program = as_program(pair.after);
    for (const attach::KnobFacts& knob : program.facts().knobs) {
      if (program.recipe().get(knob.key).empty() || knob.state == "applied") continue;
      record.conclude(TrialVerdict::kRefused,
                      knob.state == "refused" ? fmt::format("{}: {}", knob.key, knob.text)
                                              : fmt::format("{}: what it is for did not come{}{}",
                                                            knob.key,
                                                            knob.text.empty() ? "" : ": ",
                                                            knob.text));
      return false;
    }
    return true;
  }

  TrialOptions trial_options(VariantPair pair, int64_t until_ns) const override {
    ForeignRunner &before = as_program(pair.before), &after = as_program(pair.after);
    const bool with_saves = times_saves(before) || times_saves(after);
    before.time_saves(with_saves);
    after.time_saves(with_saves);
    TrialOptions options = foreign_trial_options(until_ns, 0, before, after);
    options.judge = {.worth = std::log(kWorth), .hope = std::log(kHope)};
    options.work = static_cast<double>(work_in(after)) / static_cast<double>(work_in(before));
    return options;
  }

  double step_seconds() const override { return costs_.step_seconds; }

  // A cost that is paid once has to come back within the run that is planned.
  std::string not_paid(VariantPair pair, const TrialResult& trial) const override {
    const ForeignRunner &best = as_program(pair.before), &candidate = as_program(pair.after);
    const double once = once_seconds(candidate.facts()) - once_seconds(best.facts());
    if (once <= 0) return {};
    const double planned_steps =
        !request_.planned_seconds && best.whole_steps() > 0
            ? static_cast<double>(best.whole_steps())
            : request_.planned_seconds.value_or(kPlannedSeconds) / costs_.baseline_seconds;
    const double run = planned_steps * trial.before_seconds;
    const double saved = run * (1 - std::exp(-trial.gain));
    if (saved > once) return {};
    return fmt::format(
        "it costs {:.1f} s once and would save {:.1f} s of a run of {:.0f} s (--planned)",
        once,
        saved,
        run);
  }

  void keep(const Change& /*change*/, TunedVariant& best, const TrialResult& trial) override {
    costs_.step_seconds = std::max(1e-9, trial.after_seconds);
    costs_.wait_share = wait_share(trial.pairs, &Pair::after);
    costs_.whole_steps = as_program(best).whole_steps();
    costs_.work = work_in(as_program(best));
    for (const attach::KnobFacts& knob : as_program(best).facts().knobs)
      if (!knob.site.empty()) sites_[knob.key] = knob.site;
  }

  double guard_seconds(SemanticClass semantic_class) const override {
    return guard_.seconds(semantic_class);
  }

  GuardOutcome guard(const Change& change, VariantPair pair, int64_t until_ns) override {
    return guard_.judge(as_program(pair.after).recipe(), change.semantic_class, until_ns);
  }

  GuardOutcome guard_rest(RestClasses classes, VariantPair pair, int64_t until_ns) override {
    return guard_.judge_rest(as_program(pair.before).recipe(), classes.left, until_ns);
  }

  // Two processes of one program differ by where their memory lies: so half of the pairs are of
  // others, started anew where there is time for that and for as many pairs until the end.
  TrialResult prove(VariantPair pair, const ProofOptions& proof) override {
    ForeignRunner &first = as_program(pair.before), &last = as_program(pair.after);
    TrialOptions timed = proof.trial;
    const int64_t begun_ns = now_ns();
    int64_t pairs = 0;
    timed.should_stop = [&] {
      if (proof.trial.should_stop()) return true;
      if (++pairs == kProofPairs / 2 + 1 &&
          may_restart({.seconds_left = static_cast<double>(timed.until_ns - now_ns()) * 1e-9,
                       .pairs_seconds = static_cast<double>(now_ns() - begun_ns) * 1e-9,
                       .restart_seconds = first.open_seconds() + last.open_seconds(),
                       .pairs = pairs - 1,
                       .least_pairs = proof.pairs})) {
        first.restart();
        last.restart();
      }
      return proof.trial.should_stop();
    };
    proven_open_seconds_ = last.open_seconds();
    if (proof.summary == nullptr) return compare(first, last, timed);
    return prove_programs(
        first, last, timed, request_.planned_seconds || costs_.whole_steps > 0, *proof.summary);
  }

  double proof_extra_seconds() const override {
    const double seconds = examination_seconds(costs_, costs_.start_seconds);
    return seconds <= kExaminationShare * request_.loop.budget_seconds ? seconds : 0;
  }

  void examine(std::span<const Change> kept, const LoopView& loop) override {
    if (!request_.loop.allow_trajectory)
      for (std::string& text : texts_of_leave(proposals_, foreseen_, costs_.parts()))
        loop.summary.notes.push_back(std::move(text));
    if (!loop.summary.is_faster()) return;  // start() has that of the program as it is
    StepExamination& told = loop.summary.examination.emplace();
    const double seconds = examination_seconds(costs_, proven_open_seconds_);
    if (loop.budget.left() < seconds) {
      told.problem = fmt::format("it takes about {:.0f} s, and {:.0f} s of the budget are left",
                                 seconds,
                                 std::max(0.0, loop.budget.left()));
      return;
    }
    loop.observer.on_work("examining what was kept");
    try {
      const StepShares shares =
          examine_program(request_.target, recipe_of(kept), loop.budget.end_ns());
      told.findings = shares.findings;
      loop.summary.result.device_idle_share = shares.device_idle;
    } catch (const VariantFailed& failure) {
      told.problem = failure.what();
    } catch (const TrialStopped& stop) {
      told.problem = stop.what();
    }
  }

  std::optional<OptimizeConfirmation> confirm(std::span<const Change> kept,
                                              const LoopView& loop) override {
    if (!request_.confirm_seconds) return std::nullopt;
    OptimizeConfirmation said;
    if (costs_.facts.step_source == "module") {
      said.text = "cannot be told: the program calls modules and trains none";
      return said;
    }
    const double seconds = *request_.confirm_seconds;
    loop.observer.on_message(
        fmt::format("both train for {:.0f} s each, to compare their losses (--confirm)", seconds));
    try {
      const ForeignRecipe result = recipe_of(kept);
      return confirm_training(ConfirmRuns(request_.target, result, costs_, seconds), seconds);
    } catch (const VariantFailed& failure) {
      said.text = fmt::format("cannot be told: {}", failure.what());
    } catch (const TrialStopped& stop) {
      said.text = fmt::format("cannot be told: {}", stop.what());
    }
    return said;
  }

 private:
  // Why most of the budget goes into starts; empty: it does not. UserError where no verdict can
  // stand within it.
  std::string check_budget(const ProgramTimes& times, const LoopView& loop) const {
    const auto trouble = budget_trouble(times, loop.budget.total(), loop.budget.left());
    if (!trouble) return {};
    if (trouble->is_hopeless && !request_.loop.is_dry)
      throw UserError(cannot_run() + ": " + trouble->text, trouble->fix);
    return fmt::format("{}; {}", trouble->text, trouble->fix);
  }

  // Samples of the largest steps that may be tried over those of a step as it is.
  int64_t most_work() const {
    int64_t most = 1;
    for (const ForeignProposal& proposal : proposals_)
      if (request_.loop.allow_trajectory) most = std::max(most, proposal.work);
    return most;
  }

  bool is_timed_without_leave(const ForeignProposal& proposal) const {
    if (proposal.work == 1 || request_.loop.allow_trajectory || request_.loop.is_dry) return false;
    return costs_.start_seconds + kForeseenSeconds <= kForeseenShare * request_.loop.budget_seconds;
  }

  ForeignRecipe recipe_of(std::span<const Change> kept) const {
    ForeignRecipe recipe;
    for (const Change& change : kept) recipe = with_proposal(recipe, proposals_[change.id]);
    for (const auto& [key, site] : sites_)
      if (!recipe.get(key).empty()) recipe.sites[key] = site;
    return recipe;
  }

  ForeignOptimizeRequest request_;
  std::vector<std::string> techniques_;  ///< In the order of trials.
  ForeignMachine machine_;
  ProgramCosts costs_;
  ProgramGuard guard_;
  std::vector<ForeignProposal> proposals_;    ///< Change::id is the index.
  std::map<size_t, SpeedRange> foreseen_;     ///< Gains of proposals that were only timed.
  double proven_open_seconds_ = 0;            ///< Seconds until what was proven could be timed.
  std::map<std::string, std::string> sites_;  ///< Key of a kept knob: where its call stands.
};

}  // namespace

std::string command_hash(const attach::CommandTemplate& command) {
  return checksum_text(checksum(as_bytes(command.text())));
}

std::unique_ptr<Target> program_target(ForeignOptimizeRequest request) {
  return std::make_unique<ProgramTarget>(std::move(request));
}

}  // namespace ridge
