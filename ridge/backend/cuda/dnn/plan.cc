#include "ridge/backend/cuda/dnn/plan.h"

#include <algorithm>
#include <optional>

namespace ridge::cuda {

using enum DnnAttribute;

namespace {

constexpr size_t kMostNotes = 32, kMostKnobs = 24;  // for one engine: more than any has

using Knobs = std::map<int64_t, int64_t>;  // by number: the order of the name

// A proposal of the heuristics.
struct Proposal {
  std::unique_ptr<DnnDescriptor> config, engine;
  int64_t index = 0;
  Knobs knobs;
  std::vector<DnnNumericalNote> numerical;
  std::vector<DnnBehaviorNote> behavior;

  bool has(DnnNumericalNote note) const {
    return std::find(numerical.begin(), numerical.end(), note) != numerical.end();
  }
  bool is_compiled() const {
    return std::find(behavior.begin(), behavior.end(), DnnBehaviorNote::kRuntimeCompilation) !=
           behavior.end();
  }
  std::string name() const {
    std::string text = fmt::format("eng{}", index);
    for (const auto& [knob, value] : knobs) text += fmt::format("_k{}={}", knob, value);
    return text;
  }
};

bool is_allowed(const Proposal& p, const DnnPlanRules& rules) {
  // Fourier transforms and large tiles of Winograd's lose digits that the tolerances ask for.
  for (const DnnNumericalNote never : {DnnNumericalNote::kNondeterministic,
                                       DnnNumericalNote::kReducedPrecisionReduction,
                                       DnnNumericalNote::kDownConvertInputs,
                                       DnnNumericalNote::kFft,
                                       DnnNumericalNote::kWinogradTile4x4,
                                       DnnNumericalNote::kWinogradTile6x6,
                                       DnnNumericalNote::kWinogradTile13x13})
    if (p.has(never)) return false;
  return rules.tensor_cores || !p.has(DnnNumericalNote::kTensorCore);
}

std::vector<DnnDescriptor> ask(const Dnn& dnn, const DnnGraph& graph, DnnHeuristicMode mode) {
  DnnDescriptor heuristics = dnn.make(DnnKind::kHeuristics);
  heuristics.set(kHeuristicsGraph, graph.descriptor());
  heuristics.set(kHeuristicsMode, mode);
  dnn.aim(heuristics, std::nullopt, kHeuristicsDeviceProperties);
  heuristics.finalize();
  return heuristics.get_descriptors(
      kHeuristicsResults, DnnKind::kEngineConfig, heuristics.count_descriptors(kHeuristicsResults));
}

Proposal read(const Dnn& dnn, DnnDescriptor config) {
  Proposal p;
  p.config = std::make_unique<DnnDescriptor>(std::move(config));
  p.engine = std::make_unique<DnnDescriptor>(dnn.make(DnnKind::kEngine));
  p.config->fill(kConfigEngine, *p.engine);
  p.index = p.engine->get<int64_t>(kEngineIndex);
  p.numerical = p.engine->get_all<DnnNumericalNote>(kEngineNumericalNote, kMostNotes);
  p.behavior = p.engine->get_all<DnnBehaviorNote>(kEngineBehaviorNote, kMostNotes);
  return p;
}

void read_knobs(Proposal& p) {
  for (const DnnDescriptor& choice :
       p.config->get_descriptors(kConfigKnobChoices, DnnKind::kKnobChoice, kMostKnobs))
    p.knobs[static_cast<int64_t>(choice.get<DnnKnob>(kKnobChoiceType))] =
        choice.get<int64_t>(kKnobChoiceValue);
}

// Null where the engine turns out not to do it, or to want too much.
DnnPlanRef make_plan(const Dnn& dnn,
                     const DnnGraphRef& graph,
                     const DnnPlanRules& rules,
                     Proposal p) {
  auto plan = std::make_shared<DnnPlan>();
  plan->graph = graph;
  try {
    read_knobs(p);
    plan->name = p.name();
    plan->notes = p.numerical;
    DnnDescriptor made = dnn.make(DnnKind::kPlan);
    dnn.aim(made, kPlanHandle, kPlanDeviceProperties);
    made.set(kPlanConfig, *p.config);
    made.finalize();
    const int64_t bytes = made.get<int64_t>(kPlanWorkspaceBytes);
    if (bytes < 0 || bytes > rules.most_workspace_bytes) return nullptr;
    plan->workspace_bytes = static_cast<size_t>(bytes);
    plan->parts.push_back(std::move(p.engine));
    plan->parts.push_back(std::move(p.config));
    plan->parts.push_back(std::make_unique<DnnDescriptor>(std::move(made)));
  } catch (const DnnError& error) {
    // The heuristics may propose a configuration that the engine refuses.
    if (!error.is_refusal()) throw;
    return nullptr;
  }
  return plan;
}

}  // namespace

std::vector<DnnPlanRef> make_dnn_plans(const Dnn& dnn,
                                       const DnnGraphRef& graph,
                                       const DnnPlanRules& rules) {
  dnn.ensure_current();
  std::vector<DnnPlanRef> plans;
  std::optional<DnnError> failure;  // error of the first engine that failed
  for (DnnDescriptor& config : ask(dnn, *graph, rules.mode)) {
    if (plans.size() == rules.most) break;
    Proposal p = read(dnn, std::move(config));
    if (!is_allowed(p, rules) || (p.is_compiled() && !plans.empty())) continue;
    DnnPlanRef plan;
    try {
      plan = make_plan(dnn, graph, rules, std::move(p));
    } catch (const DnnError& error) {
      if (!error.is_failed_plan()) throw;
      if (!failure) failure = error;
    }
    const bool is_new =
        plan != nullptr && std::none_of(plans.begin(), plans.end(), [&](const DnnPlanRef& known) {
          return known->name == plan->name;
        });
    if (is_new) plans.push_back(plan);
  }
  if (plans.empty() && failure) throw DnnError(*failure);
  return plans;
}

}  // namespace ridge::cuda
