// The table of ATen's operators: one row an operator, one file a family (ops/).
#pragma once

#include <span>
#include <string_view>

namespace ridge::aten {

class NodeContext;

struct OpRow {
  std::string_view name;  ///< It has the overload, too: "add.Tensor".
  void (*build)(NodeContext& node);
};

/// The row of an operator, or null.
const OpRow* find_op(std::string_view name);

// Families.
std::span<const OpRow> arithmetic_ops();
std::span<const OpRow> function_ops();
std::span<const OpRow> logic_ops();
std::span<const OpRow> shape_ops();
std::span<const OpRow> source_ops();
std::span<const OpRow> reduce_ops();
std::span<const OpRow> product_ops();
std::span<const OpRow> conv_ops();
std::span<const OpRow> pool_ops();
std::span<const OpRow> norm_ops();
std::span<const OpRow> softmax_ops();
std::span<const OpRow> attention_ops();
std::span<const OpRow> index_ops();
std::span<const OpRow> quantize_ops();

}  // namespace ridge::aten
