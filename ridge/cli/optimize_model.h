// `ridge optimize MODEL.onnx` and `ridge ledger replay` of what it wrote.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/cli/optimize_program.h"
#include "ridge/tune/onnx/open_model.h"

namespace CLI {
class App;
}

namespace ridge {

/// Options for models alone.
struct OptimizeModelOptions {
  std::string data, goal, against, python, recipe;
  std::vector<std::string> dims;

  /// The flag of one that is given; empty: none is.
  std::string given() const;
};

void add_model_options(CLI::App& verb, OptimizeModelOptions& options);

int run_optimize_model(const std::string& model,
                       const OptimizeModelOptions& options,
                       const OptimizeProgramOptions& both);

/// The subject of a ledger in `folder`; null where it is of no model.
std::unique_ptr<Target> model_of_ledger(const std::filesystem::path& folder);

}  // namespace ridge
