// The tuner's side of a worker of a configuration.
#include "ridge/base/json_writer.h"
#include "ridge/proof/trial_record.h"
#include "ridge/tune/engine/worker.h"

namespace ridge {
namespace {

constexpr const char* kSource = "answer";

}  // namespace

WorkerProcess::WorkerProcess(const WorkerOptions& options) : pipe_(options, {"trial-worker"}) {}

WorkerProcess::WorkerProcess(const WorkerOptions& options,
                             const std::string& config_toml,
                             int64_t epoch)
    : WorkerProcess(options) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("open", config_toml).field("epoch", epoch).end_object().finish();
  facts_ = read_fields<VariantFacts>(pipe_.ask(text).at("facts", kSource));
}

Block WorkerProcess::run(int64_t steps, StepKind kind) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("run", steps).field("kind", name_of(kind)).end_object().finish();
  const JsonValue answer = pipe_.ask(text);
  const JsonValue& block = answer.at("block", kSource);
  measured_bytes_ = block.at("measured_bytes", kSource).as_integer("measured_bytes");
  return read_fields<Block>(block);
}

StepTimeline WorkerProcess::timeline(int64_t steps) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("timeline", steps).end_object().finish();
  const JsonValue answer = pipe_.ask(text);
  return read_fields<StepTimeline>(answer.at("timeline", kSource));
}

GuardAnswer WorkerProcess::guard(const GuardRequest& request) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("guard", request.candidate).field("reference", request.reference);
  json.field("class", name_of(request.semantic_class)).field("most_steps", request.most_steps);
  json.end_object().finish();
  const JsonValue whole = pipe_.ask(text);
  return read_fields<GuardAnswer>(whole.at("guard", kSource));
}

void WorkerProcess::rewind() {
  if (facts_.mix > 1) pipe_.ask(R"({"rewind":true})");
}

std::string WorkerProcess::state_hash() {
  return pipe_.ask(R"({"hash":true})").at("hash", kSource).as_string("hash");
}

int64_t WorkerProcess::fewest_parts() {
  constexpr const char* kKey = "fewest_parts";
  return pipe_.ask(R"({"fewest_parts":true})").at(kKey, kSource).as_integer(kKey);
}

}  // namespace ridge
