// Leave one out: what a change gained when it was kept may be gone beside what was kept after it.
#include <algorithm>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/tune/loop_state.h"

namespace ridge {

// What gained least goes first.
void Optimizer::leave_one_out() {
  std::vector<KeptChange> order = kept_;
  std::sort(order.begin(), order.end(), [](const KeptChange& a, const KeptChange& b) {
    return a.gain < b.gain;
  });
  for (const KeptChange& kept : order) {
    if (kept_.size() < 2) return;
    const double trial = 2 * best_.worker->facts().open_seconds + 8 * pair_seconds();
    if (stop_requested() || seconds_left() < proof_need() + trial) {
      result_.summary.notes.push_back(fmt::format(
          "no time was left to see whether '{}' still gains beside the others", kept.text));
      continue;
    }
    try_without(kept);
  }
}

void Optimizer::try_without(const KeptChange& kept) {
  Recipe recipe = base_;
  for (const KeptChange& other : kept_) {
    if (other.text == kept.text) continue;
    for (const ConfigFlag& change : other.changes) recipe.set(change.key, change.value);
  }
  if (recipe_hash(recipe) == recipe_hash(best_.recipe)) return;  // a later change took its place
  const int64_t start = now_ns();
  observer_.on_work(fmt::format("trying without {}", kept.technique));
  TrialRecord record = new_record(std::string(kWithout) + kept.technique);
  record.change = kept.text;
  record.semantic_class = kept.semantic_class;
  record.hypothesis = fmt::format(
      "it was {:.2f} times as fast when it was kept; beside the others that may be gone",
      kept.gain);
  record.recipe_before = to_toml(recipe);
  record.recipe = to_toml(best_.recipe);
  record.recipe_hash = recipe_hash(best_.recipe);
  record.plan_hash = best_.worker->facts().plan_hash;
  OpenVariant without;
  bool is_dropped = false;
  try {
    reopen(best_);
    without = open(recipe, 0);
    is_dropped = time_without(without, kept, record);
  } catch (const WorkerFailed& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = fmt::format("without it: {}", error.what());
  } catch (const UserError& error) {
    record.verdict = TrialVerdict::kFailed;
    record.reason = fmt::format("without it: {}", error.what());
  }
  record.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  finish(std::move(record));
  if (!is_dropped) return;
  without.costs = best_.costs;
  best_ = std::move(without);
  std::erase_if(kept_, [&](const KeptChange& other) { return other.text == kept.text; });
}

// True where it gains nothing any longer and may go. Without a verdict it stays: it was proven to
// gain once.
bool Optimizer::time_without(OpenVariant& without, const KeptChange& kept, TrialRecord& record) {
  if (!fits(without, record)) return false;
  const double seconds =
      std::min(kShortTrialShare * request_.budget_seconds, seconds_left() - proof_need());
  TrialOptions options = next_trial_options(seconds);
  options.work = work_ratio(without.worker->facts(), best_.worker->facts());
  const TrialResult trial = compare(*without.worker, *best_.worker, options);
  record_trial(record, trial, options.judge);
  switch (trial.verdict) {
    case Verdict::kFaster:
      record.verdict = TrialVerdict::kKept;
      record.reason = "still faster with it";
      return false;
    case Verdict::kOpen:
      record.verdict = TrialVerdict::kOpen;
      record.reason = open_reason(trial) + ": it stays";
      return false;
    case Verdict::kNotFaster:
      break;
  }
  if (!may_drop(without, kept, record)) return false;
  record.verdict = TrialVerdict::kDropped;
  record.reason = "beside the others it gains less than 2 %";
  return true;
}

// What is left must have passed as it is: each change was only compared with what was kept before.
bool Optimizer::may_drop(OpenVariant& without, const KeptChange& kept, TrialRecord& record) {
  if (kept.semantic_class == SemanticClass::kBitIdentical) {
    return numbers_agree(without, record);
  }
  SemanticClass left = SemanticClass::kBitIdentical;
  for (const KeptChange& other : kept_)
    if (other.text != kept.text) left = std::max(left, other.semantic_class);
  if (left == SemanticClass::kBitIdentical) {
    if (without.state_hash == original_hash_) return true;
    record.verdict = TrialVerdict::kGuardFailed;
    record.reason = "without it the state has other bits than that of the configuration as it is";
    return false;
  }
  record.semantic_class = left;
  std::vector<ConfigFlag> mended;
  GuardReference reference = guard_reference(left);
  reference.config = resolve(base_).toml;
  return guard_candidate(reference, without, record, mended);
}

}  // namespace ridge
