#include "ridge/tune/pytorch/reference.h"

#include <algorithm>
#include <utility>

namespace ridge {

int64_t ForeignReference::seeds_for(SemanticClass semantic_class) const {
  return semantic_class == SemanticClass::kBitIdentical || only_calls_ ? 1 : kForeignSeeds;
}

// The first run twice, and of the other seeds those that are not there yet.
void ForeignReference::record_baseline(int64_t seeds) {
  Runs runs;
  auto had = baseline_ ? static_cast<int64_t>(baseline_->seeds.size()) : 0;
  if (had >= seeds) return;
  const bool is_first = !baseline_;
  if (is_first) runs.emplace_back(ForeignRecipe{}, 0);
  for (; had < seeds; ++had) runs.emplace_back(ForeignRecipe{}, had);
  std::vector<attach::RunRecord> records = record_(runs);
  if (is_first) {
    baseline_.emplace();
    baseline_->again = std::move(records.front());
    records.erase(records.begin());
  }
  for (attach::RunRecord& record : records) baseline_->seeds.push_back(std::move(record));
}

GuardOutcome ForeignReference::judge_coarse(const ForeignRecipe& recipe,
                                            SemanticClass semantic_class) {
  // On other samples no step is the same, whatever is changed besides.
  if (coarse_) semantic_class = std::max(semantic_class, coarse_->semantic_class);
  Runs runs;
  for (int64_t seed = 0; seed < seeds_for(semantic_class); ++seed) runs.emplace_back(recipe, seed);
  std::vector<attach::RunRecord> records = record_(runs);
  GuardOutcome answer = judge_runs(*baseline_, records, semantic_class);
  if (answer.passed)
    coarse_ = {.recipe = recipe,
               .semantic_class = semantic_class,
               .runs = {.seeds = std::move(records), .again = {}}};
  return answer;
}

GuardOutcome ForeignReference::judge_fine(const ForeignRecipe& recipe,
                                          SemanticClass semantic_class) {
  Runs runs = {{recipe, 0}};
  const bool needs_again = coarse_ && !coarse_->has_again;
  if (needs_again) runs.emplace_back(coarse_->recipe, 0);
  std::vector<attach::RunRecord> records = record_(runs);
  if (needs_again) {
    coarse_->runs.again = std::move(records.back());
    coarse_->has_again = true;
    records.pop_back();
  }
  return judge_runs(coarse_ ? coarse_->runs : *baseline_, records, semantic_class);
}

GuardOutcome ForeignReference::judge(const ForeignRecipe& recipe, SemanticClass semantic_class) {
  record_baseline(seeds_for(semantic_class));
  // If bits cannot be compared, losses are, in the noise of the seeds.
  if (!baseline_->is_repeatable()) record_baseline(seeds_for(SemanticClass::kReassociation));
  return semantic_class >= SemanticClass::kPrecision ? judge_coarse(recipe, semantic_class)
                                                     : judge_fine(recipe, semantic_class);
}

GuardOutcome ForeignReference::judge_rest(const ForeignRecipe& rest, SemanticClass semantic_class) {
  std::optional<Coarse> kept = std::exchange(coarse_, std::nullopt);
  GuardOutcome answer;
  try {
    answer = judge(rest, semantic_class);
  } catch (...) {
    coarse_ = std::move(kept);
    throw;
  }
  if (!answer.passed) coarse_ = std::move(kept);
  return answer;
}

}  // namespace ridge
