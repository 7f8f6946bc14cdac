#include "ridge/infer/compile_choices.h"

#include <algorithm>
#include <optional>

#include "ridge/base/hash.h"
#include "ridge/base/machine/machine.h"
#include "ridge/graph/signature.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuning.h"

namespace ridge {
namespace {

std::string key_of(const Node& node) { return fmt::format("{:016x}", hash64(signature(node))); }

std::string names_of(const std::vector<Choice>& choices) {
  std::string names;
  for (const Choice& choice : choices) names += (names.empty() ? "" : ", ") + choice.name;
  return names;
}

size_t named_choice(const Node& node, const std::vector<Choice>& choices, const std::string& name) {
  const auto found = std::ranges::find(choices, name, &Choice::name);
  if (found == choices.end())
    throw UserError(fmt::format("the recipe names the kernel '{}' for '{}', and here there is {}",
                                name,
                                node.site.name,
                                names_of(choices)),
                    "it is of another machine or version: let ridge optimize make one here");
  return static_cast<size_t>(found - choices.begin());
}

}  // namespace

struct RecipeKernels::Timing {
  Timing(Backend& backend, KernelRange of)
      : range(of), tuning(backend, Tuning::Keeping::kNothing), choose(tuning.choose(of)) {}

  KernelRange range;
  Tuning tuning;
  ChooseCandidate choose;
};

RecipeKernels::RecipeKernels(const CompileChoices& choices, Backend& backend)
    : choices_(choices), backend_(backend) {
  if (choices.pick == KernelPick::kFirst) return;
  const bool any = choices.pick == KernelPick::kTimedAnyBits;
  timing_ = std::make_unique<Timing>(backend, any ? KernelRange::kAnyBits : KernelRange::kSameBits);
}

RecipeKernels::~RecipeKernels() = default;

ChooseCandidate RecipeKernels::choose() {
  return [this](const Node& node, const std::vector<Choice>& choices) -> size_t {
    const KernelRange range = inference_range(backend_);
    const size_t first = untimed_choice(choices, range);
    if (choices.size() < 2) return first;
    if (!choices_.kernels.empty())
      if (const auto named = choices_.kernels.find(key_of(node)); named != choices_.kernels.end())
        return named_choice(node, choices, named->second);
    if (timing_ != nullptr && timing_->choose) return timing_->choose(node, choices);
    const auto is_off = [this](const Choice& choice) {
      return std::ranges::find(choices_.kernels_off, choice.name) != choices_.kernels_off.end();
    };
    if (!is_off(choices[first])) return first;
    const auto other = std::ranges::find_if_not(choices, is_off);
    return other == choices.end() ? first : static_cast<size_t>(other - choices.begin());
  };
}

NamedKernels named_kernels(const Graph& graph, const EntryPlan& entry, const Backend& backend) {
  NamedKernels kernels;
  for (const PlanStep& step : entry.steps) {
    const Node& node = *graph.nodes()[static_cast<size_t>(step.node)];
    const std::vector<Choice> choices = backend.candidates(node);
    if (choices.size() > 1 && step.choice != untimed_choice(choices, inference_range(backend)))
      kernels[key_of(node)] = step.choice_name;
  }
  return kernels;
}

}  // namespace ridge
