// A node as the builder of its operator sees it: arguments by position, and where its results go.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridge/import/aten/import_context.h"

namespace ridge::aten {

/// Functions throw UserError for an argument that is not what they are asked for.
class NodeContext {
 public:
  NodeContext(ImportContext& import, const AtenNode& node);

  Graph& graph() const { return import_.graph(); }
  const AtenNode& node() const { return node_; }

  // ---- tensors ----

  bool has(size_t i) const;
  bool is_tensor(size_t i) const;
  const TensorType& type(size_t i) const { return import_.type(number(i)); }
  const Shape& shape(size_t i) const { return type(i).shape; }
  DType dtype(size_t i) const { return type(i).dtype; }
  int64_t rank(size_t i) const { return type(i).rank(); }
  Value value(size_t i) const { return import_.value(number(i)); }
  Value image(size_t i) const { return import_.image(number(i)); }
  bool is_image(size_t i) const { return import_.is_image(number(i)); }
  Value moved(size_t i, const std::vector<int64_t>& perm) const {
    return import_.moved(number(i), perm);
  }
  Value derived(size_t i, std::string_view what, FunctionRef<Value(Value)> make) const {
    return import_.derived(number(i), what, make);
  }
  /// The numbers of the tensors of a list; nothing where the list has null.
  std::vector<std::optional<size_t>> tensors(size_t i) const;
  Value value_of(size_t number) const { return import_.value(number); }
  Value image_of(size_t number) const { return import_.image(number); }
  bool is_image_value(size_t number) const { return import_.is_image(number); }
  const TensorType& type_of(size_t number) const { return import_.type(number); }

  // ---- other arguments ----

  int64_t integer(size_t i) const;
  /// An integer or a float; a bool is 0 or 1.
  double number_at(size_t i) const;
  bool flag(size_t i) const;
  std::string text(size_t i) const;
  /// Empty where it is null.
  std::vector<int64_t> list(size_t i) const;
  /// The size of tensor i along an axis that axis() gave.
  int64_t size(size_t i, int64_t axis) const;
  /// An axis of a tensor of that rank, counted from the front; 0 of one without dimensions.
  int64_t axis(size_t i, int64_t rank) const;
  /// The same of a list of them, ascending; all axes where it is empty.
  std::vector<int64_t> axes(size_t i, int64_t rank) const;
  /// The kind of a number: bool, i64 or f32 as torch has it.
  DType number_dtype(size_t i) const;

  // ---- results ----

  size_t results() const { return node_.results.size(); }
  bool wants(size_t i) const { return i < results() && node_.results[i].read; }
  const TensorType& result_type(size_t i = 0) const;
  void give(size_t i, Value value) { data_.at(i).value = value; }
  void give(Value value) { give(0, value); }
  void give_image(size_t i, Value image) { data_.at(i).image = image; }
  const Datum& result(size_t i) const { return data_.at(i); }

 private:
  const Argument& argument(size_t i) const;
  size_t number(size_t i) const;

  ImportContext& import_;
  const AtenNode& node_;
  std::vector<Datum> data_;
};

/// Gives result 0: `apply` of the arguments `operands` (tensors or numbers) as values of `dtype`.
/// They are computed as images where one of them stands as an image alone, so that a chain behind
/// a convolution moves nothing.
void each_element(NodeContext& n,
                  const std::vector<size_t>& operands,
                  DType dtype,
                  const std::function<Value(const std::vector<Value>&)>& apply);

/// The same with a dtype each.
void each_element(NodeContext& n,
                  const std::vector<size_t>& operands,
                  const std::vector<DType>& dtypes,
                  const std::function<Value(const std::vector<Value>&)>& apply);

/// A number that the dtype holds; UserError for an integer that a f64 does not hold.
Value scalar(NodeContext& n, size_t argument, DType dtype);

/// The dtype in which torch compares these operands: tensors with dimensions count before those
/// without, and those before numbers.
DType promoted(const NodeContext& n, const std::vector<size_t>& operands);

/// The gradient of the values `of`, with `dy` as that of y, which was made of them by nodes from
/// number `first` on.
std::vector<Value> gradients_of(Value y, Value dy, const std::vector<Value>& of, size_t first);

}  // namespace ridge::aten
