#include "ridge/cli/export/export.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/export/onnx/onnx_export.h"
#include "ridge/import/huggingface/tensor_names.h"
#include "ridge/import/huggingface/write_config.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/open_model.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

struct ExportOptions {
  std::string model;
  LoadOptions load;
  std::vector<std::string> set, dims;
  std::string onnx, safetensors;
  int64_t opset = OnnxExportOptions::kDefaultOpset;
  std::string names = std::string(name_of(TensorNames::kRidge));
  bool json = false;
};

/// All that a report says.
struct ExportReport {
  std::string model{}, weights{};
  OnnxExportResult onnx{};
  size_t tensors = 0;    ///< Tensors of the safetensors file.
  std::string config{};  ///< The config.json beside it; empty: none.
};

// The file beside the weights by which transformers opens their folder; empty where it would not.
std::string config_place(const std::string& weights, TensorNames names) {
  const std::filesystem::path path(weights);
  if (names != TensorNames::kHuggingFace || path.filename() != "model.safetensors") return {};
  std::string place = path.parent_path() / "config.json";
  check_place(place);
  std::error_code ignored;
  if (!std::filesystem::exists(place, ignored)) return place;
  // It is replaced as the weights are; what is another program's is not.
  const JsonValue there = parse_json(read_file(place), place);
  if (there.find("model_type") == nullptr)
    throw UserError(fmt::format("'{}' would be replaced, and is not transformers'", place),
                    "give --safetensors another folder");
  return place;
}

// Returns the file that was written; empty: none.
std::string write_config(const TrainedModel& model, const std::string& place) {
  if (place.empty()) return {};
  const auto& trained = model.weights.data;
  const auto text =
      transformers_config(model.options,
                          *model.weights.tensors,
                          trained ? trained->class_names : std::vector<std::string>());
  if (!text) {
    write_note(
        "no config.json is written: transformers has ResNets with the stem of ImageNet alone");
    return {};
  }
  write_file_atomically(place, *text);
  return place;
}

// Writes the parameters and statistics of the model, under the names that are asked for.
size_t write_weights(const TrainedModel& model, TensorNames names, const std::string& path) {
  std::vector<TensorView> own;
  for (const StateEntry& entry : model.source->state()) {
    TensorView view = model.weights.tensors->checked(entry.name, entry.type);
    view.name = entry.name;
    own.push_back(view);
  }
  const RenamedTensors renamed = with_foreign_names(std::move(own), model.options.kind, names);
  TextMap metadata = metadata_of(model);
  metadata.erase("classes");         // the description has them
  metadata.emplace("format", "pt");  // transformers reads no file that does not say this
  save_safetensors(path, renamed.tensors, metadata);
  return renamed.tensors.size();
}

void write_data(JsonWriter& json, std::string_view key, const std::vector<DataSpec>& data) {
  json.key(key).begin_array();
  for (const DataSpec& spec : data)
    json.begin_object().field("name", spec.name).field("type", type_text(spec)).end_object();
  json.end_array();
}

std::string json_report(const ExportReport& report, const ExportOptions& options) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.export/1").field("model", report.model);
  json.field("weights", report.weights);
  if (!options.onnx.empty()) {
    json.key("onnx").begin_object().field("file", options.onnx).field("opset", options.opset);
    json.field("nodes", report.onnx.nodes).field("weight_bytes", report.onnx.weight_bytes);
    if (!report.onnx.data_file.empty()) json.field("data_file", report.onnx.data_file);
    write_data(json, "inputs", report.onnx.inputs);
    write_data(json, "outputs", report.onnx.outputs);
    json.end_object();
  }
  if (!options.safetensors.empty()) {
    json.key("safetensors").begin_object().field("file", options.safetensors);
    json.field("names", options.names).field("tensors", report.tensors);
    if (!report.config.empty()) json.field("config", report.config);
    json.end_object();
  }
  json.end_object().finish();
  return text + "\n";
}

