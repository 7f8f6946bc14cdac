// Whether each change still gains beside those that were kept after it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/tune/loop_state.h"

namespace ridge {
namespace {

// Takes the change out where it gains nothing any longer. Without a verdict it stays: it was proven
// to gain once.
void try_without(LoopState& loop, const Change& change) {
  std::vector<Change> rest = loop.kept;
  std::erase_if(rest, [&](const Change& one) { return one.key == change.key; });
  const RecipeText recipe = loop.target.recipe(rest);
  const RecipeText whole = loop.recipe_with();
  if (recipe.hash == whole.hash) return;  // a later change took its place
  loop.observer.on_work(fmt::format("trying without {}", change.technique));
  TrialRecord record = loop.new_record(std::string(kWithout) + change.technique, recipe, whole);
  record.change = change.text;
  record.semantic_class = change.semantic_class;
  record.hypothesis = fmt::format(
      "it was {:.2f} times as fast when it was kept; beside the others that may be gone",
      change.gain);
  record.plan_hash = loop.best->plan_hash();
  std::unique_ptr<TunedVariant> without;
  const bool is_dropped = loop.attempt(record, [&] {
    loop.best->revive();
    without = loop.target.open(recipe.toml, 0, loop.guard_deadline());
    const VariantPair pair{*without, *loop.best};
    const double left = loop.budget.left() - loop.proof_need();
    loop.time(pair, std::min(kShortTrialShare * loop.budget.total(), left), record);
    if (record.verdict == TrialVerdict::kKept) record.reason = "still faster with it";
    if (record.verdict == TrialVerdict::kOpen) record.reason += ": it stays";
    if (record.verdict != TrialVerdict::kNotFaster) return false;
    RestClasses classes{.dropped = change.semantic_class, .left = SemanticClass::kBitIdentical};
    for (const Change& one : rest) classes.left = std::max(classes.left, one.semantic_class);
    if (!loop.take_guard(
            record, [&] { return loop.target.guard_rest(classes, pair, loop.guard_deadline()); }))
      return false;
    record.conclude(TrialVerdict::kDropped,
                    fmt::format("beside the others it gains less than {:.0f} %",
                                100 * std::expm1(record.judge.hope)));
    return true;
  });
  if (record.verdict == TrialVerdict::kFailed) record.reason = "without it: " + record.reason;
  // kUnguarded is of changes that are faster.
  if (record.verdict == TrialVerdict::kUnguarded) record.verdict = TrialVerdict::kGuardFailed;
  loop.finish(std::move(record));
  if (!is_dropped) return;
  loop.set_best(std::move(without));
  loop.kept = std::move(rest);
}

}  // namespace

// The smallest gain goes first.
void leave_one_out(LoopState& loop) {
  std::vector<Change> order = loop.kept;
  std::ranges::stable_sort(order, {}, &Change::gain);
  for (const Change& change : order) {
    if (loop.kept.size() < 2) return;
    const double trial =
        loop.least_trial_seconds() + loop.target.guard_seconds(change.semantic_class);
    if (stop_requested() || loop.budget.left() < loop.proof_need() + trial)
      loop.note(fmt::format("no time was left to see whether '{}' still gains beside the others",
                            change.text));
    else
      try_without(loop, change);
  }
}

}  // namespace ridge
