// A node as the builder of its op sees it: inputs, attributes, and where its results go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/import/onnx/import_context.h"

namespace ridge::onnx {

/// Functions throw UserError for an input or attribute that is not what they are asked for: the
/// importer adds the node to what it could not do.
class NodeContext {
 public:
  /// Nodes are added to `target`: the graph that is imported, or one in which what is known is
  /// computed.
  NodeContext(ImportContext& import,
              const NodeProto& proto,
              std::vector<DatumPtr> inputs,
              Scope& scope,
              Graph& target);

  const NodeProto& proto() const { return proto_; }
  /// The version of the operators of the node's domain.
  int64_t opset() const { return opset_; }
  Graph& graph() const { return target_; }
  ImportContext& import() const { return import_; }
  Scope& scope() const { return scope_; }

  // ---- inputs ----

  size_t inputs() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const DatumPtr& datum(size_t i) const;
  DType dtype(size_t i) const { return datum(i)->dtype; }
  const Shape& shape(size_t i) const { return datum(i)->shape; }
  int64_t rank(size_t i) const { return std::ssize(shape(i)); }
  /// Null when the input is absent or known to a run alone.
  const Known* known(size_t i) const;
  Value value(size_t i) const;
  /// The same as (N, H, W, C) of a (N, C, H, W).
  Value image(size_t i) const;
  /// True where the input stands in the graph as an image alone.
  bool is_image(size_t i) const;
  /// The elements of an input that must be known.
  std::vector<int64_t> integers(size_t i, std::string_view what) const;
  /// The one element of an input that must be known.
  double scalar(size_t i, std::string_view what) const;
  int64_t whole(size_t i, std::string_view what) const;
  /// The input with axis perm[i] as axis i: what is known is moved now, once.
  Value transposed(size_t i, const std::vector<int64_t>& perm) const;
  /// A value of these elements; `what` is a part of its name where it is a buffer of the state.
  Value place(const Known& known, std::string_view what) const;

  // ---- attributes ----

  bool has_attribute(std::string_view name) const { return find(name) != nullptr; }
  const Attribute* find(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> list(std::string_view name, std::vector<int64_t> fallback = {}) const;
  /// The attribute of that name up to one version of the op, the known input after it; the fallback
  /// where neither is there.
  std::vector<int64_t> list_or_input(std::string_view name,
                                     size_t input,
                                     std::vector<int64_t> fallback = {}) const;

  // ---- results ----

  size_t outputs() const { return proto_.outputs.size(); }
  bool wants(size_t i) const { return i < outputs() && !proto_.outputs[i].empty(); }
  void give(Value value) { give(0, value); }
  void give(Known known) { give(0, std::move(known)); }
  void give(size_t i, Value value);
  void give(size_t i, Known known);
  void give(size_t i, DatumPtr datum);
  void give_image(size_t i, Value image);
  /// The results by output; one is null where nothing was given.
  const std::vector<DatumPtr>& results() const { return results_; }

  /// The inputs that are known and stand in `target` as inputs of its own, by their names.
  const std::map<std::string, Tensor>& folded_inputs() const { return folded_inputs_; }

 private:
  const Attribute& typed(const Attribute& attribute, Attribute::Type type) const;
  bool is_folding() const { return &target_ != &import_.graph(); }
  std::string result_name(size_t i) const;

  ImportContext& import_;
  const NodeProto& proto_;
  std::vector<DatumPtr> inputs_;
  Scope& scope_;
  Graph& target_;
  int64_t opset_ = 0;
  std::vector<DatumPtr> results_;
  mutable std::map<size_t, Value> in_target_;
  mutable std::map<std::string, Tensor> folded_inputs_;
};

}  // namespace ridge::onnx