std::string text_report(const ExportReport& report, const ExportOptions& options) {
  std::string text = fmt::format("{} of {}\n\n", report.model, report.weights);
  if (!options.onnx.empty()) {
    text += fmt::format("  {}  opset {}, {} nodes, {} of weights{}\n",
                        options.onnx,
                        options.opset,
                        grouped(report.onnx.nodes),
                        bytes_text(report.onnx.weight_bytes),
                        report.onnx.data_file.empty() ? "" : " in " + report.onnx.data_file);
    for (const auto* data : {&report.onnx.inputs, &report.onnx.outputs})
      for (const DataSpec& spec : *data) text += fmt::format("    {}\n", to_string(spec));
  }
  if (!options.safetensors.empty())
    text += fmt::format(
        "  {}  {} tensors with names of {}\n", options.safetensors, report.tensors, options.names);
  if (!report.config.empty())
    text += fmt::format("  {}  for from_pretrained of transformers\n", report.config);
  return text;
}

// Neither file need be there yet. The places were checked: no part of a path is missing.
bool is_same_place(const std::string& a, const std::string& b) {
  const auto place = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path), ignored);
  };
  return !a.empty() && !b.empty() && place(a) == place(b);
}

void run_export(const ExportOptions& options) {
  if (options.onnx.empty() && options.safetensors.empty())
    throw UserError("no file is asked for", "give --onnx FILE or --safetensors FILE");
  if (is_onnx_file(options.model))
    throw UserError(fmt::format("'{}' is an ONNX model already", options.model),
                    "give the configuration or the run that it was trained by");
  check_place(options.onnx);
  check_place(options.safetensors);
  const auto names = parse_name<TensorNames>(options.names);
  check(names.has_value(),
        "--names must be one of {}; got '{}'",
        names_of(TensorNames{}),
        options.names);
  const std::string config = config_place(options.safetensors, *names);
  for (const std::string& other : {options.safetensors, config})
    if (is_same_place(options.onnx, other))
      throw UserError(
          fmt::format("'{}' would be both the ONNX model and a file of --safetensors", other),
          "give --onnx another file");
  const Binding sizes = parse_sizes(options.dims);
  ProgressDisplay progress(stderr);
  LoadOptions load = options.load;
  for (const std::string& text : options.set) load.set.push_back(parse_set(text));
  const ModelFiles files = find_model(options.model, load, settings());
  const TrainedModel model = open_trained_model(files.config, files.weights, progress);
  ExportReport report{.model = std::string(name_of(model.options.kind)),
                      .weights = model.weights.path};
  if (!options.onnx.empty())
    report.onnx = export_onnx(*model.source,
                              *model.weights.tensors,
                              metadata_of(model),
                              options.onnx,
                              {.opset = options.opset, .sizes = sizes});
  if (!options.safetensors.empty()) {
    report.tensors = write_weights(model, *names, options.safetensors);
    report.config = write_config(model, config);
  }
  progress.clear_bar();
  write_stdout(options.json ? json_report(report, options) : text_report(report, options));
}

}  // namespace

void add_export(CLI::App& app, int&) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* verb = app.add_subcommand("export", "Write a trained model for other programs");
  verb->add_option("model", options->model, "TOML file, or folder of a run or a checkpoint")
      ->required();
  verb->add_option("--onnx", options->onnx, "An ONNX model, for batches of any size")
      ->type_name("FILE");
  verb->add_option("--opset", options->opset, "Version of ONNX's operators, 13 to 23; default: 17");
  verb->add_option("--dim", options->dims, "One size for a dimension of the ONNX model; repeatable")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  verb->add_option("--safetensors", options->safetensors, "The weights alone")->type_name("FILE");
  verb->add_option("--names",
                   options->names,
                   "The names and layouts in that file: ridge, huggingface, torchvision; default: "
                   "ridge");
  verb->add_option("--weights", options->load.weights, "As for eval")->type_name("PATH");
  verb->add_option("--set", options->set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_flag("--json", options->json, "One JSON object (ridge.export/1)");
  verb->callback([options] { run_export(*options); });
}

}  // namespace ridge
