// The report of `ridge inspect CONFIG --json`.
#include "ridge/cli/inspect/compiled_json.h"
#include "ridge/cli/inspect/program_facts.h"

namespace ridge {
namespace {

void write_parameters(JsonWriter& json, const ProgramFacts& facts) {
  constexpr std::string_view kKinds[] = {"constant", "uniform", "normal"};
  json.key("parameters").begin_object();
  json.field("count", facts.parameters).field("bytes", facts.parameter_bytes);
  json.key("tensors").begin_array();
  for (const nn::ParameterSpec& spec : facts.task.training->parameters()) {
    json.begin_object().field("name", spec.name).field("type", to_string(spec.type));
    json.field("initial", kKinds[static_cast<size_t>(spec.init.kind)]);
    json.field("scale", spec.init.scale).field("decay", spec.decay).end_object();
  }
  json.end_array().end_object();
}

void write_memory(JsonWriter& json, const ProgramFacts& facts) {
  json.key("memory").begin_object();
  write_planned_memory(json, facts.program.plan);
  if (const auto& most = facts.largest_micro_batch) {
    json.key("largest_micro_batch").begin_object().field("samples", most->samples);
    json.field("bytes", most->bytes).field("next_bytes", most->next_bytes).end_object();
  }
  json.key("loader").begin_object().field("included", false);
  json.field("batch_bytes", facts.batch_bytes).field("prefetch", facts.config.loader.prefetch);
  json.end_object().end_object();
}

}  // namespace

std::string program_json(const ProgramFacts& facts, const InspectOptions& options) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.inspect/1").field("kind", "program");
  json.field("model", name_of(facts.config.model.kind)).field("device", facts.config.train.device);
  json.field("precision", name_of(facts.config.train.precision));
  write_parameters(json, facts);
  write_entries(json, facts, options);
  write_memory(json, facts);
  json.field("separable", facts.batch.separable);
  json.field("not_separable_because", facts.batch.reason);
  json.field("plan_hash", plan_hash(facts.program.plan));
  if (options.plan) json.field("plan", print(facts.program.plan));
  json.end_object().finish();
  return text + "\n";
}

}  // namespace ridge
