#include "ridge/infer/load_model.h"

#include <filesystem>

#include "ridge/config/text.h"
#include "ridge/infer/open_model.h"
#include "ridge/infer/weights.h"
#include "ridge/nn/logits_source.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The configuration that a run wrote into its folder, of which `folder` is a checkpoint, or itself.
TrainConfig config_of_run(const fs::path& folder, std::string& weights) {
  constexpr const char* kName = "config.toml";
  const fs::path whole = fs::canonical(folder);
  const bool is_checkpoint = fs::exists(whole / "manifest.json");
  const fs::path run = is_checkpoint ? whole.parent_path().parent_path() : whole;
  if (!fs::exists(run / kName))
    throw UserError(fmt::format("no {} in '{}'", kName, run.string()),
                    "give the folder of a run, of a checkpoint in it, or a configuration");
  if (is_checkpoint && weights.empty()) weights = whole.string();
  Settings of_run;
  TrainConfig config = load_config_file((run / kName).string(), {}, of_run).config;
  config.train.out = run.string();  // which may lie elsewhere by now
  return config;
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
  LoadedModel model{.source = std::move(source),
                    .state = make_state(open_backend(config.train.device, observer)),
                    .weights = {}};
  model.weights = load_weights(*model.state, model.source->state(), config, weights, observer);
  return model;
}

LoadedModel load_model(const TrainConfig& config,
                       const std::string& weights,
                       TrainObserver& observer) {
  const auto data = data::open_dataset(config.data, data::Split::kTrain);
  const nn::Training training(open_model(config, data->fields(), data->classes()),
                              config.optimizer);
  return load_model(std::make_shared<const nn::LogitsSource>(training), config, weights, observer);
}

LoadedModel load_model(const std::string& path, const LoadOptions& options) {
  std::string weights = options.weights;
  Settings of_file;
  TrainConfig config = fs::is_directory(path) ? config_of_run(path, weights)
                                              : load_config_file(path, {}, of_file).config;
  if (!options.device.empty()) config.train.device = options.device;
  TrainObserver nobody;
  return load_model(config, weights, nobody);
}

}  // namespace ridge
