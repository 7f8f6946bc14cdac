// The weights of a trained model, for programs that change nothing.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridge/config/config.h"
#include "ridge/run/observer.h"
#include "ridge/run/program.h"

namespace ridge {

/// The options of a program that only reads its weights: kernels may have them packed.
ProgramOptions inference_options();

/// Adds `entries` to `state` with the values of a file, and returns the path of the weights that it
/// took: mapped where State::can_adopt() allows it, else copied. `weights` is a safetensors file,
/// or the folder of a checkpoint or of a run; where it is empty, it is the best or else the newest
/// checkpoint in config.train.out. Nobody may write to a file that is mapped: one that is to change
/// is replaced by a rename. UserError where there is no such file, where it is of another model, or
/// where the state has one of the entries already; then the state is as it was.
std::string load_weights(State& state,
                         std::span<const StateEntry> entries,
                         const TrainConfig& config,
                         const std::string& weights,
                         TrainObserver& observer);

/// The backend of `device`, as make_backend() has it; its notes go to `observer`.
std::unique_ptr<Backend> open_backend(const std::string& device, TrainObserver& observer);

}  // namespace ridge
