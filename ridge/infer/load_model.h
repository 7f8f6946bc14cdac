// A model with its weights, loaded from files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/config/text.h"
#include "ridge/data/description.h"

namespace ridge {

class Backend;
class ModelSource;
class State;
class TrainObserver;

/// Any number of sessions may share it.
struct LoadedModel {
  std::shared_ptr<const ModelSource> source;
  std::shared_ptr<State> state;  ///< With all of source->state().
  std::string weights;           ///< The file or folder that they were loaded from.
  /// The data that it was trained on, as the weights say, else as the configuration does; nothing
  /// where neither is asked.
  std::optional<data::DataDescription> data = {};
};

struct LoadOptions {
  std::string weights = {};          ///< See open_weights().
  std::string device = {};           ///< Such as "cpu" or "cuda:1"; empty: the configuration's.
  std::vector<ConfigFlag> set = {};  ///< Values that win over the configuration's.
};

/// The files of a model that is described by a configuration.
struct ModelFiles {
  TrainConfig config;
  std::string weights;  ///< See open_weights().
};

/// Finds them: `path` is its configuration, or the folder of a run or of a checkpoint in it; or one
/// in which transformers saved a GPT-2, with its weights. Without options.weights they are the best
/// or else the newest checkpoint of the run, or the checkpoint that `path` is. Settings among the
/// keys go to `settings`. UserError where there is no configuration.
ModelFiles find_model(const std::string& path, const LoadOptions& options, Settings& settings);

/// Loads what find_model() finds, or an ONNX model. The settings of the process stay as they are.
/// UserError also where there are no weights, or they are of another model.
LoadedModel load_model(const std::string& path, const LoadOptions& options = {});

/// Whether `path` is an ONNX model: a file NAME.onnx.
bool is_onnx_file(const std::string& path);

/// Gives the settings among options.set to `settings`. UserError for the rest of options.set and
/// for options.weights: an ONNX model has its own weights and no configuration.
void apply_onnx_options(const std::string& path, const LoadOptions& options, Settings& settings);

/// Loads an ONNX model, with its weights as constants of its graphs; `device` is that of
/// LoadOptions. UserError where it cannot be imported.
LoadedModel load_onnx_model(const std::string& path,
                            const std::string& device,
                            TrainObserver& observer);

/// The same of a configuration that was read. The data say how large the model is: those that the
/// weights describe, else the training data, which are opened. `weights`: see open_weights().
LoadedModel load_model(const TrainConfig& config,
                       const std::string& weights,
                       TrainObserver& observer);

/// The same of a model of any kind, on the device of the configuration.
LoadedModel load_model(std::shared_ptr<const ModelSource> source,
                       const TrainConfig& config,
                       const std::string& weights,
                       TrainObserver& observer);

/// An empty state that keeps its backend.
std::shared_ptr<State> make_state(std::unique_ptr<Backend> backend);

}  // namespace ridge
