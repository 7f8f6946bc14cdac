// The graph of a model for one binding, and how its sizes follow from named dimensions: a graph has
// sizes alone, but a file is for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/model_source.h"

namespace ridge::onnx {

/// A size: a number times named dimensions, such as 4 B T.
struct Size {
  int64_t factor = 1;
  std::vector<std::string> names = {};

  bool is_number() const { return names.empty(); }
  bool operator==(const Size&) const = default;
};

class SizedGraph {
 public:
  /// Binds the model to a few sizes of each dimension but those of `fixed`, and rewrites each graph
  /// by `prepare`. UserError where the graphs differ in more than sizes, or `fixed` has what the
  /// model has not.
  SizedGraph(const ModelSource& source,
             const Binding& fixed,
             FunctionRef<Graph(const Graph&)> prepare);

  const Graph& graph() const { return graphs_[0]; }
  /// Dimensions that have one size in all graphs: those of `fixed`, and such as may be at most 3.
  const Binding& fixed() const { return fixed_; }

  /// The size of an axis, and all of them. UserError where it is no multiple of dimensions.
  Size size(Value value, size_t axis) const;
  std::vector<Size> sizes(Value value) const;
  /// A number that the node's op says, in the same way.
  Size number(const Node& node, FunctionRef<int64_t(const Node&)> read) const;

 private:
  /// A dimension that differs from the first graph's in one other, and its sizes.
  struct Variant {
    std::string name;
    int64_t first = 0, other = 0;
  };
  Size derived(FunctionRef<int64_t(const Graph&)> read, const Node& node) const;
  void check_alike() const;

  Binding fixed_;
  std::vector<Variant> variants_;
  std::vector<Graph> graphs_;  ///< The first binding's, and one a variant.
};

}  // namespace ridge::onnx
