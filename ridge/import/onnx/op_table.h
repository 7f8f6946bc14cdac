// The table of ONNX's operators: one row an op, one file a family (ops/).
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ridge::onnx {

class NodeContext;

inline constexpr std::string_view kMicrosoft = "com.microsoft";
/// Versions of ONNX's own operators that are read.
inline constexpr int64_t kOldestOpset = 7;
inline constexpr int64_t kNewestOpset = 27;

struct OpRow {
  std::string_view name;
  void (*build)(NodeContext& node);
  /// The versions of the domain in which the op means that.
  int64_t first = 1;
  int64_t last = kNewestOpset;
  std::string_view domain = "";
  /// It imports graphs of its own: it is never computed apart.
  bool is_control = false;
};

/// The row of an op, or null.
const OpRow* find_op(std::string_view domain, std::string_view name, int64_t opset);

/// All rows, for lists of what is supported.
std::vector<OpRow> all_ops();

// Families.
std::span<const OpRow> arithmetic_ops();
std::span<const OpRow> function_ops();
std::span<const OpRow> activation_ops();
std::span<const OpRow> logic_ops();
std::span<const OpRow> shape_ops();
std::span<const OpRow> constant_ops();
std::span<const OpRow> index_ops();
std::span<const OpRow> reduce_ops();
std::span<const OpRow> product_ops();
std::span<const OpRow> conv_ops();
std::span<const OpRow> quantize_ops();
std::span<const OpRow> qlinear_ops();
std::span<const OpRow> pool_ops();
std::span<const OpRow> norm_ops();
std::span<const OpRow> resize_ops();
std::span<const OpRow> sampling_ops();
std::span<const OpRow> attention_ops();
std::span<const OpRow> loss_ops();
std::span<const OpRow> recurrent_ops();
std::span<const OpRow> control_ops();

}  // namespace ridge::onnx
