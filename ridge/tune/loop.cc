#include "ridge/tune/loop.h"

#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/proof/record_trial.h"
#include "ridge/proof/report/words.h"
#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// `work`: samples of a step of what was kept over those of a step before.
void claim(LoopState& loop, const TrialRecord& record, double work) {
  OptimizeSummary& summary = loop.result.summary;
  summary.claim = {.speedup = record.measured->mid,
                   .low = record.measured->low,
                   .high = record.measured->high,
                   .pairs = record.judged_pairs(),
                   .confidence = kVerdictConfidence,
                   .per_sample = work != 1,
                   .than = summary.rival};
  loop.proven = {.version = RIDGE_VERSION,
                 .claim = claim_range_words(summary.claim),
                 .plan = record.plan_hash,
                 .config = {},
                 .machine = record.machine};
  summary.recipe = loop.target.recipe(loop.kept, &loop.proven).toml;
  for (std::string& note : trajectory_notes(summary, loop.result.trials))
    loop.note(std::move(note));
}

// The subject as it was against what was kept, in processes that know nothing of the search, on
// data that it has not seen.
void prove(LoopState& loop) {
  loop.observer.on_work("proving what was kept, in fresh processes");
  Target& target = loop.target;
  OptimizeSummary& summary = loop.result.summary;
  const RecipeText before = target.baseline(), after = loop.recipe_with();
  TrialRecord record = loop.new_record(kProofTechnique, before, after);
  record.hypothesis = "what was kept, together, in fresh processes";
  ProofOptions proof{.trial = {}, .pairs = loop.proof_pairs, .summary = &summary};
  double pair_seconds = loop.pair_seconds();
  loop.best.reset();
  TrialResult trial;
  loop.attempt(record, [&] {
    const std::unique_ptr<TunedVariant> first = target.open(before.toml, 1, loop.budget.end_ns());
    loop.best = target.open(after.toml, 1, loop.budget.end_ns());
    const VariantPair pair{*first, *loop.best};
    record.plan_hash = loop.best->plan_hash();
    proof.trial = loop.trial_options(pair, loop.budget.left() - target.proof_extra_seconds());
    proof.trial.least_pairs = kProofPairs;
    proof.trial.least_seconds = loop.proof_block_seconds();
    record.judge = proof.trial.judge;
    const int64_t begun = now_ns();
    trial = target.prove(pair, proof);
    if (!trial.pairs.empty()) {
      pair_seconds =
          static_cast<double>(now_ns() - begun) * 1e-9 / static_cast<double>(trial.pairs.size());
      summary.baseline.set_step(trial.before_seconds, wait_share(trial.pairs, &Pair::before));
      summary.result.set_step(trial.after_seconds, wait_share(trial.pairs, &Pair::after));
    }
    record_trial(record, trial, record.judge);
    return true;
  });
  // The gain and noise of the trials are expected where the proof has too few pairs to tell.
  const std::optional<double> noise = pair_noise(trial);
  const OpenTrial open{.pairs = record.judged_pairs(),
                       .gain = noise ? trial.gain : loop.kept_gain(),
                       .noise = noise.value_or(loop.noise),
                       .pair_seconds = pair_seconds};
  if (record.verdict == TrialVerdict::kKept && record.measured) {
    record.reason = "proven";
    claim(loop, record, proof.trial.work);
  } else {
    if (record.verdict == TrialVerdict::kNotFaster)
      record.reason = "not faster when proven again";
    else if (record.verdict != TrialVerdict::kFailed)
      record.conclude(TrialVerdict::kOpen,
                      stop_requested()
                          ? std::string(kWasStopped)
                          : open_reason(trial) + "; " +
                                verdict_budget_text(open, record.judge, loop.budget.total()));
    loop.note(fmt::format("what was kept could not be proven again: your {} stays as it is ({})",
                          summary.subject,
                          record.reason));
  }
  loop.finish(std::move(record));
}

// The claim does not stand beside a confirmation that was refused.
void withdraw_claim(LoopState& loop) {
  OptimizeSummary& summary = loop.result.summary;
  summary.recipe.clear();
  summary.claim = {};
  std::string names;
  for (const Change& change : loop.kept)
    if (change.semantic_class == SemanticClass::kBitIdentical)
      names += (names.empty() ? "" : ",") + change.technique;
  summary.advice = fmt::format(
      "What was kept is faster and trains worse, so its claim is "
      "withdrawn: {}",
      summary.confirmation->text);
  if (!names.empty())
    loop.note(fmt::format("--only {} tries what was kept and keeps all bits", names));
}

// Report and recipe get all that is said of the result besides its proof.
void examine_result(LoopState& loop, const LoopView& view) {
  OptimizeSummary& summary = loop.result.summary;
  const std::optional<StepExamination> before = summary.examination;
  loop.best.reset();
  loop.target.examine(loop.kept, view);
  summary.seconds = loop.budget.spent();
  if (!summary.is_faster() || stop_requested()) return;
  summary.confirmation = loop.target.confirm(loop.kept, view);
  if (summary.confirmation) {
    loop.proven.confirmed = summary.confirmation->text;
    loop.observer.on_message("confirmation: " + summary.confirmation->text);
    if (summary.confirmation->verdict == ConfirmVerdict::kRefused) {
      summary.examination = before;
      return withdraw_claim(loop);
    }
  }
  if (summary.examination && !summary.examination->findings.empty())
    loop.proven.holds_back = finding_words(summary.examination->findings.front());
  summary.recipe = loop.target.recipe(loop.kept, &loop.proven).toml;
}

}  // namespace

OptimizeResult run_loop(Target& target, const LoopOptions& options, OptimizeObserver& observer) {
  LoopState loop{target, options, observer};
  OptimizeSummary& summary = loop.result.summary;
  summary.budget_s = loop.budget.total();
  summary.guard = {.verdict = "not_needed", .text = "no change that was kept touches numbers"};
  summary.is_dry = options.is_dry;
  try {
    const LoopView view{loop.budget, observer, summary, loop.noise};
    loop.best = target.start(view);
    loop.baseline_step_seconds = target.step_seconds();
    loop.start_seconds = loop.best->open_seconds();
    search(loop);
    if (!options.is_dry) {
      if (loop.must_end())
        throw TrialStopped(stop_requested() ? "stopped by a signal" : "the budget is spent");
      leave_one_out(loop);
      if (!loop.kept.empty()) prove(loop);
      if (!stop_requested()) examine_result(loop, view);
    }
  } catch (const TrialStopped& stop) {
    loop.note(fmt::format("ended early: {}", stop.what()));
    loop.finish_techniques(stop_requested() ? kWasStopped : kNoTime);
  } catch (const VariantFailed& failure) {
    throw UserError(fmt::format("{}: {}", target.cannot_run(), failure.what()));
  }
  loop.best.reset();
  // A limit of memory is kept to whatever was gained within it.
  if (summary.recipe.empty()) summary.recipe = target.recipe({}).toml;
  if (!summary.is_faster()) summary.result = summary.baseline;
  // A confirmation is beyond the budget.
  if (!summary.confirmation) summary.seconds = loop.budget.spent();
  return std::move(loop.result);
}

}  // namespace ridge
