// An ONNX model as the target of a tuning loop: how a session of it is compiled and run, by a
// recipe (infer/model_recipe.h), held against the faster of the session as it is and another
// runtime.
#pragma once

#include <memory>

#include "ridge/tune/onnx/model_techniques.h"
#include "ridge/tune/onnx/open_model.h"
#include "ridge/tune/target.h"

namespace ridge {

/// The model as a target of run_loop() and replay(), run by `runners`: those of model_processes(),
/// but for tests.
std::unique_ptr<Target> model_target(const ModelRequest& request,
                                     std::unique_ptr<ModelRunners> runners,
                                     const ModelSituation& machine = machine_situation());

}  // namespace ridge
