// Batch norm, its gradient and its statistics, in the CPU's three steps and with its bits: sums of
// chunks of rows; their combination, a thread a channel; the result.
#include <algorithm>
#include <array>

#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/graph/ops/batch_norm.h"

namespace ridge::cuda {
namespace {

// As device/batch_norm.h has them: threads of a block of the sums, and of the gradient's what they
// share; channels of a block of the combination.
constexpr int64_t kSumThreads = 128, kGradientItems = 16, kCombined = 8;

class BatchNormPrinter {
 public:
  explicit BatchNormPrinter(const Node& node) : node_(node), text_(node) {
    const TensorType& x = node.inputs[0].type();
    channels_ = x.shape.back();
    rows_ = x.elements() / channels_;
    chunk_ = std::clamp<int64_t>(32768 / std::min<int64_t>(channels_, 512), 64, 512);
    const DType dtype = x.dtype;
    computed_ = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    text_.needs_functions = text_.needs_norm_activations = true;
    text_.include("batch_norm.h");
    for (size_t& at : sums_)
      at = text_.take(static_cast<size_t>(chunks() * channels_) * sizeof(double));
    for (size_t& at : tables_) at = text_.take(static_cast<size_t>(channels_) * size_of(computed_));
  }

  // y, mean and variance; or the statistics alone, of which two are what y would be made of.
  PrintedKernel print_forward(double eps, std::string_view activation, bool is_stats) {
    Lines& lines = text_.lines;
    const int64_t parts = ceil_div(chunk_, kSummedRows);
    lines.line(
        "batch_norm_sums<{}, {}>({}, {}, {});", width(), parts, text_.input(0), sums(), sizes());
    text_.finish("", ceil_div(items(), kSumThreads / parts), kSumThreads);

    const size_t first = is_stats ? 0 : 1;
    const std::string tables = is_stats
                                   ? fmt::format("{}, {}", text_.output(2), text_.output(3))
                                   : fmt::format("{}, {}", table("scale", 1), table("shift", 2));
    lines.line("batch_norm_combine({}, {}, {}, {}, {}, {}, {}, {}, {});",
               sums(),
               text_.input(1),
               text_.input(2),
               text_.output(first),
               text_.output(first + 1),
               table("center", 0),
               tables,
               sizes(),
               number_text(DType::kF64, eps));
    finish_combination();
    if (!is_stats) {
      lines.line("batch_norm_write<{}, {}>({}, {}, {}, {}, {}, {}, {});",
                 width(),
                 activation,
                 text_.input(0),
                 table("center", 0),
                 table("scale", 1),
                 table("shift", 2),
                 text_.output(0),
                 rows_ * channels_,
                 channels_);
      finish("_write", rows_ * channels_ / width());
    }
    return result();
  }

  PrintedKernel print_gradient(double eps, std::string_view activation) {
    Lines& lines = text_.lines;
    lines.line("batch_norm_grad_sums<{}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {});",
               width(),
               activation,
               text_.input(0),
               text_.input(5),
               text_.input(1),
               text_.input(2),
               text_.input(3),
               text_.input(4),
               sums(),
               sizes(),
               number_text(DType::kF64, eps));
    text_.finish("", ceil_div(items(), kGradientItems), kThreads);

    lines.line("batch_norm_grad_combine({}, {}, {}, {}, {}, {}, {}, {}, {}, {});",
               sums(),
               text_.input(1),
               text_.input(4),
               text_.output(1),
               text_.output(2),
               table("scale", 1),
               table("slope", 3),
               table("base", 4),
               sizes(),
               number_text(DType::kF64, eps));
    finish_combination();

    lines.line("batch_norm_grad_write<{}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, {});",
               width(),
               activation,
               text_.input(0),
               text_.input(5),
               text_.input(3),
               table("scale", 1),
               text_.input(2),
               table("slope", 3),
               table("base", 4),
               text_.output(0),
               rows_ * channels_,
               channels_);
    finish("_write", rows_ * channels_ / width());
    return result();
  }

 private:
  int64_t chunks() const { return ceil_div(rows_, chunk_); }
  // Columns that a thread takes together.
  int64_t width() const { return channels_ % 4 == 0 ? 4 : 1; }
  int64_t items() const { return chunks() * (channels_ / width()); }
  std::string sizes() const { return fmt::format("{}, {}, {}", rows_, channels_, chunk_); }
  std::string sums() {
    return fmt::format("{}, {}",
                       text_.workspace(sums_[0], "double", "first"),
                       text_.workspace(sums_[1], "double", "second"));
  }
  std::string table(std::string name, size_t number) {
    return text_.workspace(tables_[number], stored_type(computed_), std::move(name));
  }
  void finish(std::string_view suffix, int64_t work) {
    text_.finish(suffix, ceil_div(work, kThreads), kThreads);
  }
  void finish_combination() { text_.finish("_combine", ceil_div(channels_, kCombined), kThreads); }
  PrintedKernel result() {
    return text_.result(node_.op->name(), fmt::format("{} rows of {} channels.", rows_, channels_));
  }

  const Node& node_;
  KernelText text_;
  int64_t rows_ = 1, channels_ = 1, chunk_ = 1;
  DType computed_ = DType::kF32;
  std::array<size_t, 2> sums_ = {};    // of chunks: f64
  std::array<size_t, 5> tables_ = {};  // of channels
};

std::string_view activation_type(const std::string& name) {
  static constexpr std::string_view kTypes[] = {
      "NoActivation", "ReluActivation", "Relu6Activation"};
  return kTypes[static_cast<size_t>(norm_activation(name, "batch_norm"))];
}

}  // namespace

std::optional<PrintedKernel> print_batch_norm(const Node& node) {
  if (node.is<BatchNorm>()) {
    const auto& op = node.op_as<BatchNorm>();
    return BatchNormPrinter(node).print_forward(op.eps, activation_type(op.activation), false);
  }
  if (node.is<BatchNormStats>()) {
    // Rounded to 16 bits, they would not be those that batch norm itself goes on with.
    if (size_of(node.outputs[0].dtype) < 4) throw Refused{"has statistics of 16 bits"};
    return BatchNormPrinter(node).print_forward(node.op_as<BatchNormStats>().eps, {}, true);
  }
  if (!node.is<BatchNormGrad>()) return std::nullopt;
  const auto& op = node.op_as<BatchNormGrad>();
  return BatchNormPrinter(node).print_gradient(op.eps, activation_type(op.activation));
}

}  // namespace ridge::cuda
