// The runs that a change to a third-party program is held against: runs of the program as it is,
// and, for what is finer than a change that was kept, runs with that change.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ridge/tune/pytorch/guard/guard.h"
#include "ridge/tune/pytorch/recipe.h"

namespace ridge {

/// One run of the program: `reseed` and `nudge` are ShimOptions's.
struct ForeignRun {
  ForeignRecipe recipe{};
  int64_t reseed = 0;
  double nudge = 0;
};

class ForeignReference {
 public:
  using Runs = std::vector<ForeignRun>;
  /// Makes a record of each, all of as many steps; what it throws leaves what was recorded before.
  using Recorder = std::function<std::vector<attach::RunRecord>(const Runs&)>;

  /// `only_calls`: the program calls modules and trains none. One run of it says all: its outputs.
  /// `other_threads`: a number of threads that the program does not have, for a control; 0: none.
  ForeignReference(Recorder record, bool only_calls, int64_t other_threads = 0)
      : record_(std::move(record)), only_calls_(only_calls), other_threads_(other_threads) {}

  /// Judges `recipe`: what was kept and a change of the class. Classes 2 and 3 are held against the
  /// program as it is, by pairs of runs, so that what several of them lose adds up. Class 1 is held
  /// against the last of those that passed, beside which nothing so fine could be seen, and class 0
  /// against the last of any class that may have changed bits. A recipe that passes is taken for
  /// kept.
  GuardOutcome judge(const ForeignRecipe& recipe, SemanticClass semantic_class);

  /// Judges what is left of a recipe when a kept change is taken out, against the program as it is.
  /// `semantic_class` is the highest class of the rest.
  GuardOutcome judge_rest(const ForeignRecipe& rest, SemanticClass semantic_class);
  /// Runs that judge() makes of a change of the class that passes at once, controls and such as are
  /// missing counted.
  int64_t runs_for(SemanticClass semantic_class) const;

 private:
  /// A recipe of class 2 or 3 that passed.
  struct Coarse {
    ForeignRecipe recipe;
    SemanticClass semantic_class;
    ForeignBaseline runs;
  };
  /// The last recipe above class 0 that passed: its first run, and that run again once class 0
  /// needs it.
  struct Bits {
    ForeignRecipe recipe;
    ForeignBaseline runs;
    bool has_again = false;
  };

  int64_t seeds_for(SemanticClass semantic_class) const;
  bool needs_controls(SemanticClass semantic_class) const;
  Runs controls_of(const ForeignRecipe& recipe, bool is_coarse) const;
  void record_baseline(int64_t seeds);
  void record_controls(const ForeignRecipe& recipe,
                       ForeignBaseline& of,
                       SemanticClass semantic_class);
  GuardOutcome judge_coarse(const ForeignRecipe& recipe, SemanticClass semantic_class);
  GuardOutcome judge_order(const ForeignRecipe& recipe);
  GuardOutcome judge_bits(const ForeignRecipe& recipe);
  GuardOutcome judge_order_for_bits(const ForeignRecipe& recipe);
  void take_bits(const ForeignRecipe& recipe, const attach::RunRecord& first);

  Recorder record_;
  bool only_calls_;
  int64_t other_threads_;
  std::optional<ForeignBaseline> baseline_;
  std::optional<Coarse> coarse_;
  std::optional<Bits> bits_;
};

}  // namespace ridge
