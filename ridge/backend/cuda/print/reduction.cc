// Reductions over any axes, and argmax. As on the CPU, neighbouring axes that are reduced together
// shrink stage by stage, the longest first: rows by pieces of 2048 over the lanes of
// device/kernel.h, all else by 64 rows one after the other. So the bits are the CPU's.
#include <algorithm>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/reduce.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kLongRow = 4096;  // elements from which an argmax takes a block, not a warp

// Axes that are reduced, or kept, together.
struct Run {
  int64_t size;
  bool reduced;
};

std::vector<Run> runs_of(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Run> runs;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!runs.empty() && runs.back().reduced == reduced)
      runs.back().size *= shape[i];
    else
      runs.push_back({shape[i], reduced});
  }
  return runs;
}

// One launch, which reduces x (outer, n, inner) to (outer, chunks, inner).
struct Stage {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t chunks() const { return ceil_div(n, inner == 1 ? kPiece : kSummedRows); }
  int64_t results() const { return outer * chunks() * inner; }
  // A thread has the whole row: sixteen would hardly have an element each.
  bool is_short() const { return inner == 1 && n <= kGroup; }
  // Columns of a thread.
  int64_t width() const { return inner % 4 == 0 ? 4 : 1; }
  int64_t threads() const {
    if (inner == 1) return is_short() ? results() : results() * kGroup;
    return results() / width();
  }
};

std::vector<Stage> stages_of(std::vector<Run> runs, int64_t elements) {
  std::vector<Stage> stages;
  for (;;) {
    auto longest = runs.end();
    for (auto run = runs.begin(); run != runs.end(); ++run)
      if (run->reduced && run->size > 1 && (longest == runs.end() || run->size >= longest->size))
        longest = run;
    if (longest == runs.end()) break;
    Stage stage{.n = longest->size};
    for (auto run = runs.begin(); run != longest; ++run) stage.outer *= run->size;
    for (auto run = longest + 1; run != runs.end(); ++run) stage.inner *= run->size;
    stages.push_back(stage);
    longest->size = stage.chunks();
  }
  // Axes of size 1 alone: what is reduced with nothing.
  if (stages.empty()) stages.push_back({.inner = elements});
  return stages;
}

std::string_view operation(const Node& node) {
  const bool is_max = node.is<ReduceMax>();
  if (is_float(node.outputs[0].dtype)) return is_max ? "Larger" : "Plus";
  return is_max ? "LargerInteger" : "WrappedPlus";
}

// `operands`: x and y.
void print_stage(KernelText& text,
                 const Stage& stage,
                 std::string_view operation,
                 const std::string& operands,
                 const std::string& divisor) {
  if (stage.is_short())
    text.lines.line("reduce_short_rows<{}, {}>({}, {}, {});",
                    operation,
                    stage.n,
                    operands,
                    stage.outer,
                    divisor);
  else if (stage.inner == 1)
    text.lines.line("reduce_rows<{}, {}>({}, {}, {}, {});",
                    operation,
                    stage.n % 4 == 0,
                    operands,
                    stage.outer,
                    stage.n,
                    divisor);
  else
    text.lines.line("reduce_columns<{}, {}>({}, {}, {}, {}, {});",
                    operation,
                    stage.width(),
                    operands,
                    stage.outer,
                    stage.n,
                    stage.inner,
                    divisor);
}

PrintedKernel print_stages(const Node& node, const std::vector<Stage>& stages) {
  const DType dtype = node.outputs[0].dtype;
  // Partial sums of 16-bit floats are f32; a largest element keeps its dtype.
  const bool is_widened = !node.is<ReduceMax>() && is_float(dtype) && size_of(dtype) == 2;
  const DType partial = is_widened ? DType::kF32 : dtype;
  KernelText text(node);
  text.include("reduce.h");
  size_t at = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    const bool is_last = i + 1 == stages.size();
    const std::string_view from = stored_type(i == 0 ? dtype : partial);
    const std::string_view to = stored_type(is_last ? dtype : partial);
    const std::string x =
        i == 0 ? text.input(0) : text.workspace(at, fmt::format("const {}", from), "x");
    if (!is_last) at = text.take(static_cast<size_t>(stage.results()) * size_of(partial));
    const std::string y = is_last ? text.output(0) : text.workspace(at, to, "y");
    const std::string divisor = fmt::format("Sum<{}>({})", from, is_last ? divisor_of(node) : 1);
    const std::string suffix = i == 0 ? "" : fmt::format("_stage{}", i);
    print_stage(text, stage, operation(node), fmt::format("{}, {}", x, y), divisor);
    text.finish(suffix, ceil_div(stage.threads(), kThreads), kThreads);
  }
  return text.result(node.op->name(),
                     fmt::format("{} elements to one, {} times.",
                                 node.inputs[0].type().elements() / node.outputs[0].elements(),
                                 node.outputs[0].elements()));
}

PrintedKernel print_argmax(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  const auto axis = static_cast<size_t>(node.op_as<ArgMax>().axis);
  const int64_t n = x.shape[axis], results = node.outputs[0].elements();
  const int64_t looked_at = node.op_as<ArgMax>().looked_at(n);
  int64_t inner = 1;
  for (size_t i = axis + 1; i < x.shape.size(); ++i) inner *= x.shape[i];
  KernelText text(node);
  text.include("reduce.h");
  const std::string in = text.input(0), out = text.output(0);
  if (inner == 1) {
    const int64_t warps = n > kLongRow ? kThreads / 32 : 1;
    text.lines.line("argmax_rows<{}>({}, {}, {}, {}, {});", warps, in, out, results, n, looked_at);
    text.finish("", ceil_div(results, kThreads / 32 / warps), kThreads);
  } else {
    text.open_stride(results);
    text.lines.line(
        "{0}[i] = argmax_column({1} + (i / {2}) * static_cast<int64_t>({3}) + i % {2}, {4}, {2});",
        out,
        in,
        inner,
        n * inner,
        looked_at);
    text.finish_stride("", results);
  }
  return text.result("argmax", fmt::format("The largest of {}, {} times.", n, results));
}

}  // namespace

std::optional<PrintedKernel> print_reduction(const Node& node) {
  if (node.is<ArgMax>()) return print_argmax(node);
  if (!node.is<ReduceSum>() && !node.is<ReduceMean>() && !node.is<ReduceMax>()) return std::nullopt;
  const TensorType& x = node.inputs[0].type();
  return print_stages(node, stages_of(runs_of(x.shape, reduced_axes_of(node)), x.elements()));
}

}  // namespace ridge::cuda
