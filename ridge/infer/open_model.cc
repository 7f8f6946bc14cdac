#include "ridge/infer/open_model.h"

#include <algorithm>

#include "ridge/base/json_writer.h"
#include "ridge/infer/trained_data.h"
#include "ridge/nn/logits_source.h"

namespace ridge {
namespace {

nn::SampleTypes sample_types(std::span<const data::FieldType> fields) {
  check_internal(fields.size() == 2 && fields[0].name == "x" && fields[1].name == "y",
                 "a data set without fields x and y");
  return {{fields[0].dtype, fields[0].shape}, {fields[1].dtype, fields[1].shape}};
}

// An output for each class that the data have, where the file does not say how many.
void set_outputs(int64_t& outputs, int64_t classes, std::string_view key) {
  const int64_t wanted = std::max<int64_t>(classes, 1);
  if (outputs == 0) outputs = wanted;
  check(classes == 0 || outputs >= wanted,
        "model.{} is {}, but the data have {} {}",
        key,
        outputs,
        wanted,
        key == "vocab" ? "tokens" : "classes");
}

nn::ModelOptions model_options(const TrainConfig& config, int64_t classes) {
  nn::ModelOptions options = config.model;
  const auto set = [&](int64_t& outputs) { set_outputs(outputs, classes, "outputs"); };
  switch (options.kind) {
    case nn::ModelKind::kMlp:
      set(options.mlp.outputs);
      break;
    case nn::ModelKind::kCnn:
      set(options.cnn.outputs);
      break;
    case nn::ModelKind::kResNet18:
      set(options.resnet18.outputs);
      break;
    case nn::ModelKind::kMobileNetV2:
      set(options.mobilenetv2.outputs);
      break;
    case nn::ModelKind::kGpt:
      set_outputs(options.gpt.vocab, classes, "vocab");
      break;
  }
  return options;
}

}  // namespace

std::unique_ptr<nn::Model> open_model(const TrainConfig& config,
                                      std::span<const data::FieldType> fields,
                                      int64_t classes) {
  return nn::make_model(model_options(config, classes), sample_types(fields));
}

TrainedModel open_trained_model(const TrainConfig& config,
                                const std::string& weights,
                                TrainObserver& observer) {
  OpenWeights opened_weights = open_weights(config, weights, observer);
  TrainedModel model{.options = {}, .source = nullptr, .weights = std::move(opened_weights)};
  auto& described = model.weights.data;
  if (!described) {
    observer.on_message(unchecked_note(model.weights.path, config.data.kind));
    described = data::open_dataset(config.data, data::Split::kTrain)->description();
  }
  data::check_kind(*described, config.data.kind);
  std::unique_ptr<nn::Model> opened = open_model(config, described->fields, described->classes);
  model.options = opened->options();
  model.source =
      std::make_shared<const nn::LogitsSource>(nn::Training(std::move(opened), config.optimizer));
  std::vector<std::string> needed;
  for (const StateEntry& entry : model.source->state()) needed.push_back(entry.name);
  check_names(model.weights, needed);
  return model;
}

TextMap metadata_of(const TrainedModel& model) {
  TextMap metadata;
  if (!model.weights.data) return metadata;
  const data::DataDescription& trained = *model.weights.data;
  metadata[data::kDescriptionKey] = data::print_description(trained);
  if (trained.class_names.empty()) return metadata;
  std::string classes;
  JsonWriter json(classes);
  json.begin_array();
  for (const std::string& name : trained.class_names) json.value(name);
  json.end_array().finish();
  metadata["classes"] = classes;
  return metadata;
}

}  // namespace ridge
