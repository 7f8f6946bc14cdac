// `ridge predict MODEL`: the outputs of a trained model for data in files.
#include "ridge/infer/predict.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/predict/class_names.h"
#include "ridge/cli/predict/output_files.h"
#include "ridge/cli/verbs.h"
#include "ridge/infer/input_files.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/infer/sample_files.h"

namespace ridge {
namespace {

constexpr int64_t kBatch = 64;

struct PredictOptions {
  std::string model;
  LoadOptions load;
  std::vector<std::string> set, inputs;
  std::string output, preprocess, classes, recipe;
  std::optional<int64_t> batch;  ///< Nothing: the recipe's, else kBatch.
  bool json = false;
};

/// All that a report says.
struct PredictReport {
  std::string model{}, weights{};
  const NamedRows* inputs = nullptr;
  std::optional<ClassScores> scores{};
  Prediction prediction{};
  double seconds = 0;
  int64_t batch = kBatch;
};

template <typename T>
void write_list(JsonWriter& json, std::string_view key, const std::vector<T>& list) {
  json.key(key).begin_array();
  for (const T& item : list) json.value(item);
  json.end_array();
}

void write_classes(JsonWriter& json, const PredictReport& report) {
  if (!report.scores) return;
  const auto found = report.prediction.outputs.find(report.scores->output);
  if (found == report.prediction.outputs.end()) return;
  if (found->second.type().rank() != 2) return;  // a class for each token is no class of the row
  if (!report.scores->names.empty()) write_list(json, "classes", report.scores->names);
  const std::vector<std::optional<int64_t>> classes = likeliest(found->second);
  json.key("argmax").begin_array();
  for (const auto& each : classes) each ? json.value(*each) : json.value(nullptr);
  json.end_array();
  if (const std::string note = missing_classes_note(classes); !note.empty()) write_note(note);
}

std::string json_report(const PredictReport& report, const OutputFiles& files) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.predict/1").field("model", report.model);
  json.field("weights", report.weights).field("rows", report.prediction.rows);
  json.field("batch", report.batch).field("batches", report.prediction.batches);
  json.field("seconds", report.seconds).key("inputs").begin_array();
  for (const auto& [name, rows] : *report.inputs) {
    json.begin_object().field("name", name).field("type", to_string(rows->type()));
    if (const std::vector<std::string> names = rows->names(); !names.empty())
      write_list(json, "files", names);
    json.end_object();
  }
  json.end_array().key("outputs").begin_array();
  for (const auto& [name, tensor] : report.prediction.outputs) {
    json.begin_object().field("name", name).field("type", to_string(tensor.type()));
    json.field("file", files.file_of(name)).end_object();
  }
  json.end_array();
  write_classes(json, report);
  json.end_object().finish();
  return text + "\n";
}

std::string text_report(const PredictReport& report, const OutputFiles& files) {
  const int64_t rows = report.prediction.rows;
  const std::string what = rows == 0   ? "one run"
                           : rows == 1 ? "1 row"
                                       : fmt::format("{} rows", grouped(rows));
  std::string text = fmt::format(
      "{} of {}: {} in {}\n\n", report.model, report.weights, what, duration_text(report.seconds));
  for (const auto& [name, tensor] : report.prediction.outputs)
    text += fmt::format("  {}  {}  {}\n", name, to_string(tensor.type()), files.file_of(name));
  return text;
}

struct OpenedModel {
  std::string kind;
  LoadedModel model;
  data::Crop crop{};  ///< How pictures that are samples are cropped.
};

// `path`: the model, or the quantized one of the recipe.
OpenedModel open_predicted(const PredictOptions& options,
                           const std::string& path,
                           TrainObserver& observer) {
  LoadOptions load = options.load;
  for (const std::string& text : options.set) load.set.push_back(parse_set(text));
  if (is_onnx_file(options.model)) {
    apply_onnx_options(options.model, load, settings());
    apply_threads();
    return {.kind = "onnx", .model = load_onnx_model(path, load.device, observer)};
  }
  const ModelFiles files = find_model(options.model, load, settings());
  apply_threads();
  return {.kind = std::string(name_of(files.config.model.kind)),
          .model = load_model(files.config, files.weights, observer),
          .crop = files.config.data.crop};
}

// Refuses what is for ONNX models alone: of its own models Ridge knows it.
void check_onnx_options(const PredictOptions& options) {
  if (is_onnx_file(options.model)) return;
  const auto refuse = [](const char* flag, const std::string& value, const char* what) {
    if (!value.empty())
      throw UserError(
          fmt::format("{} '{}' is for ONNX models: this one knows {}", flag, value, what),
          fmt::format("leave out {}", flag));
  };
  refuse("--preprocess", options.preprocess, "how its pictures were prepared");
  refuse("--classes", options.classes, "the names of its classes");
}

std::optional<ClassScores> scores_of(const PredictOptions& options, const ModelSession& session) {
  if (!options.classes.empty()) return read_class_names(options.classes, session.outputs());
  const auto& trained = session.model().data;
  if (!trained || trained->classes == 0) return std::nullopt;
  return ClassScores{.output = "logits", .names = trained->class_names};
}

/// The rows of all inputs, from files of arrays, of samples as the training had them, or of
/// pictures that --preprocess prepares.
NamedRows read_rows(const std::vector<InputFile>& from,
                    const PredictOptions& options,
                    const ModelSession& session,
                    data::Crop crop,
                    TrainObserver& observer) {
  const auto& trained = session.model().data;
  std::optional<Preprocess> preprocess;
  if (!options.preprocess.empty()) preprocess = load_preprocess(options.preprocess);
  bool has_pictures = false;
  const auto open = [&](const DataSpec& input, const std::string& path) {
    if (!preprocess) return open_samples(path, trained ? &*trained : nullptr, crop, observer);
    std::unique_ptr<InputRows> pictures = open_pictures(path, input, *preprocess);
    has_pictures = has_pictures || pictures != nullptr;
    return pictures;
  };
  NamedRows rows = read_inputs(from, session.inputs(), open, observer);
  if (preprocess && !has_pictures)
    throw UserError(
        fmt::format("--preprocess '{}' is for pictures, and arrays are taken as they are",
                    options.preprocess),
        "leave it out, or name a picture or a folder of pictures");
  return rows;
}

void run_predict(const PredictOptions& options) {
  check_onnx_options(options);
  check_stdout();
  check(options.batch.value_or(1) >= 1, "--batch must be at least 1; got {}", *options.batch);
  const ModelRecipe recipe =
      options.recipe.empty() ? ModelRecipe{} : read_model_recipe(options.recipe, options.model);
  apply_settings(recipe, options.recipe);
  ProgressDisplay progress(stderr);
  const std::string model = model_to_run(recipe, options.recipe, options.model);
  OpenedModel opened = open_predicted(options, model, progress);
  ProgramLimits limits{.bindings = 2, .programs = 1};
  if (!options.recipe.empty()) limits = limits_of(recipe, 2);
  ModelSession session(std::move(opened.model), limits);
  const OutputFiles to(options.output, session.outputs());
  PredictReport report{.model = opened.kind,
                       .weights = session.model().weights,
                       .scores = scores_of(options, session)};
  const std::vector<InputFile> from = parse_input_files(options.inputs, session.inputs());
  const NamedRows inputs = read_rows(from, options, session, opened.crop, progress);
  report.inputs = &inputs;
  report.batch = options.batch.value_or(recipe.batch.value_or(kBatch));
  const int64_t start = now_ns();
  report.prediction = predict(session, inputs, report.batch, recipe.instances);
  report.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  to.write(report.prediction.outputs);
  const auto& trained = session.model().data;
  for (const InputFile& file : from)
    if (const std::string note = array_note(file.path, trained ? &*trained : nullptr);
        !note.empty())
      write_note(note);
  progress.clear_bar();
  write_stdout(options.json ? json_report(report, to) : text_report(report, to));
}

}  // namespace

