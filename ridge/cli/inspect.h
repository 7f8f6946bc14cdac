// `ridge inspect FILE`: what is in a graph.
#pragma once

#include <string>

#include "ridge/graph/graph.h"

namespace ridge {

struct InspectOptions {
  std::string file;
  bool json = false;
  bool nodes = false;
};

/// The report on the graph in `options.file`, as text or as one JSON object ("ridge.inspect/1").
/// UserError when the file cannot be read or holds no valid graph.
std::string inspect(const InspectOptions& options);

}  // namespace ridge
