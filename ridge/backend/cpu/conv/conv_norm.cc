// Convolutions that apply the batch norm before them to the pixels that they are about to read: a
// chunk of pixels, or some rows of an image, at a time.
#include "ridge/graph/ops/conv_norm.h"

#include <algorithm>

#include "ridge/backend/cpu/conv/conv_depthwise.h"
#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/conv/input_norm.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kPixelElements = (384 << 10) / 4;  // elements of normalised pixels, on the stack
constexpr int64_t kImageElements = (512 << 10) / 4;
constexpr int64_t kBands = 16;
constexpr int64_t kFewestPixels = 64, kMostPixels = 384;

ConvGeometry geometry_of_norm(const Node& node) {
  const auto& op = node.op_as<NormConv2d>();
  return {
      op.window, op.groups, node.inputs[0].shape(), node.inputs[4].shape(), node.outputs[0].shape};
}

InputNorm input_norm(const Node& node) {
  return {node.inputs[0].type(), node.op_as<NormConv2d>().activation, NormConv2d::kTraits.name};
}

BatchNormData bind(const InputNorm& norm, const KernelArgs& args) {
  return norm.bind(args.inputs[0], args.inputs.subspan(1, 3), static_cast<float*>(args.workspace));
}

size_t table_bytes(const InputNorm& norm) {
  return static_cast<size_t>(norm.table()) * sizeof(float);
}

bool accepts_pointwise(const Node& node) {
  const ConvGeometry g = geometry_of_norm(node);
  return node.outputs[0].dtype == DType::kF32 && g.is_pointwise() && g.groups == 1 &&
         g.channels * kFewestPixels <= kPixelElements;
}

std::unique_ptr<HostKernel> make_pointwise(const Node& node) {
  const ConvGeometry g = geometry_of_norm(node);
  const InputNorm norm = input_norm(node);
  const int64_t pixels = g.images * g.in[0] * g.in[1];
  const int64_t chunk = std::min(kPixelElements / g.channels / 16 * 16, kMostPixels);
  return std::make_unique<HostKernel>(
      [g, norm, pixels, chunk](const KernelArgs& args) {
        const BatchNormData bound = bind(norm, args);
        const float* w = static_cast<const float*>(args.inputs[4]);
        float* to = static_cast<float*>(args.outputs[0]);
        parallel_for(pixels, chunk, [&](int64_t begin, int64_t end) {
          alignas(64) float y[kPixelElements];
          norm.write(bound, begin, end, y);
          gemm({.m = end - begin,
                .n = g.out_channels,
                .k = g.channels,
                .lda = g.channels,
                .ldb = g.out_channels,
                .ldc = g.out_channels},
               y,
               w,
               to + begin * g.out_channels,
               /*accumulate=*/false,
               nullptr);
        });
      },
      table_bytes(norm));
}

bool accepts_depthwise(const Node& node) {
  const ConvGeometry g = geometry_of_norm(node);
  return node.outputs[0].dtype == DType::kF32 && g.kernel[0] <= 3 && g.padding[0] <= 1 &&
         DepthwiseForward::accepts(g, kImageElements);
}

std::unique_ptr<HostKernel> make_depthwise(const Node& node) {
  const InputNorm norm = input_norm(node);
  const DepthwiseForward conv(geometry_of_norm(node), kImageElements);
  return std::make_unique<HostKernel>(
      [norm, conv](const KernelArgs& args) {
        const BatchNormData bound = bind(norm, args);
        const int64_t bands = conv.bands(kBands);
        parallel_for(bands, 1, [&](int64_t begin_band, int64_t end_band) {
          alignas(64) float window[kImageElements];
          const auto write = [&](int64_t begin, int64_t end, float* to) {
            norm.write(bound, begin, end, to);
          };
          for (int64_t band = begin_band; band < end_band; ++band)
            conv.run_band(band,
                          bands,
                          window,
                          write,
                          static_cast<const float*>(args.inputs[4]),
                          static_cast<float*>(args.outputs[0]));
        });
      },
      table_bytes(norm));
}

}  // namespace

void add_norm_conv_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  const auto name = NormConv2d::kTraits.name;
  table.add(name, {"gemm", 0}, make_pointwise, accepts_pointwise);
  table.add(name, {"depthwise", 1}, make_depthwise, accepts_depthwise);
  const auto expanded = [plain](const Node& node) { return make_expanded(node, plain()); };
  for (const std::string_view op : {name, BatchNormStats::kTraits.name})
    table.add(op, {std::string(kExpandedChoice)}, expanded);
}

}  // namespace ridge::cpu
