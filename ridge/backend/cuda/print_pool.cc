// Pooling over NHWC images and its gradients, a thread for a few channels of a pixel of the result:
// what lies in its window, or the windows that hold it, in the CPU's order.
#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/graph/ops/pool.h"

namespace ridge::cuda {
namespace {

// `x`: the larger image, `y` the pooled one; `made`: the one that is the result.
PrintedKernel print_windows(const Node& node,
                            std::string_view function,
                            const PoolFields& pool,
                            const Shape& x,
                            const Shape& y,
                            const Shape& made,
                            bool count_padding) {
  KernelText text(node);
  text.include("pool.h");
  const int64_t width = x[3] % 4 == 0 ? 4 : 1, n = numel(made) / width;
  text.declare(
      fmt::format("\nstruct Windows_{} {{\n"
                  "  static constexpr int64_t kHeight = {}, kWidth = {}, kChannels = {};\n"
                  "  static constexpr int64_t kRows = {}, kColumns = {};  // of windows\n"
                  "  static constexpr int64_t kKernel[2] = {{{}, {}}}, kStride[2] = {{{}, {}}};\n"
                  "  static constexpr int64_t kTop = {}, kLeft = {};\n"
                  "  static constexpr bool kCountPadding = {};\n"
                  "}};\n",
                  KernelText::kName,
                  x[1],
                  x[2],
                  x[3],
                  y[1],
                  y[2],
                  pool.kernel[0],
                  pool.kernel[1],
                  pool.window.stride[0],
                  pool.window.stride[1],
                  pool.window.padding[0],
                  pool.window.padding[1],
                  count_padding));
  std::string operands = text.input(0);
  if (node.inputs.size() == 2) operands += ", " + text.input(1);
  text.lines.line("{}<Windows_{}, {}>({}, {}, {});",
                  function,
                  KernelText::kName,
                  width,
                  operands,
                  text.output(0),
                  n);
  text.finish("", ceil_div(n, kThreads), kThreads);
  return text.result(node.op->name(),
                     fmt::format("Windows of {} by {}.", pool.kernel[0], pool.kernel[1]));
}

}  // namespace

std::optional<PrintedKernel> print_pool(const Node& node) {
  if (node.inputs.empty()) return std::nullopt;
  const Shape &in = node.inputs[0].shape(), &out = node.outputs[0].shape;
  if (node.is<MaxPool2d>())
    return print_windows(node, "max_pool", node.op_as<MaxPool2d>().pool, in, out, out, false);
  if (node.is<MaxPool2dGrad>())
    return print_windows(node,
                         "max_pool_grad",
                         node.op_as<MaxPool2dGrad>().pool,
                         in,
                         node.inputs[1].shape(),
                         out,
                         false);
  if (node.is<AvgPool2d>()) {
    const auto& op = node.op_as<AvgPool2d>();
    return print_windows(node, "avg_pool", op.pool, in, out, out, op.count_padding);
  }
  if (!node.is<AvgPool2dGrad>()) return std::nullopt;
  const auto& op = node.op_as<AvgPool2dGrad>();
  return print_windows(node, "avg_pool_grad", op.pool, out, in, out, op.count_padding);
}

}  // namespace ridge::cuda
