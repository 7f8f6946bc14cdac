// Rebuilds a graph node by node, with some nodes replaced: what passes are made of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Walks `from` in order and grows a new graph: the pass calls copy() or replace() once for each
/// node, then finish().
class Rewrite {
 public:
  explicit Rewrite(const Graph& from);

  Graph& to() { return to_; }
  /// The value of the new graph that stands for `old`.
  Value mapped(Value old) const;
  bool has(const Node& old) const { return !values_.at(static_cast<size_t>(old.id)).empty(); }
  std::vector<Value> mapped_inputs(const Node& old) const;
  /// The node as it is, on the mapped inputs.
  Node& copy(const Node& old);
  /// `results` (values of the new graph, of the same types) stand for the node's results.
  void replace(const Node& old, std::vector<Value> results);
  /// The output of that name becomes `value`, of the new graph.
  void redirect(const std::string& output, Value value) { redirected_[output] = value; }
  /// The new graph, with the outputs of the old one.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<std::vector<Value>> values_;  ///< By old node id.
  std::map<std::string, Value> redirected_;
};

/// The number that every element of `value` has, when it is a splat constant.
std::optional<double> splat_of(Value value);

/// For each node of `graph`, whether an output depends on it.
std::vector<bool> live_nodes(const Graph& graph);

}  // namespace ridge
