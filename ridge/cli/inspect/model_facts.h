// `ridge inspect MODEL.onnx` prints these facts about the program that a session runs.
#pragma once

#include <string>
#include <vector>

#include "ridge/cli/inspect/compiled_facts.h"
#include "ridge/cli/inspect/inspect.h"
#include "ridge/infer/load_model.h"

namespace ridge {

struct ModelFacts : CompiledFacts {
  LoadedModel model;
  Binding binding = {};
  std::vector<std::string> assumed = {};  ///< Dimensions that nobody gave a size: they have 1.
};

/// Imports the model and compiles it as a session does, but takes no memory for it. UserError where
/// it cannot be imported, and where a dimension has no size and no graph is made for 1.
ModelFacts inspect_model(const InspectOptions& options);

std::string model_text(const ModelFacts& facts, const InspectOptions& options);
/// One line of JSON.
std::string model_json(const ModelFacts& facts, const InspectOptions& options);

}  // namespace ridge
