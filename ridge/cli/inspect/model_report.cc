// The report of `ridge inspect MODEL.onnx`, for people and as JSON.
#include "ridge/cli/common/output.h"
#include "ridge/cli/inspect/compiled_json.h"
#include "ridge/cli/inspect/compiled_text.h"
#include "ridge/cli/inspect/model_facts.h"
#include "ridge/graph/model_source.h"
#include "ridge/run/state.h"

namespace ridge {
namespace {

struct Weights {
  int64_t tensors = 0, elements = 0, bytes = 0;
};

Weights weights_of(const ModelFacts& facts) {
  Weights weights;
  for (const StateEntry& entry : facts.program.graphs.state) {
    if (entry.role == StateRole::kPacked) continue;
    ++weights.tensors;
    weights.elements += entry.type.elements();
    weights.bytes += entry.type.bytes();
  }
  return weights;
}

std::string data_text(std::string_view title,
                      const std::vector<DataSpec>& specs,
                      const std::vector<PlanSlot>& slots) {
  std::string text = fmt::format("\n{}\n", title);
  for (const DataSpec& spec : specs) {
    const PlanSlot* const slot = find_slot(slots, spec.name);
    text += fmt::format("  {:<24} {}", spec.name, type_text(spec));
    const std::string bound = slot == nullptr ? "not used" : to_string(slot->type);
    text += bound == type_text(spec) ? "\n" : fmt::format(", here {}\n", bound);
  }
  return text;
}

void write_data(JsonWriter& json,
                std::string_view key,
                const std::vector<DataSpec>& specs,
                const std::vector<PlanSlot>& slots) {
  json.key(key).begin_array();
  for (const DataSpec& spec : specs) {
    json.begin_object().field("name", spec.name).field("dims", type_text(spec));
    const PlanSlot* const slot = find_slot(slots, spec.name);
    if (slot != nullptr) json.field("type", to_string(slot->type));
    json.end_object();
  }
  json.end_array();
}

void write_costs(JsonWriter& json, const ModelFacts& facts) {
  json.key("nodes_by_cost").begin_array();
  for (const NodeCost& each : nodes_by_cost(facts, 0)) {
    json.begin_object().field("site", each.site).field("op", each.op).field("type", each.type);
    json.field("flops", each.cost.flops).field("bytes", each.cost.bytes).end_object();
  }
  json.end_array();
}

bool is_on_gpu(const ModelFacts& facts) { return !facts.model.state->backend().is_host(); }

}  // namespace

std::string model_text(const ModelFacts& facts, const InspectOptions& options) {
  const Weights weights = weights_of(facts);
  const EntryPlan& plan = facts.program.plan.entries.at(0);
  std::string text = fmt::format("{} on {}: {} weights in {} tensors, {}\n",
                                 facts.model.weights,
                                 facts.program.plan.device,
                                 grouped(weights.elements),
                                 weights.tensors,
                                 bytes_text(weights.bytes));
  if (!facts.binding.empty()) text += "\ndimensions\n";
  for (const auto& [name, size] : facts.binding) text += fmt::format("  {} = {}\n", name, size);
  text += data_text("inputs", facts.model.source->inputs(), plan.inputs) +
          data_text("outputs", facts.model.source->outputs(), plan.outputs) + entries_text(facts) +
          ops_text(facts.entries[0]) + nodes_text(facts, 0) + memory_text(facts) +
          map_text(facts, facts.entries[0]) + passes_text(facts);
  text += fmt::format("\nplan {}\n", plan_hash(facts.program.plan));
  if (options.nodes) text += graphs_text(facts);
  if (options.plan) text += plan_text(facts, is_on_gpu(facts));
  return text;
}

std::string model_json(const ModelFacts& facts, const InspectOptions& options) {
  const Weights weights = weights_of(facts);
  const Plan& plan = facts.program.plan;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.inspect/1").field("kind", "model");
  json.field("model", facts.model.weights).field("device", plan.device);
  json.key("dims").begin_object();
  for (const auto& [name, size] : facts.binding) json.field(name, size);
  json.end_object();
  write_data(json, "inputs", facts.model.source->inputs(), plan.entries.at(0).inputs);
  write_data(json, "outputs", facts.model.source->outputs(), plan.entries.at(0).outputs);
  json.key("weights").begin_object().field("count", weights.elements);
  json.field("tensors", weights.tensors).field("bytes", weights.bytes).end_object();
  write_entries(json, facts, options);
  write_costs(json, facts);
  json.key("memory").begin_object();
  write_planned_memory(json, plan);
  json.end_object().field("plan_hash", plan_hash(plan));
  if (options.plan) json.field("plan", print(plan));
  json.end_object().finish();
  return text + "\n";
}

}  // namespace ridge
