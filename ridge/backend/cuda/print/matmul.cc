// The matrix product by device/gemm.h: what is printed are its sizes and its tiles. It
// uses no tensor cores: it serves where the CPU's bits are asked for, where cuBLASLt refuses a
// dtype or a shape, and where there is no library, as under a sanitizer.
#include "ridge/graph/ops/matmul.h"

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {
namespace {

// Longest chain of fma, as backend/cpu/gemm/gemm_plan.h cuts the depth: the bits follow from it.
constexpr int64_t kLongestChain = 384;
// What the sums of all chains may take, where each is a block's own.
constexpr size_t kMostChainBytes = size_t{64} << 20;

// A tile of C, the part of a thread in it, and the depth of a step.
struct TileForm {
  int64_t rows, columns, thread_rows, thread_columns, steps;
  int64_t threads() const { return rows / thread_rows * (columns / thread_columns); }
};
constexpr TileForm kLarge{128, 128, 8, 8, 16};
constexpr TileForm kSmall{64, 64, 8, 4, 16};
constexpr TileForm kFewRows{32, 128, 4, 8, 16};
constexpr TileForm kFewColumns{128, 32, 8, 4, 16};
// The form for f64, whose sums take two registers each.
constexpr TileForm kLargeWide{64, 64, 4, 4, 8};
constexpr TileForm kSmallWide{32, 32, 4, 4, 8};

class MatMulPrinter {
 public:
  MatMulPrinter(const Node& node, const DeviceLimits& limits)
      : op_(node.op_as<MatMul>()), wished_blocks_(limits.multiprocessors), text_(node) {
    const TensorType &a = node.inputs[0].type(), &y = node.outputs[0];
    dtype_ = a.dtype;
    result_ = y.dtype;
    const size_t rank = y.shape.size();
    m_ = y.shape[rank - 2], n_ = y.shape[rank - 1];
    k_ = a.shape[rank - (op_.transpose_a ? 2 : 1)];
    batches_ = y.elements() / (m_ * n_);
    // Chains of nearly equal length, as the CPU has them.
    chain_ = std::min(k_, ceil_div(ceil_div(k_, ceil_div(k_, kLongestChain)), 8) * 8);
    choose_form();
  }

  PrintedKernel print() {
    text_.include("gemm.h");
    text_.declare(shape_text());
    const std::string a = text_.input(0), b = text_.input(1);
    const size_t at = by_chains_ ? text_.take(chain_bytes()) : 0;
    const std::string c = by_chains_ ? sums(at) : text_.output(0);
    text_.lines.line(
        "multiply_tiles<{}_shape, {}>({}, {}, {});", KernelText::kName, by_chains_, a, b, c);
    text_.finish("", tiles(form_) * (by_chains_ ? chains() : 1), form_.threads());
    if (by_chains_) {
      const std::string from = sums(at), to = text_.output(0);
      text_.lines.line("add_chains<{}_shape>({}, {});", KernelText::kName, from, to);
      text_.finish("_sum", ceil_div(batches_ * m_ * n_, kThreads), kThreads);
    }
    return text_.result("matmul",
                        fmt::format("{} of {} x {} x {} (M x N x K), tiles of {} x {}, {} chains.",
                                    batches_,
                                    m_,
                                    n_,
                                    k_,
                                    form_.rows,
                                    form_.columns,
                                    chains()));
  }

 private:
  int64_t chains() const { return ceil_div(k_, chain_); }
  int64_t tiles(const TileForm& form) const {
    return batches_ * ceil_div(m_, form.rows) * ceil_div(n_, form.columns);
  }
  size_t chain_bytes() const {
    return static_cast<size_t>(chains() * batches_ * m_ * n_) * size_of(op_.accumulate);
  }

  // The largest tiles of which there are enough, or whose chains are enough.
  void choose_form() {
    const bool is_wide = op_.accumulate == DType::kF64;
    const bool may_split = chains() > 1 && chain_bytes() <= kMostChainBytes;
    const auto blocks = [&](const TileForm& form) {
      return tiles(form) * (may_split ? chains() : 1);
    };
    const TileForm &large = is_wide ? kLargeWide : kLarge, &small = is_wide ? kSmallWide : kSmall;
    if (!is_wide && m_ <= kFewRows.rows)
      form_ = kFewRows;
    else if (!is_wide && n_ <= kFewColumns.columns)
      form_ = kFewColumns;
    else if (m_ <= small.rows || n_ <= small.columns || blocks(large) < wished_blocks_)
      form_ = small;
    else
      form_ = large;
    by_chains_ = may_split && tiles(form_) < wished_blocks_;
    // Elements that are fetched one by one take registers, which the sums need. Without a loop over
    // steps the compiler fetches the operands of all of them first, which takes as many.
    if (line_of_a() % 2 != 0 || line_of_b() % 2 != 0 || k_ == form_.steps) form_.steps = 8;
  }

  int64_t line_of_a() const { return op_.transpose_a ? m_ : k_; }
  int64_t line_of_b() const { return op_.transpose_b ? k_ : n_; }
  // How many elements that follow each other, `line` in a line, are read at once: 16 bytes at most,
  // and no more than each thread finds some.
  int64_t pack(int64_t line, int64_t lanes) const {
    int64_t pack = 16 / static_cast<int64_t>(size_of(dtype_));
    while (line % pack != 0 || lanes * form_.steps < pack * form_.threads()) pack /= 2;
    return pack;
  }

  std::string_view round_text() const {
    if (op_.round_to == DType::kBF16) return "ToBF16";
    return op_.round_to == DType::kF16 ? "ToF16" : "AsTheyAre";
  }

  std::string shape_text() const {
    Lines lines(0);
    lines.open("struct {}_shape", KernelText::kName);
    lines.line("using Element = {};", stored_type(dtype_));
    lines.line("using Result = {};", stored_type(result_));
    lines.line("using Sum = {};", stored_type(op_.accumulate));
    lines.line("using Round = {};", round_text());
    lines.line("static constexpr int64_t kBatches = {}, kM = {}, kN = {}, kK = {}, kChain = {};",
               batches_,
               m_,
               n_,
               k_,
               chain_);
    lines.line("static constexpr bool kTransposeA = {}, kTransposeB = {};",
               op_.transpose_a,
               op_.transpose_b);
    lines.line(
        "static constexpr int kTileRows = {}, kTileColumns = {};", form_.rows, form_.columns);
    lines.line("static constexpr int kRows = {}, kColumns = {}, kSteps = {};",
               form_.thread_rows,
               form_.thread_columns,
               form_.steps);
    lines.line("static constexpr int kPackA = {}, kPackB = {};",
               pack(line_of_a(), form_.rows),
               pack(line_of_b(), form_.columns));
    lines.close();
    return "\n" + lines.text().substr(0, lines.text().size() - 1) + ";\n";
  }

  // The sums of all chains, as a parameter.
  std::string sums(size_t at) { return text_.workspace(at, stored_type(op_.accumulate), "chains"); }

  const MatMul& op_;
  int64_t wished_blocks_;  // that fill the device once
  KernelText text_;
  DType dtype_ = DType::kF32, result_ = DType::kF32;
  int64_t batches_ = 1, m_ = 1, n_ = 1, k_ = 1, chain_ = 1;
  TileForm form_{};
  bool by_chains_ = false;
};

}  // namespace

PrintedKernel print_matmul(const Node& node, const DeviceLimits& limits) {
  return MatMulPrinter(node, limits).print();
}

}  // namespace ridge::cuda
