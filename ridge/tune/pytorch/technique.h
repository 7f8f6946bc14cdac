// The loop tries two kinds of changes on a third-party program: the knobs that a probe of the
// program offered, and what this machine offers to any program. Here is only said what could be
// tried and in which order; what it gains is measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/attach/shim.h"
#include "ridge/base/semantic_class.h"
#include "ridge/tune/pytorch/recipe.h"

namespace ridge {

/// One thing to try, or why a technique has nothing to try.
struct ForeignProposal {
  std::string technique;                                         ///< A knob's key, "allocator", ...
  std::vector<std::pair<std::string, std::string>> knobs{};      ///< Set in the recipe.
  std::vector<std::pair<std::string, std::string>> variables{};  ///< Set in the environment.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  ForeignPart part = ForeignPart::kAll;
  int64_t work = 1;  ///< Samples of a step with it over those of a step without.
  std::string hypothesis{};
  std::string refusal{};  ///< Not empty: nothing is to be tried.
};

/// What the machine has.
struct ForeignMachine {
  int cpus = 1;
  std::vector<std::pair<std::string, std::string>> allocators{};  ///< Name, path of the library.
  bool has_huge_pages = false;                                    ///< Given to who asks for them.
  bool has_glibc = false;
};
/// Looks beneath `root`, which is "/" outside tests.
ForeignMachine find_machine(const std::filesystem::path& root = "/");

/// Those of trial_order() that are among `only`, in its order; all where that is empty. UserError
/// for a name that is no technique.
std::vector<std::string> chosen_techniques(std::span<const std::string> only);

/// In the order of `techniques`, each at least once. `environment` is what the program would have
/// of a variable: what the user sets is not changed.
std::vector<ForeignProposal> foreign_proposals(
    const attach::ProcessFacts& facts,
    const ForeignMachine& machine,
    const std::function<std::string(const std::string&)>& environment,
    std::span<const std::string> techniques = trial_order());

/// Names the trial of proposal number `id` beside what `best` has. What a knob gains may depend on
/// another one, by Knob::again_beside: where that was kept, the trial has another name than before.
std::string trial_key(const ForeignProposal& proposal, size_t id, const ForeignRecipe& best);

/// Why the proposal is not worth a trial beside the recipe `best`, of steps with `work` times the
/// samples of the program's; empty: nothing speaks against it.
std::string settled_beside(const ForeignProposal& proposal,
                           const ForeignRecipe& best,
                           int64_t work);

/// The recipe with the proposal over it; what excludes it is taken out.
ForeignRecipe with_proposal(const ForeignRecipe& recipe, const ForeignProposal& proposal);

}  // namespace ridge
