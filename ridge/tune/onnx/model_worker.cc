#include "ridge/tune/onnx/model_worker.h"

#include <algorithm>
#include <memory>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/infer/bind_inputs.h"

namespace ridge {
namespace {

constexpr const char* kRequest = "request";
constexpr const char* kAnswer = "answer";

// A block of short runs has many: so many of them are told, evenly spread.
constexpr size_t kMostTold = 256;

void write_runs(JsonWriter& json, const std::vector<double>& runs) {
  json.key("runs").begin_array();
  const size_t told = std::min(runs.size(), kMostTold);
  for (size_t i = 0; i < told; ++i) json.value(runs[i * runs.size() / told]);
  json.end_array();
}

class Server {
 public:
  void answer(const JsonValue& request, JsonWriter& json) {
    if (request.find("open") != nullptr) {
      open(request);
      return FieldWriter(json)("facts", variant_->facts());
    }
    check(variant_ != nullptr, "no model is open");
    if (const JsonValue* count = request.find("run")) {
      std::vector<double> runs;
      const Block block = variant_->run(count->as_integer("run"), runs);
      const FieldWriter writer(json);
      writer("block", block);
      return write_runs(json, runs);
    }
    const std::string path = request.at("outputs", kRequest).as_string("outputs");
    const int64_t start = now_ns();
    const SampleOutputs outputs =
        variant_->outputs(static_cast<size_t>(request.at("count", kRequest).as_integer("count")));
    json.field("seconds", static_cast<double>(now_ns() - start) * 1e-9);
    write_samples(path, outputs, outputs_);
  }

 private:
  void open(const JsonValue& request) {
    const auto text = [&](const char* key) { return request.at(key, kRequest).as_string(key); };
    const auto role = parse_name<ModelRole>(text("role"));
    check(role.has_value(), "unknown role '{}'", text("role"));
    const std::string toml = text("open");
    const ModelRecipe recipe =
        recipe_for(*role, toml.empty() ? ModelRecipe{} : parse_model_recipe(toml, "recipe"));
    apply_threads();
    apply_settings(recipe, "recipe");
    const std::string model = model_to_run(recipe, text("folder"), text("model"));
    // Dimensions are the model's own: f64 has those of the session.
    LoadedModel loaded = load_for(*role, model);
    const std::vector<DataSpec> inputs = loaded.source->inputs();
    outputs_ = loaded.source->outputs();
    ModelSamples samples;
    samples.samples = read_samples(text("samples"), inputs);
    check(!samples.samples.empty(), "there are no samples");
    for (const DataSpec& spec : inputs)
      bind_input(spec, samples.samples[0].at(spec.name).type(), samples.sizes);
    samples.rows = dim_of_rows(inputs, outputs_);
    loaded = {};
    variant_ = std::make_unique<ModelVariant>(
        [&] { return load_for(*role, model); }, recipe, std::move(samples));
  }

  std::vector<DataSpec> outputs_;
  std::unique_ptr<ModelVariant> variant_;
};

}  // namespace

void serve_model(std::istream& in, std::ostream& out) {
  Server server;
  serve_requests(
      in, out, [&](const JsonValue& request, JsonWriter& json) { server.answer(request, json); });
}

ModelWorker::ModelWorker(const WorkerOptions& options,
                         const ModelJob& job,
                         const std::string& recipe,
                         ModelRole role)
    : outputs_(job.outputs), pipe_(options, {"trial-worker", "--model"}) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("open", recipe).field("model", job.model);
  json.field("samples", job.samples)
      .field("folder", job.folder)
      .field("role", name_of(role))
      .end_object()
      .finish();
  facts_ = read_fields<SessionFacts>(pipe_.ask(text).at("facts", kAnswer));
}

Block ModelWorker::run(int64_t runs, std::vector<double>& seconds) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("run", runs).end_object().finish();
  const JsonValue answer = pipe_.ask(text);
  for (const JsonValue& run : answer.at("runs", kAnswer).as_array("runs"))
    seconds.push_back(run.as_number("runs"));
  return read_fields<Block>(answer.at("block", kAnswer));
}

SampleOutputs ModelWorker::outputs(size_t count, const std::string& path, double* seconds) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("outputs", path).field("count", static_cast<int64_t>(count));
  json.end_object().finish();
  const JsonValue answer = pipe_.ask(text);
  if (seconds != nullptr) *seconds = answer.at("seconds", kAnswer).as_number("seconds");
  SampleOutputs outputs = read_samples(path, outputs_);
  check(outputs.size() == count, "{} outputs for {} samples", outputs.size(), count);
  return outputs;
}

}  // namespace ridge
