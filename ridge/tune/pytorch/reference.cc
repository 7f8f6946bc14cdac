#include "ridge/tune/pytorch/reference.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ridge {

int64_t ForeignReference::seeds_for(SemanticClass semantic_class) const {
  return semantic_class == SemanticClass::kBitIdentical || only_calls_ ? 1 : kForeignSeeds;
}

bool ForeignReference::needs_controls(SemanticClass semantic_class) const {
  return !only_calls_ && (semantic_class == SemanticClass::kReassociation ||
                          semantic_class == SemanticClass::kPrecision);
}

// Another number of threads sums in another order, which in bf16 is less than its rounding.
ForeignReference::Runs ForeignReference::controls_of(const ForeignRecipe& recipe,
                                                     bool is_coarse) const {
  if (is_coarse) return {{recipe, 0, kCoarseNudge}};
  Runs runs = {{recipe, 0, kFineNudge}};
  if (other_threads_ > 0) {
    ForeignRecipe other = recipe;
    other.set("threads", std::to_string(other_threads_));
    runs.push_back({other, 0, 0});
  }
  return runs;
}

// The first run twice, and of the other seeds those that are not there yet.
void ForeignReference::record_baseline(int64_t seeds) {
  Runs runs;
  auto had = baseline_ ? static_cast<int64_t>(baseline_->seeds.size()) : 0;
  if (had >= seeds) return;
  const bool is_first = !baseline_;
  if (is_first) runs.push_back({});
  for (; had < seeds; ++had) runs.push_back({{}, had, 0});
  std::vector<attach::RunRecord> records = record_(runs);
  if (is_first) {
    baseline_.emplace();
    baseline_->again = std::move(records.front());
    records.erase(records.begin());
  }
  for (attach::RunRecord& record : records) baseline_->seeds.push_back(std::move(record));
}

void ForeignReference::record_controls(const ForeignRecipe& recipe,
                                       ForeignBaseline& of,
                                       SemanticClass semantic_class) {
  if (!needs_controls(semantic_class)) return;
  const bool is_coarse = semantic_class == SemanticClass::kPrecision || of.seeds.front().is_coarse;
  std::vector<attach::RunRecord>& controls = is_coarse ? of.coarse_controls : of.fine_controls;
  if (controls.empty()) controls = record_(controls_of(recipe, is_coarse));
}

GuardOutcome ForeignReference::judge_coarse(const ForeignRecipe& recipe,
                                            SemanticClass semantic_class) {
  // On other samples no step is the same, whatever is changed besides.
  if (coarse_) semantic_class = std::max(semantic_class, coarse_->semantic_class);
  Runs runs;
  for (int64_t seed = 0; seed < seeds_for(semantic_class); ++seed)
    runs.push_back({recipe, seed, 0});
  record_controls({}, *baseline_, semantic_class);
  std::vector<attach::RunRecord> records = record_(runs);
  GuardOutcome answer = judge_runs(*baseline_, records, semantic_class);
  if (!answer.passed) return answer;
  take_bits(recipe, records.front());
  coarse_ = {.recipe = recipe,
             .semantic_class = semantic_class,
             .runs = {.seeds = std::move(records), .again = {}}};
  return answer;
}

void ForeignReference::take_bits(const ForeignRecipe& recipe, const attach::RunRecord& first) {
  bits_ = {.recipe = recipe, .runs = {.seeds = {first}, .again = {}}};
}

GuardOutcome ForeignReference::judge_order(const ForeignRecipe& recipe) {
  constexpr SemanticClass kClass = SemanticClass::kReassociation;
  record_baseline(seeds_for(kClass));
  std::vector<attach::RunRecord> records = record_({{recipe, 0, 0}});
  ForeignBaseline& reference = coarse_ ? coarse_->runs : *baseline_;
  record_controls(coarse_ ? coarse_->recipe : ForeignRecipe{}, reference, kClass);
  GuardOutcome answer = judge_runs(reference, records, kClass);
  if (!answer.passed && answer.can_tell && needs_controls(kClass) && reference.seeds.size() > 1) {
    // One run may differ by chance.
    records.push_back(std::move(record_({{recipe, 1, 0}}).front()));
    answer = judge_runs(reference, records, kClass);
  }
  if (answer.passed) take_bits(recipe, records.front());
  return answer;
}

// Bits that cannot be compared are judged as another order of sums.
GuardOutcome ForeignReference::judge_bits(const ForeignRecipe& recipe) {
  Runs runs;
  if (bits_ && !bits_->has_again) runs.push_back({bits_->recipe, 0, 0});
  const ForeignBaseline& reference = bits_ ? bits_->runs : *baseline_;
  if (runs.empty() && !reference.is_repeatable()) return judge_order_for_bits(recipe);
  runs.push_back({recipe, 0, 0});
  std::vector<attach::RunRecord> records = record_(runs);
  if (runs.size() > 1) {
    bits_->runs.again = std::move(records.front());
    bits_->has_again = true;
    if (!reference.is_repeatable()) return judge_order_for_bits(recipe);
  }
  return judge_runs(reference, {std::move(records.back())}, SemanticClass::kBitIdentical);
}

GuardOutcome ForeignReference::judge_order_for_bits(const ForeignRecipe& recipe) {
  GuardOutcome answer = judge_order(recipe);
  answer.text += "; bits could not be compared, for the program's own differ from run to run";
  return answer;
}

int64_t ForeignReference::runs_for(SemanticClass semantic_class) const {
  const bool is_fine = semantic_class < SemanticClass::kPrecision;
  const int64_t seeds = seeds_for(semantic_class);
  const auto had = baseline_ ? static_cast<int64_t>(baseline_->seeds.size()) : -1;
  int64_t runs = std::max<int64_t>(0, seeds - had);  // the first one twice
  runs += is_fine ? 1 : seeds;
  if (semantic_class == SemanticClass::kBitIdentical && bits_ && !bits_->has_again) ++runs;
  if (!needs_controls(semantic_class)) return runs;
  const ForeignBaseline* of = is_fine && coarse_ ? &coarse_->runs
                              : baseline_        ? &*baseline_
                                                 : nullptr;
  const bool is_coarse = !is_fine || (of != nullptr && of->seeds.front().is_coarse);
  const bool has_some =
      of != nullptr && !(is_coarse ? of->coarse_controls : of->fine_controls).empty();
  return runs + (has_some ? 0 : static_cast<int64_t>(controls_of({}, is_coarse).size()));
}

GuardOutcome ForeignReference::judge(const ForeignRecipe& recipe, SemanticClass semantic_class) {
  record_baseline(seeds_for(semantic_class));
  if (semantic_class >= SemanticClass::kPrecision) return judge_coarse(recipe, semantic_class);
  return semantic_class == SemanticClass::kReassociation ? judge_order(recipe) : judge_bits(recipe);
}

GuardOutcome ForeignReference::judge_rest(const ForeignRecipe& rest, SemanticClass semantic_class) {
  std::optional<Coarse> coarse = std::exchange(coarse_, std::nullopt);
  std::optional<Bits> bits = std::exchange(bits_, std::nullopt);
  const auto take_back = [&] {
    coarse_ = std::move(coarse);
    bits_ = std::move(bits);
  };
  GuardOutcome answer;
  try {
    answer = judge(rest, semantic_class);
  } catch (...) {
    take_back();
    throw;
  }
  if (!answer.passed) take_back();
  return answer;
}

}  // namespace ridge
