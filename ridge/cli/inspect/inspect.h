// `ridge inspect FILE`: what is in a graph, in an ONNX model, in a capture of torch.compile, or in
// the program that a configuration trains.
#pragma once

#include <string>
#include <vector>

namespace ridge {

struct InspectOptions {
  std::string file;
  bool json = false;
  bool nodes = false;                  ///< Also every node (and parameter).
  bool plan = false;                   ///< Also the plan, a launch a line; not of graphs.
  std::string device = {};             ///< The same as --device of train; not for graphs.
  std::vector<std::string> set = {};   ///< "KEY=VALUE"; configurations only.
  std::string recipe = {};             ///< Path of a recipe; configurations only.
  std::vector<std::string> dims = {};  ///< "NAME=SIZE"; ONNX models only.
};

/// The report on what is in `options.file`, as text or as one JSON object ("ridge.inspect/1", whose
/// "kind" is "graph", "model", "capture" or "program"). UserError when the file cannot be read or
/// holds neither a valid graph, nor a model that can be imported, nor a configuration that can be
/// opened.
std::string inspect(const InspectOptions& options);

}  // namespace ridge
