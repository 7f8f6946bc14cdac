// The runs that a change to a third-party program is held against: runs of the program as it is,
// and, for what is finer than a change that was kept, runs with that change.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ridge/tune/pytorch/guard/guard.h"
#include "ridge/tune/pytorch/recipe.h"

namespace ridge {

class ForeignReference {
 public:
  /// Each pair: a recipe, and ShimOptions::reseed.
  using Runs = std::vector<std::pair<ForeignRecipe, int64_t>>;
  /// Makes a record of each, all of as many steps; what it throws leaves what was recorded before.
  using Recorder = std::function<std::vector<attach::RunRecord>(const Runs&)>;

  /// `only_calls`: the program calls modules and trains none. One run of it says all: its outputs.
  ForeignReference(Recorder record, bool only_calls)
      : record_(std::move(record)), only_calls_(only_calls) {}

  /// Judges `recipe`: what was kept and a change of the class. Classes 2 and 3 are held against the
  /// program as it is, by pairs of runs, so that what several of them lose adds up. Classes 0 and 1
  /// are held against the last of those that passed, beside which nothing so fine could be seen.
  /// A recipe that passes is taken for kept.
  GuardOutcome judge(const ForeignRecipe& recipe, SemanticClass semantic_class);

  /// Judges what is left of a recipe when a kept change is taken out, against the program as it is.
  /// `semantic_class` is the highest class of the rest.
  GuardOutcome judge_rest(const ForeignRecipe& rest, SemanticClass semantic_class);

 private:
  struct Coarse {
    ForeignRecipe recipe;
    SemanticClass semantic_class;
    ForeignBaseline runs;
    bool has_again = false;
  };

  int64_t seeds_for(SemanticClass semantic_class) const;
  void record_baseline(int64_t seeds);
  GuardOutcome judge_coarse(const ForeignRecipe& recipe, SemanticClass semantic_class);
  GuardOutcome judge_fine(const ForeignRecipe& recipe, SemanticClass semantic_class);

  Recorder record_;
  bool only_calls_;
  std::optional<ForeignBaseline> baseline_;
  std::optional<Coarse> coarse_;
};

}  // namespace ridge
