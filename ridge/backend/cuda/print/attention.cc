// Attention of 16-bit operands and its gradient by tensor cores (device/attention_mma.h,
// attention_grad_mma.h): what is printed are sizes, layouts and tiles.
#include "ridge/graph/ops/attention.h"

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {
namespace {

// These numbers are those of device/attention_mma.h.
constexpr int64_t kMmaThreads = 128, kMmaWarps = 4;
constexpr int64_t kMostMmaDepth = 128, kMostMmaRows = int64_t{1} << 30;
// Keys and values of so many heads are read from the second cache (50 MB on an H200, 40 on an
// A100), by as many blocks as run at a time.
constexpr int64_t kGroupBytes = 16 << 20;

// The text that both ops print.
class AttentionText {
 public:
  AttentionText(const AttentionForm& form, const Node& node, size_t mask)
      : form_(form),
        node_(node),
        layout_(attention_layout(form, node.input_types())),
        dtype_(node.outputs[0].dtype),
        has_bias_(bias_input(node.input_types(), mask) != 0),
        mask_(mask_input(node.input_types(), mask)) {}

  const AttentionLayout& layout() const { return layout_; }
  bool is_masked() const { return mask_ != 0; }
  /// The input with operand i of q, k and v.
  std::string operand(size_t i) const { return form_.is_packed() ? "in0" : fmt::format("in{}", i); }
  std::string mask() const { return is_masked() ? fmt::format("in{}", mask_) : "nullptr"; }

  std::string summary(std::string_view what) const {
    const AttentionLayout& l = layout_;
    return fmt::format("{} of {} x {} heads: {} queries, {} keys, of {} and {}.",
                       what,
                       l.batch,
                       l.heads,
                       l.queries,
                       l.keys,
                       l.depth,
                       l.width);
  }

  /// Why tensor cores cannot make it; empty: they can.
  std::string mma_refusal() const {
    const auto fits = [](int64_t n) { return n % 16 == 0 && n <= kMostMmaDepth; };
    if (size_of(dtype_) != 2) return fmt::format("has operands of {}", name_of(dtype_));
    if (has_bias_) return "has a bias";
    if (!fits(layout_.depth) || !fits(layout_.width))
      return fmt::format("has heads of {} and {}, not multiples of 16 up to {}",
                         layout_.depth,
                         layout_.width,
                         kMostMmaDepth);
    if (layout_.batch * layout_.heads * std::max(layout_.queries, layout_.keys) > kMostMmaRows)
      return "has more than 2^30 rows";
    // The largest score is looked for before scores are scaled.
    return form_.scale > 0.0 ? "" : fmt::format("has a scale of {}", form_.scale);
  }
  /// Bytes of a row of q and of v, or of k and of y, in shared memory (device/mma.h).
  int64_t mma_row_bytes() const { return (layout_.depth + 8) * 2 + (layout_.width + 8) * 2; }
  /// Tiles of 16 rows of a warp: two, where a thread has registers for them and that leaves enough
  /// blocks.
  int64_t row_tiles(int64_t rows, bool has_registers, const DeviceLimits& limits) const {
    const int64_t blocks = layout_.batch * layout_.heads * ceil_div(rows, 2 * 16 * kMmaWarps);
    return has_registers && rows > 16 * kMmaWarps && blocks >= limits.multiprocessors ? 2 : 1;
  }
  bool has_small_heads() const { return layout_.depth <= 64 && layout_.width <= 64; }
  int64_t mma_blocks(int64_t rows, int64_t row_tiles) const {
    return layout_.batch * layout_.heads * ceil_div(rows, row_tiles * 16 * kMmaWarps);
  }
  /// The struct that device/attention_mma.h asks for; `more` are further lines of it.
  std::string mma_shape(std::string_view more) const {
    const AttentionLayout& l = layout_;
    Lines lines(0);
    lines.open("struct {}_shape", KernelText::kName);
    lines.line("using Element = {};", stored_type(dtype_));
    lines.line("static constexpr int64_t kBatch = {}, kHeads = {}, kQueries = {}, kKeys = {};",
               l.batch,
               l.heads,
               l.queries,
               l.keys);
    lines.line("static constexpr int64_t kDepth = {}, kWidth = {};", l.depth, l.width);
    lines.line("static constexpr bool kCausal = {}, kMasked = {};", form_.causal, is_masked());
    lines.line("static float scale() {{ return {}; }}", number_text(DType::kF32, form_.scale));
    const auto add_rows = [&](std::string_view name, const HeadLayout& rows) {
      lines.line("using {} = HeadRows<{}, {}, {}, {}>;",
                 name,
                 rows.begin,
                 rows.batch_stride,
                 rows.head_stride,
                 rows.row_stride);
    };
    add_rows("Q", l.q);
    add_rows("K", l.k);
    add_rows("V", l.v);
    add_rows("Y", l.y);
    if (is_masked()) add_rows("Mask", mask_rows());
    lines.line("static constexpr int64_t kGroup = {};",
               std::clamp<int64_t>(
                   kGroupBytes / (l.keys * (l.depth + l.width) * 2), 1, l.batch * l.heads));
    lines.add(more);
    lines.close();
    return "\n" + lines.text().substr(0, lines.text().size() - 1) + ";\n";
  }

 private:
  // Axes of one element are repeated.
  HeadLayout mask_rows() const {
    const Shape& shape = node_.inputs[mask_].shape();
    const auto stride = [&](size_t axis, int64_t elements) {
      return shape[axis] == 1 ? 0 : elements;
    };
    return {0,
            stride(0, shape[1] * shape[2] * shape[3]),
            stride(1, shape[2] * shape[3]),
            stride(2, shape[3])};
  }

  const AttentionForm& form_;
  const Node& node_;
  AttentionLayout layout_;
  DType dtype_;
  bool has_bias_;
  size_t mask_;  // 0: none
};

PrintedKernel print_mma(const Attention& op, const Node& node, const DeviceLimits& limits) {
  const AttentionText parts(op, node, op.operands());
  if (std::string why = parts.mma_refusal(); !why.empty()) throw Refused{why};
  const AttentionLayout& l = parts.layout();
  constexpr int64_t kBlockKeys = 64;
  const int64_t tiles =
      parts.row_tiles(l.queries, parts.has_small_heads() && !parts.is_masked(), limits);
  const int64_t bytes =
      tiles * 16 * kMmaWarps * (l.depth + 8) * 2 + 2 * kBlockKeys * parts.mma_row_bytes();
  KernelText text(node);
  text.needs_functions = true;
  text.include("attention_mma.h");
  text.declare(parts.mma_shape(
      fmt::format("static constexpr int kRowTiles = {}, kBlockKeys = {}, kSharedBytes = {};\n"
                  "static constexpr bool kHoldsQueries = {};",
                  tiles,
                  kBlockKeys,
                  bytes,
                  tiles == 1)));
  for (size_t i = 0; i < node.inputs.size(); ++i) text.input(i);
  const std::string y = text.output(0), logsumexp = text.output(1);
  text.lines.line("attend_mma<{}_shape>({}, {}, {}, {}, {}, {});",
                  KernelText::kName,
                  parts.operand(0),
                  parts.operand(1),
                  parts.operand(2),
                  parts.mask(),
                  y,
                  logsumexp);
  text.finish("", parts.mma_blocks(l.queries, tiles), kMmaThreads, static_cast<size_t>(bytes));
  PrintedKernel made = text.result("attention_mma", parts.summary("Attention, by tensor cores,"));
  made.same_bits = false;
  return made;
}

// The three kernels of a gradient by tensor cores.
class MmaGradient {
 public:
  MmaGradient(const AttentionGrad& op, const Node& node, const DeviceLimits& limits)
      : op_(op), node_(node), n_(op.operands()), parts_(op, node, n_ + 3), text_(node) {
    if (std::string why = parts_.mma_refusal(); !why.empty()) throw Refused{why};
    const AttentionLayout& l = parts_.layout();
    query_tiles_ = parts_.row_tiles(l.queries, parts_.has_small_heads(), limits);
    block_queries_ = parts_.has_small_heads() ? 64 : 32;
  }

  PrintedKernel print() {
    const AttentionLayout& l = parts_.layout();
    text_.needs_functions = true;
    text_.include("attention_grad_mma.h");
    text_.declare(parts_.mma_shape(fmt::format(
        "static constexpr int kRowTiles = {}, kBlockKeys = {}, kSharedBytes = {};\n"
        "static constexpr int kKeyRowTiles = {}, kBlockQueries = {}, kSharedBytesOfKeys = {};",
        query_tiles_,
        kBlockKeys,
        shared_bytes_of_queries(),
        kKeyTiles,
        block_queries_,
        shared_bytes_of_keys())));
    const int64_t rows = l.batch * l.heads * l.queries;
    at_ = text_.take(static_cast<size_t>(rows) * 2 * sizeof(float));
    const std::string y = text_.input(n_), logsumexp = text_.input(n_ + 1),
                      dy = text_.input(n_ + 2);
    text_.lines.line("gradient_rows<{}_shape>({}, {}, {}, {});",
                     KernelText::kName,
                     y,
                     dy,
                     logsumexp,
                     text_.workspace(at_, "GradientRow", "rows"));
    constexpr int64_t kRowThreads = 256, kLanes = 8;
    text_.finish("_rows", ceil_div(rows * kLanes, kRowThreads), kRowThreads);
    add_inputs();
    text_.lines.line("attention_dq<{}_shape>(in, {});", KernelText::kName, text_.output(0));
    text_.finish("_dq",
                 parts_.mma_blocks(l.queries, query_tiles_),
                 kMmaThreads,
                 static_cast<size_t>(shared_bytes_of_queries()));
    add_inputs();
    const std::string dk = text_.output(op_.is_packed() ? 0 : 1),
                      dv = text_.output(op_.is_packed() ? 0 : 2);
    text_.lines.line("attention_dk_dv<{}_shape>(in, {}, {});", KernelText::kName, dk, dv);
    text_.finish("_dk_dv",
                 parts_.mma_blocks(l.keys, kKeyTiles),
                 kMmaThreads,
                 static_cast<size_t>(shared_bytes_of_keys()));
    PrintedKernel made = text_.result(
        "attention_grad_mma", parts_.summary("Gradient of the attention, by tensor cores,"));
    made.same_bits = false;
    return made;
  }

 private:
  static constexpr int64_t kBlockKeys = 32, kKeyTiles = 1;

  int64_t shared_bytes_of_queries() const {
    return (query_tiles_ * 16 * kMmaWarps + 2 * kBlockKeys) * parts_.mma_row_bytes();
  }
  // Two numbers of f32 go with each query.
  int64_t shared_bytes_of_keys() const {
    return (kKeyTiles * 16 * kMmaWarps + 2 * block_queries_) * parts_.mma_row_bytes() +
           2 * block_queries_ * 8;
  }
  void add_inputs() {
    for (size_t k = 0; k < node_.inputs.size(); ++k)
      if (k != n_ && k != n_ + 1) text_.input(k);
    text_.lines.line("const MmaGradientInputs<{}_shape> in{{{}, {}, {}, in{}, {}, {}}};",
                     KernelText::kName,
                     parts_.operand(0),
                     parts_.operand(1),
                     parts_.operand(2),
                     n_ + 2,
                     text_.workspace(at_, "GradientRow", "rows"),
                     parts_.mask());
  }

  const AttentionGrad& op_;
  const Node& node_;
  size_t n_;
  AttentionText parts_;
  KernelText text_;
  int64_t query_tiles_ = 1, block_queries_ = 32;
  size_t at_ = 0;
};

}  // namespace

std::optional<PrintedKernel> print_attention_mma(const Node& node, const DeviceLimits& limits) {
  if (node.is<Attention>()) return print_mma(node.op_as<Attention>(), node, limits);
  if (node.is<AttentionGrad>())
    return MmaGradient(node.op_as<AttentionGrad>(), node, limits).print();
  return std::nullopt;
}

}  // namespace ridge::cuda
