// Convolution and its two gradients, each as a matrix product of which one factor is read out of
// images: by tiles in shared memory, or, where a group has few channels to give (depthwise), a
// thread a result. Where results are too few for the device, the depth is cut into parts by shape,
// and their sums are added in order. The order of sums is not the CPU's.
#include <algorithm>

#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/graph/ops/conv.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kTile = 64;              // of both sides of a tile of results
constexpr int64_t kFewChannels = 8;        // of a group's results: a tile would be empty
constexpr int64_t kGoodBlocks = 264;       // two for each multiprocessor of the larger devices
constexpr int64_t kLeastDepth = 256;       // of a part, by tiles
constexpr int64_t kLeastDirectDepth = 64;  // of a part, a thread a result

struct Sizes {
  const Shape &x, &w, &y;  // (N, H, W, C), (KH, KW, C / groups, O), (N, OH, OW, O)
  const WindowFields& window;
  int64_t groups;
};

// The product (groups, m, k) x (groups, k, n).
struct Product {
  std::string_view kind;  // of device/convolution.h
  int64_t m, n, k;
};

std::string geometry_text(const Sizes& s) {
  const int64_t largest = std::max({numel(s.x), numel(s.w), numel(s.y)});
  return fmt::format(
      "\nstruct Geometry_{} {{\n"
      "  using Index = {};\n"
      "  static constexpr Index kImages = {}, kHeight = {}, kWidth = {}, kIn = {};\n"
      "  static constexpr Index kRows = {}, kColumns = {}, kOut = {}, kGroups = {};\n"
      "  static constexpr Index kKernelRows = {}, kKernelColumns = {};\n"
      "  static constexpr Index kStrideDown = {}, kStrideAcross = {};\n"
      "  static constexpr Index kDilationDown = {}, kDilationAcross = {};\n"
      "  static constexpr Index kTop = {}, kLeft = {};\n"
      "}};\n",
      KernelText::kName,
      // Room for a step beyond the end.
      largest < int64_t{1} << 30 ? "int32_t" : "int64_t",
      s.x[0],
      s.x[1],
      s.x[2],
      s.x[3],
      s.y[1],
      s.y[2],
      s.y[3],
      s.groups,
      s.w[0],
      s.w[1],
      s.window.stride[0],
      s.window.stride[1],
      s.window.dilation[0],
      s.window.dilation[1],
      s.window.padding[0],
      s.window.padding[1]);
}

// How many parts the depth is cut into, so that `blocks` of each become enough; none is shorter
// than `least`.
int64_t parts_of(int64_t depth, int64_t blocks, int64_t least) {
  return std::clamp<int64_t>(kGoodBlocks / blocks, 1, std::max<int64_t>(1, depth / least));
}

PrintedKernel print_product(const Node& node, const Sizes& sizes, const Product& product) {
  const DType dtype = node.outputs[0].dtype;
  const DType computed = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const int64_t results = node.outputs[0].elements();
  const bool is_direct = product.n < kFewChannels;
  const int64_t tiles = ceil_div(product.m, kTile) * ceil_div(product.n, kTile) * sizes.groups;
  const int64_t blocks = is_direct ? ceil_div(results, kThreads) : tiles;
  const int64_t wanted = parts_of(product.k, blocks, is_direct ? kLeastDirectDepth : kLeastDepth);
  // Of equal length but the last.
  const int64_t depth = ceil_div(ceil_div(product.k, wanted), 16) * 16;
  const int64_t parts = ceil_div(product.k, depth);

  KernelText text(node);
  text.include("convolution.h");
  text.declare(geometry_text(sizes));
  const size_t at =
      parts > 1 ? text.take(static_cast<size_t>(parts * results) * size_of(computed)) : 0;
  const std::string a = text.input(0), b = text.input(1);
  const std::string to =
      parts > 1 ? text.workspace(at, stored_type(computed), "sums") : text.output(0);
  text.lines.line("const {}<Geometry_{}, {}> product{{{}, {}}};",
                  product.kind,
                  KernelText::kName,
                  stored_type(dtype),
                  a,
                  b);
  text.lines.line(
      "{}<{}>(product, {}, {});", is_direct ? "sum_directly" : "sum_tiles", depth, to, results);
  text.finish("", blocks * parts, kThreads);
  if (parts > 1) {
    text.lines.line("add_parts<{}>({}, {}, {});",
                    parts,
                    text.workspace(at, fmt::format("const {}", stored_type(computed)), "sums"),
                    text.output(0),
                    results);
    text.finish("_parts", ceil_div(results, kThreads), kThreads);
  }
  PrintedKernel made = text.result(node.op->name(),
                                   fmt::format("{} groups of ({}, {}) x ({}, {}), in {} parts.",
                                               sizes.groups,
                                               product.m,
                                               product.k,
                                               product.k,
                                               product.n,
                                               parts));
  made.same_bits = false;
  return made;
}

}  // namespace

std::optional<PrintedKernel> print_convolution(const Node& node) {
  if (node.inputs.size() != 2) return std::nullopt;
  const Shape &a = node.inputs[0].shape(), &b = node.inputs[1].shape();
  const Shape& made = node.outputs[0].shape;
  const auto pixels = [](const Shape& image) { return image[0] * image[1] * image[2]; };
  const auto positions = [](const Shape& w) { return w[0] * w[1]; };
  if (node.is<Conv2d>()) {
    const auto& op = node.op_as<Conv2d>();
    return print_product(node,
                         {a, b, made, op.window, op.groups},
                         {"Convolution", pixels(made), b[3] / op.groups, positions(b) * b[2]});
  }
  if (node.is<Conv2dGradInput>()) {
    const auto& op = node.op_as<Conv2dGradInput>();
    return print_product(node,
                         {made, b, a, op.window, op.groups},
                         {"ConvolutionInput", pixels(made), b[2], positions(b) * b[3] / op.groups});
  }
  if (!node.is<Conv2dGradWeight>()) return std::nullopt;
  const auto& op = node.op_as<Conv2dGradWeight>();
  return print_product(
      node,
      {a, made, b, op.window, op.groups},
      {"ConvolutionWeight", positions(made) * made[2], made[3] / op.groups, pixels(b)});
}

}  // namespace ridge::cuda