void add_predict(CLI::App& app, int&) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* verb = app.add_subcommand("predict", "Run a trained model on data of yours");
  verb->add_option(
          "model", options->model, "TOML file, folder of a run or a checkpoint, or FILE.onnx")
      ->required();
  verb->add_option(
          "--input",
          options->inputs,
          "An .npy or .npz as the model takes it; or a CSV, an IDX file, a picture or a folder of "
          "pictures, as data.kind says; NAME= may be left out where there is one input; repeatable")
      ->type_name("NAME=FILE")
      ->required()
      ->allow_extra_args(false);  // or it would take the model for a second file
  verb->add_option("--output", options->output, "FILE.npy, FILE.npz, or a folder for NAME.npy")
      ->type_name("PATH")
      ->required();
  verb->add_option("--preprocess",
                   options->preprocess,
                   "How pictures are prepared for an ONNX model: imagenet, or FILE.toml")
      ->type_name("NAME|FILE");
  verb->add_option("--classes", options->classes, "Names of an ONNX model's classes, a line each")
      ->type_name("FILE");
  verb->add_option("--weights", options->load.weights, "As for eval")->type_name("PATH");
  verb->add_option("--device", options->load.device, "Where it runs (train.device)");
  verb->add_option("--set", options->set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--batch", options->batch, "Rows that run at once; default: 64");
  verb->add_option("--recipe", options->recipe, "What ridge optimize MODEL.onnx wrote for it")
      ->type_name("FILE");
  verb->add_flag("--json", options->json, "One JSON object (ridge.predict/1)");
  verb->callback([options] { run_predict(*options); });
}

}  // namespace ridge
