// Named dimensions without symbolic shapes: a model is a function from their sizes to a graph.
// Another batch size or length is another binding.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/graph/data_spec.h"
#include "ridge/graph/program_graphs.h"

namespace ridge {

/// Whether a datum of that type is one under a binding; names to which that gives no size have any.
bool has_type(const DataSpec& spec, const TensorType& type, const Binding& binding);

/// Any thread may call any function at any time.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  /// The data of all bindings: they differ in the sizes of named dimensions. Outputs may have some
  /// that no input has: their sizes follow from the others.
  virtual std::vector<DataSpec> inputs() const = 0;
  virtual std::vector<DataSpec> outputs() const = 0;
  /// The buffers that the graphs of all bindings share, and how they start.
  virtual std::vector<StateEntry> state() const = 0;

  /// How far the passes of its programs may move its numbers.
  virtual SemanticClass highest_rewrite() const { return SemanticClass::kBitIdentical; }

  /// The dimensions that a binding must give, such as {"B", "T"}: those that inputs name, in order.
  std::vector<std::string> dims() const;

  /// The state, with the constants of the binding, and one entry: the graph for `binding`, which it
  /// records. UserError when a dimension is missing, unknown (the nearest is named), below 1 or too
  /// large.
  ProgramGraphs bind(const Binding& binding) const;

 private:
  /// The entry, and constants that are not among state().
  virtual ProgramGraphs build(const Binding& binding) const = 0;
};

}  // namespace ridge
