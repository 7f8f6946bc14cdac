// The values of an import by number, and the graph that it builds.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/graph/graph.h"
#include "ridge/import/aten/import.h"

namespace ridge::aten {

/// A value of ATen's graph, in the graph of ours: in ATen's order of axes, as an image (N, H, W, C)
/// of a (N, C, H, W), or in both; each is made when it is first asked for.
struct Datum {
  TensorType type;  ///< Its axes are in ATen's order.
  Value value = {};
  Value image = {};
};

/// The axes of (N, C, H, W), in the order of an image, and back.
inline const std::vector<int64_t> kToImage{0, 2, 3, 1};
inline const std::vector<int64_t> kFromImage{0, 3, 1, 2};

/// perm such that transpose(x, perm) undoes transpose(y, `perm`).
std::vector<int64_t> inverse(const std::vector<int64_t>& perm);

class ImportContext {
 public:
  /// `source` and `graph`, which is built, must outlive it; `constants`: see import_graph().
  ImportContext(const AtenGraph& source, Graph& graph, std::span<const void* const> constants);

  Graph& graph() const { return graph_; }
  const AtenGraph& source() const { return source_; }
  bool is_image(size_t number) const;
  Value value(size_t number);
  /// UserError unless it has four dimensions.
  Value image(size_t number);
  /// The value with axis perm[i] as axis i; a constant is moved once, when it is loaded.
  Value moved(size_t number, const std::vector<int64_t>& perm);
  /// The result of `make` for the value; for a constant it is made once, when it is loaded. `what`
  /// names it.
  Value derived(size_t number, std::string_view what, FunctionRef<Value(Value)> make);
  void set(size_t number, Datum datum) { data_.at(number) = std::move(datum); }
  /// Its type in ATen's order; UserError where a node before was refused.
  const TensorType& type(size_t number) const;

  /// Adds the nodes of node `number`. UserError where they cannot be.
  void build(size_t number);
  /// From here on, the results of node `number` are inputs.
  void give_up(size_t number);
  /// Returns the order of the axes of each.
  std::vector<std::vector<int64_t>> add_outputs();
  const std::vector<StateEntry>& state() const { return state_; }

 private:
  Value constant(size_t number, const std::vector<int64_t>& perm);
  bool is_constant(size_t number) const {
    return number < source_.inputs.size() && !data_[number].value && !data_[number].image;
  }

  const AtenGraph& source_;
  Graph& graph_;
  const std::span<const void* const> constants_;
  std::vector<Datum> data_;
  std::map<std::string, Value> moved_;
  std::vector<StateEntry> state_;
};

}  // namespace ridge::aten
