// The plan as text.
#include "ridge/base/hash.h"
#include "ridge/compile/plan.h"

namespace ridge {
namespace {

std::string_view name_of(Region region) {
  switch (region) {
    case Region::kState:
      return "state";
    case Region::kArena:
      return "arena";
    case Region::kBound:
      break;
  }
  return "bound";
}

std::string print(const Place& place) {
  return fmt::format("{}+{}:{}", name_of(place.region), place.offset, place.bytes);
}

std::string print(const std::vector<Place>& places) {
  std::string text;
  for (const Place& place : places) text += (text.empty() ? "" : ", ") + print(place);
  return text;
}

void print_slots(std::string& text, std::string_view kind, const std::vector<PlanSlot>& slots) {
  for (const PlanSlot& slot : slots)
    text += fmt::format(
        "  {} \"{}\" : {} at {}\n", kind, slot.name, to_string(slot.type), print(slot.place));
}

void print_staged(std::string& text, const PlanSlot& input) {
  text += fmt::format("  staged \"{}\" at {}\n", input.name, input.staging);
}

void print_entry(std::string& text, std::string_view kind, const EntryPlan& entry, bool is_staged) {
  text += fmt::format("{} \"{}\" peak {} lower bound {}\n",
                      kind,
                      entry.name,
                      entry.peak_bytes,
                      entry.lower_bound_bytes);
  print_slots(text, "input", entry.inputs);
  if (is_staged)
    for (const PlanSlot& input : entry.inputs) print_staged(text, input);
  for (const PlanStep& step : entry.steps) {
    text += fmt::format("  {}({}) -> {}", step.op, print(step.inputs), print(step.outputs));
    if (step.workspace.bytes > 0) text += fmt::format(", workspace {}", print(step.workspace));
    const std::string_view packed = step.is_packed ? " packed" : "";
    text += fmt::format(" by {}{} @ \"{}\"\n", step.choice_name, packed, step.site);
  }
  print_slots(text, "output", entry.outputs);
}

}  // namespace

std::string print(const Plan& plan) {
  std::string text = fmt::format("ridge.plan/1 device {} state {} arena {} lower bound {}",
                                 plan.device,
                                 plan.state_bytes,
                                 plan.arena_bytes,
                                 plan.arena_lower_bound_bytes);
  // Only where there is any: plans of hosts keep their hash.
  if (plan.staging_bytes > 0) text += fmt::format(" staging {}", plan.staging_bytes);
  text += '\n';
  print_slots(text, "state", plan.state);
  for (const DerivationPlan& derivation : plan.derivations) {
    print_entry(text, "derivation", derivation.entry, false);
    if (derivation.kernel != nullptr)
      text += fmt::format("  packed of \"{}\"\n", plan.state[derivation.sources.at(0)].name);
  }
  for (const EntryPlan& entry : plan.entries)
    print_entry(text, "entry", entry, plan.staging_bytes > 0);
  return text;
}

std::string plan_hash(const Plan& plan) { return fmt::format("{:016x}", hash64(print(plan))); }

}  // namespace ridge
