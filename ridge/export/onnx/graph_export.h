// The nodes of a graph as those of an ONNX model, written one after another by the rows of
// export_table.h. The names of values are made as they are asked for.
//
// Images are (N, H, W, C) in Ridge and (N, C, H, W) in ONNX's operators. A value may have a name in
// either order or both, and a Transpose is written where the other one is asked for: elementwise
// operators follow the order that their inputs have, so that few are left. What is broadcast is
// written as it was before, wherever ONNX broadcasts too. Nodes that turn out not to be needed, as
// those of a pattern that became one operator, are left out in the end.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/export/onnx/model_writer.h"
#include "ridge/export/onnx/sized_graph.h"
#include "ridge/io/safetensors.h"

namespace ridge::onnx {

/// Axis i of an image in ONNX's order is axis kToImage[i] of Ridge's, and back.
inline const std::vector<int64_t> kToImage{0, 3, 1, 2}, kFromImage{0, 2, 3, 1};

class GraphExport {
 public:
  /// Inputs of the graph that are not among `inputs` are tensors of `weights`. All outlive it.
  GraphExport(const SizedGraph& sized,
              const std::vector<DataSpec>& inputs,
              const SafetensorsView& weights,
              int64_t opset);

  const SizedGraph& sized() const { return sized_; }
  int64_t opset() const { return model_.opset; }

  /// The value's name in Ridge's order of axes, and in that of images.
  std::string name(Value value);
  std::string image(Value value);
  /// Whether it has a name in the order of images alone, so far.
  bool is_image(Value value) const;
  /// The value, or a smaller one that ONNX broadcasts to it.
  std::string operand(Value value, bool as_image);
  /// Whether operand() may be smaller.
  static bool is_broadcast(Value value);

  void give(Value value, std::string name);
  void give_image(Value value, std::string name);

  /// Writes a node, named after `site`, and returns the name of its output, or of all `outputs`.
  std::string add(std::string_view site,
                  std::string_view op,
                  std::vector<std::string> inputs,
                  const AttributeList& attributes = {});
  std::vector<std::string> add_many(std::string_view site,
                                    std::string_view op,
                                    std::vector<std::string> inputs,
                                    const AttributeList& attributes,
                                    size_t outputs);

  /// A tensor of the model: of a dtype's number, of integers, of a weight with its axes in another
  /// order, if `perm` is not empty.
  std::string scalar(DType dtype, double value);
  std::string integers(std::vector<int64_t> values);
  std::string weight(const Node& input, const std::vector<int64_t>& perm = {});
  /// Whether an input of the graph is a weight.
  bool is_weight(Value value) const;

  /// The name that `make` gives, which is asked for once for all nodes with that key.
  std::string once(const std::string& key, FunctionRef<std::string()> make);

  /// Sizes as a tensor i64[n]; one as i64[].
  std::string shape(std::string_view site, const std::vector<Size>& sizes);
  std::string count(std::string_view site, const Size& size);
  /// Writes a Reshape of `x`, which has sizes `from`.
  std::string reshape(std::string_view site,
                      const std::string& x,
                      const std::vector<Size>& from,
                      const std::vector<Size>& to);
  std::string transpose(std::string_view site,
                        const std::string& x,
                        const std::vector<int64_t>& perm);

  /// The model with those outputs, without the nodes and tensors that none of them needs.
  WrittenModel finish(const std::vector<DataSpec>& inputs, const std::vector<DataSpec>& outputs);

 private:
  /// The names of a value; empty: it has none yet.
  struct Names {
    std::string own, image;
  };
  std::string made(Value value);
  std::string expanded(Value value);
  std::string unique(std::string name);
  std::string named_size(std::string_view site, const std::string& dim);
  void rename(const std::string& from, const std::string& to);
  void drop_unused();

  const SizedGraph& sized_;
  const std::vector<DataSpec>& inputs_;
  const SafetensorsView& weights_;
  WrittenModel model_;
  std::map<std::pair<const Node*, int>, Names> names_;
  std::map<std::pair<const Node*, std::vector<int64_t>>, std::string> weight_names_;
  std::map<std::string, std::string> shared_;  ///< See once().
  std::set<std::string> taken_;                ///< Names of values.
};

/// One node of the graph, for its row.
class NodeExport {
 public:
  NodeExport(GraphExport& to, Node& node) : to_(to), node_(node) {}

  GraphExport& to() { return to_; }
  const Node& node() const { return node_; }
  template <typename T>
  const T& op() const {
    return node_.op_as<T>();
  }
  const std::string& site() const { return node_.site.name; }
  Value in(size_t i) const { return node_.inputs.at(i); }
  Value out() const { return {&node_, 0}; }

  std::string name(size_t i) { return to_.name(in(i)); }
  std::string add(std::string_view op,
                  std::vector<std::string> inputs,
                  const AttributeList& attributes = {}) {
    return to_.add(site(), op, std::move(inputs), attributes);
  }
  void give(std::string name) { to_.give(out(), std::move(name)); }
  void give_image(std::string name) { to_.give_image(out(), std::move(name)); }

 private:
  GraphExport& to_;
  Node& node_;
};

}  // namespace ridge::onnx
