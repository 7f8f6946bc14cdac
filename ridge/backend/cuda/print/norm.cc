// Softmax, log-softmax, cross-entropy and the norms of rows, as one node each: sixteen threads or a
// whole block take a row, read it once for each sum over it and once for the result; a warp that
// holds the row of a norm reads it once. What fusion makes of these ops is printed elsewhere
// (rows.cc).
#include "ridge/graph/ops/norm.h"

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/softmax.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kGroups = kThreads / kGroup;
// Up to here sixteen threads have a row: the block's other groups have their own.
constexpr int64_t kShortRow = 1024, kShortNorm = 4096;
// Up to here a warp holds a row in registers, where it is a multiple of 64 (HeldRow).
constexpr int64_t kHeldNorm = 1536, kHeldWarps = kThreads / 32;

class RowText {
 public:
  explicit RowText(const Node& node, int64_t short_row)
      : node_(node), columns_(node.inputs[0].type().shape.back()), text_(node) {
    is_short_ = columns_ <= short_row;
    text_.needs_functions = true;
    text_.include("row_sums.h");
    text_.include("rows.h");
  }

  void hold() { is_held_ = true; }

  // The template arguments that all functions over rows begin with, and their sizes.
  std::string row() const {
    if (is_held_)
      return fmt::format("HeldRow<{}, {}>", stored_type(node_.inputs[0].dtype()), columns_);
    return fmt::format("Row<{}, {}, {}>",
                       stored_type(node_.inputs[0].dtype()),
                       is_short_ ? 1 : kGroups,
                       columns_ % 4 == 0);
  }
  std::string sizes() const { return fmt::format("{}, {}", rows(), columns_); }
  KernelText& text() { return text_; }

  PrintedKernel finish() {
    text_.finish("", ceil_div(rows(), is_held_ ? kHeldWarps : is_short_ ? kGroups : 1), kThreads);
    return text_.result(node_.op->name(), fmt::format("{} rows of {}.", rows(), columns_));
  }
  int64_t columns() const { return columns_; }
  bool is_wide() const { return node_.inputs[0].dtype() == DType::kF64; }

 private:
  int64_t rows() const { return node_.inputs[0].type().elements() / columns_; }

  const Node& node_;
  int64_t columns_;
  bool is_short_ = true, is_held_ = false;
  KernelText text_;
};

PrintedKernel print_softmax(const Node& node) {
  RowText row(node, kShortRow);
  KernelText& text = row.text();
  text.lines.line("{}<{}>({}, {}, {});",
                  node.is<Softmax>() ? "softmax_rows" : "log_softmax_rows",
                  row.row(),
                  text.input(0),
                  text.output(0),
                  row.sizes());
  PrintedKernel made = row.finish();
  made.same_bits = node.is<Softmax>() && !row.is_wide();
  return made;
}

PrintedKernel print_cross_entropy(const Node& node) {
  const auto& op = node.op_as<CrossEntropy>();
  RowText row(node, kShortRow);
  KernelText& text = row.text();
  text.lines.line("cross_entropy_rows<{}>({}, {}, {}, {}, {}, {}, {});",
                  row.row(),
                  text.input(0),
                  text.input(1),
                  text.output(0),
                  text.fault(),
                  row.sizes(),
                  number_text(DType::kI64, op.ignore_index),
                  number_text(DType::kF64, op.label_smoothing));
  PrintedKernel made = row.finish();
  made.index_limit = row.columns();
  made.same_bits = false;
  return made;
}

PrintedKernel print_row_norm(const Node& node) {
  RowText row(node, kShortNorm);
  if (row.columns() % 64 == 0 && row.columns() <= kHeldNorm && !row.is_wide()) row.hold();
  KernelText& text = row.text();
  const bool has_mean = node.is<LayerNorm>();
  const double eps = has_mean ? node.op_as<LayerNorm>().eps : node.op_as<RmsNorm>().eps;
  text.lines.line("{}<{}>({}, {}, {}{}, {}, {});",
                  has_mean ? "layer_norm_rows" : "rms_norm_rows",
                  row.row(),
                  text.input(0),
                  text.input(1),
                  has_mean ? text.input(2) + ", " : "",
                  text.output(0),
                  row.sizes(),
                  number_text(DType::kF64, eps));
  return row.finish();
}

}  // namespace

std::optional<PrintedKernel> print_norm(const Node& node) {
  if (node.is<Softmax>() || node.is<LogSoftmax>()) return print_softmax(node);
  if (node.is<CrossEntropy>()) return print_cross_entropy(node);
  if (node.is<LayerNorm>() || node.is<RmsNorm>()) return print_row_norm(node);
  return std::nullopt;
}

}  // namespace ridge::cuda
