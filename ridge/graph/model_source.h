// Named dimensions without symbolic shapes: a model is a function from their sizes to a graph.
// Another batch size or length is another binding.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  /// The dimensions that a binding must give, such as {"B", "T"}.
  virtual std::vector<std::string> dims() const = 0;

  /// The graph for `binding`, which it records. UserError when a dimension is missing, unknown (the
  /// nearest is named) or below 1.
  Graph bind(const Binding& binding) const;

 private:
  virtual Graph build(const Binding& binding) const = 0;
};

}  // namespace ridge
