// Convolution of bytes: a product of what the windows see and the weights, or the direct kernel of
// depthwise ones.
#include "ridge/graph/ops/conv_i8.h"

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/conv/depthwise_i8.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/product_i8.h"

namespace ridge::cpu {
namespace {

ConvGeometry geometry_of_bytes(const Node& node) {
  const auto& op = node.op_as<Conv2dI8>();
  return {op.window,
          op.groups,
          node.inputs[Conv2dI8::kA].shape(),
          node.inputs[Conv2dI8::kB].shape(),
          node.outputs[0].shape};
}

// The product of a group. Its rows are windows, or the pixels themselves where windows are those.
I8Problem problem_of(const Node& node, bool is_packed) {
  const ConvGeometry g = geometry_of_bytes(node);
  const int64_t depth = g.taps() * g.group_in();
  I8Problem problem;
  problem.shape = {.m = g.images * g.out[0] * g.out[1],
                   .n = g.group_out(),
                   .k = depth,
                   .lda = g.groups > 1 && g.is_pointwise() ? g.channels : depth,
                   .ldb = g.out_channels,
                   .ldc = g.out_channels};
  problem.a_is_signed = node.inputs[Conv2dI8::kA].dtype() == DType::kI8;
  problem.b_is_signed = node.inputs[Conv2dI8::kB].dtype() == DType::kI8;
  problem.b_is_packed = is_packed;
  return problem;
}

GemmI8Windows windows_of(const ConvGeometry& g) {
  return {.images = nullptr,
          .bytes = g.images * g.in[0] * g.in[1] * g.channels,
          .size = {g.in[0], g.in[1]},
          .pitch = g.channels,
          .channels = g.group_in(),
          .windows = {g.out[0], g.out[1]},
          .kernel = {g.kernel[0], g.kernel[1]},
          .stride = {g.stride[0], g.stride[1]},
          .padding = {g.padding[0], g.padding[1]},
          .dilation = {g.dilation[0], g.dilation[1]},
          .beyond = 0};
}

std::unique_ptr<HostKernel> make_product(const Node& node, bool is_packed) {
  const ConvGeometry g = geometry_of_bytes(node);
  const I8Problem problem = problem_of(node, is_packed);
  const auto run = [=,
                    arguments = I8Arguments(node, node.op_as<Conv2dI8>())](const KernelArgs& args) {
    GemmI8Windows windows = windows_of(g);
    for (int64_t group = 0; group < g.groups; ++group) {
      const int64_t column = group * g.group_out();
      I8Operands operands = arguments.operands(args, column);
      const auto* const x = static_cast<const uint8_t*>(operands.a);
      windows.images = x + group * g.group_in();
      windows.bytes = g.images * g.in[0] * g.in[1] * g.channels - group * g.group_in();
      windows.beyond = *static_cast<const uint8_t*>(operands.a_zero.data);
      operands.a = windows.images;
      operands.b = static_cast<const uint8_t*>(operands.b) + column;
      if (!g.is_pointwise()) operands.windows = &windows;
      gemm_i8(problem, operands, arguments.results(args, column), args.workspace);
    }
  };
  return std::make_unique<HostKernel>(run, gemm_i8_workspace_bytes(problem));
}

std::vector<PackedOperand> operands_of(const Node& node) {
  if (node.op_as<Conv2dI8>().groups > 1) return {};
  return {packed_i8_operand(problem_of(node, /*is_packed=*/true).shape)};
}

bool is_depthwise(const Node& node) { return DepthwiseI8::accepts(geometry_of_bytes(node)); }

std::unique_ptr<HostKernel> make_depthwise(const Node& node) {
  const DepthwiseI8 convolution(geometry_of_bytes(node),
                                node.inputs[Conv2dI8::kA].dtype() == DType::kI8,
                                node.inputs[Conv2dI8::kB].dtype() == DType::kI8);
  const I8Arguments arguments(node, node.op_as<Conv2dI8>());
  return std::make_unique<HostKernel>(
      [=](const KernelArgs& args) {
        convolution.run(arguments.operands(args), arguments.results(args), args.workspace);
      },
      convolution.workspace_bytes());
}

}  // namespace

void add_conv_i8_kernels(KernelTable& table) {
  table.add("conv2d_i8", {"depthwise_i8"}, make_depthwise, is_depthwise);
  table.add(
      "conv2d_i8",
      {"gemm_i8"},
      [](const Node& node) { return make_product(node, false); },
      nullptr,
      {.operands = operands_of, .make = [](const Node& node) { return make_product(node, true); }});
}

}  // namespace ridge::cpu
