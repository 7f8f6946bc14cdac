// The weights of a trained model, for programs that change nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/config/config.h"
#include "ridge/data/description.h"
#include "ridge/graph/model_source.h"
#include "ridge/import/huggingface/tensor_names.h"
#include "ridge/io/safetensors.h"
#include "ridge/run/observer.h"
#include "ridge/run/program.h"

namespace ridge {

/// The options of a program that only reads its weights: kernels may have them packed.
ProgramOptions inference_options();
/// The same for the programs of a model.
ProgramOptions inference_options(const ModelSource& source);

/// The weights of a trained model in a file whose checksums, if it has some, were verified, and the
/// data that it was trained on.
struct OpenWeights {
  std::string path;  ///< The file, or the folder of the checkpoint.
  const SafetensorsView* tensors = nullptr;
  std::shared_ptr<const void> owner;          ///< Keeps what `tensors` views.
  std::optional<data::DataDescription> data;  ///< Nothing where the file does not say.
  /// The names that the file has for a model of that kind; `tensors` have Ridge's.
  TensorNames names = TensorNames::kRidge;
  nn::ModelKind kind = {};
};

/// Opens a safetensors file with the weights of a model of that kind, under Ridge's names or those
/// of another library, which is said through `observer`.
OpenWeights open_weight_file(const std::string& path, nn::ModelKind kind, TrainObserver& observer);

/// UserError, which lists tensors as the file names them, where some of those `needed` are missing,
/// or where the file has another library's names and more than those.
void check_names(const OpenWeights& weights, const std::vector<std::string>& needed);

/// Opens `weights`, a safetensors file or the folder of a checkpoint or of a run; if it is empty,
/// the best or else the newest checkpoint in config.train.out. UserError when there is none, or
/// when it is damaged.
OpenWeights open_weights(const TrainConfig& config,
                         const std::string& weights,
                         TrainObserver& observer);

/// Adds `entries` to `state` with the values of the file: mapped where State::can_adopt() allows
/// it, else copied. Nobody may write to a file that is mapped: one that is to change is replaced by
/// a rename. UserError where they are of another model, or where the state has one of the entries
/// already; then the state is as it was.
void load_weights(State& state, std::span<const StateEntry> entries, const OpenWeights& weights);

/// The backend of `device`, as make_backend() has it; its notes go to `observer`.
std::unique_ptr<Backend> open_backend(const std::string& device, TrainObserver& observer);

}  // namespace ridge
