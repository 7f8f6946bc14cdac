// Named dimensions without symbolic shapes: a model is a function from their sizes to a graph.
// Another batch size or length is another binding.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/data_spec.h"
#include "ridge/graph/program_graphs.h"

namespace ridge {

/// Any thread may call any function at any time.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  /// The data of all bindings: they differ in the sizes of named dimensions.
  virtual std::vector<DataSpec> inputs() const = 0;
  virtual std::vector<DataSpec> outputs() const = 0;
  /// The buffers that the graphs of all bindings share, and how they start.
  virtual std::vector<StateEntry> state() const = 0;

  /// The dimensions that a binding must give, such as {"B", "T"}: those that inputs name, in order.
  std::vector<std::string> dims() const;

  /// The state, and one entry: the graph for `binding`, which it records. UserError when a
  /// dimension is missing, unknown (the nearest is named), below 1 or too large.
  ProgramGraphs bind(const Binding& binding) const;

 private:
  virtual Graph build(const Binding& binding) const = 0;
};

}  // namespace ridge
