#include "ridge/infer/load_model.h"

#include <filesystem>

#include "ridge/config/value.h"
#include "ridge/import/huggingface/gpt2_config.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/open_model.h"
#include "ridge/infer/trained_data.h"
#include "ridge/infer/weights.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunConfig = "config.toml";
constexpr const char* kForeignConfig = "config.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The configuration that a run wrote into its folder, of which `folder` is a checkpoint, or itself.
ModelFiles files_of_run(const fs::path& folder,
                        const std::vector<ConfigFlag>& set,
                        Settings& settings) {
  const fs::path whole = fs::canonical(folder);
  const bool is_checkpoint = is_there(whole / "manifest.json");
  const fs::path run = is_checkpoint ? whole.parent_path().parent_path() : whole;
  if (!is_there(run / kRunConfig))
    throw UserError(fmt::format("no {} in '{}'", kRunConfig, run.string()),
                    "give the folder of a run, of a checkpoint in it, or a configuration");
  ModelFiles files{.config = load_config_file((run / kRunConfig).string(), set, settings).config,
                   .weights = is_checkpoint ? whole.string() : std::string()};
  files.config.train.out = run.string();  // which may lie elsewhere by now
  return files;
}

// A folder as transformers saves a GPT-2: its sizes, and its weights.
ModelFiles files_of_gpt2(const fs::path& folder,
                         const std::vector<ConfigFlag>& set,
                         Settings& settings) {
  const std::string config = (folder / kForeignConfig).string();
  const nn::GptOptions gpt = read_gpt2_config(config);
  // No data are known: rows of tokens as long as it takes them.
  const std::string text = fmt::format(
      "[model]\nkind = 'gpt'\nvocab = {0}\ncontext = {1}\nlayers = {2}\nheads = {3}\nwidth = {4}\n"
      "[data]\nkind = 'random'\ntokens = true\nshape = [{1}]\nclasses = {0}\n"
      "[train]\nsteps = 1\n",
      gpt.vocab,
      gpt.context,
      gpt.layers,
      gpt.heads,
      gpt.width);
  ModelFiles files{.config = load_config(text, config, set, settings).config,
                   .weights = (folder / "model.safetensors").string()};
  // Weights that were exported here say which they were.
  if (is_there(files.weights))
    if (const auto trained = trained_data(SafetensorsFile(files.weights)->metadata(),
                                          files.weights,
                                          "save it without that text of its metadata"))
      files.config.data.kind = trained->kind;
  return files;
}

ModelFiles files_of_folder(const fs::path& folder,
                           const std::vector<ConfigFlag>& set,
                           Settings& settings) {
  const bool is_run = is_there(folder / kRunConfig) || !is_there(folder / kForeignConfig);
  return is_run ? files_of_run(folder, set, settings) : files_of_gpt2(folder, set, settings);
}

LoadedModel load_opened(std::shared_ptr<const ModelSource> source,
                        const TrainConfig& config,
                        OpenWeights weights,
                        TrainObserver& observer) {
  LoadedModel model{.source = std::move(source),
                    .state = make_state(open_backend(config.train.device, observer)),
                    .weights = weights.path,
                    .data = std::move(weights.data)};
  load_weights(*model.state, model.source->state(), weights);
  return model;
}

}  // namespace

std::shared_ptr<State> make_state(std::unique_ptr<Backend> backend) {
  struct Owned {
    explicit Owned(std::unique_ptr<Backend> device) : backend(std::move(device)), state(*backend) {}
    std::unique_ptr<Backend> backend;
    State state;
  };
  const auto owned = std::make_shared<Owned>(std::move(backend));
  return {owned, &owned->state};
}

LoadedModel load_model(std::shared_ptr<const ModelSource> source,
                       const TrainConfig& config,
                       const std::string& weights,
                       TrainObserver& observer) {
  return load_opened(std::move(source), config, open_weights(config, weights, observer), observer);
}

LoadedModel load_model(const TrainConfig& config,
                       const std::string& weights,
                       TrainObserver& observer) {
  TrainedModel opened = open_trained_model(config, weights, observer);
  return load_opened(std::move(opened.source), config, std::move(opened.weights), observer);
}

bool is_onnx_file(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".onnx") && !fs::is_directory(path, ignored);
}

void apply_onnx_options(const std::string& path, const LoadOptions& options, Settings& settings) {
  if (!options.weights.empty())
    throw UserError(fmt::format("'{}' is an ONNX model, which has weights of its own", path),
                    fmt::format("leave out '{}'", options.weights));
  for (const ConfigFlag& flag : options.set) {
    if (!is_setting(flag.key))
      throw UserError(fmt::format("'{}' is an ONNX model, which has no configuration", path),
                      fmt::format("leave out '{}'", flag.key));
    settings.set(flag.key, setting_text(flag.value), flag.source, flag.where);
  }
}

LoadedModel load_onnx_model(const std::string& path,
                            const std::string& device,
                            TrainObserver& observer) {
  auto source = std::make_shared<const OnnxSource>(OnnxModel(path));
  const std::string place = device.empty() ? TrainConfig().train.device : device;
  return {.source = std::move(source),
          .state = make_state(open_backend(place, observer)),
          .weights = path};
}

ModelFiles find_model(const std::string& path, const LoadOptions& options, Settings& settings) {
  std::error_code ignored;
  ModelFiles files =
      fs::is_directory(path, ignored)
          ? files_of_folder(path, options.set, settings)
          : ModelFiles{.config = load_config_file(path, options.set, settings).config,
                       .weights = {}};
  if (!options.weights.empty()) files.weights = options.weights;
  if (!options.device.empty()) files.config.train.device = options.device;
  return files;
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  TrainObserver nobody;
  Settings of_file;
  if (is_onnx_file(path)) {
    apply_onnx_options(path, options, of_file);
    return load_onnx_model(path, options.device, nobody);
  }
  const ModelFiles files = find_model(path, options, of_file);
  return load_model(files.config, files.weights, nobody);
}

}  // namespace ridge
