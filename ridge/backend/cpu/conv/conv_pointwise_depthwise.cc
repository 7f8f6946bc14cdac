// A pointwise convolution, the depthwise one behind it, and the loops behind both, some rows of an
// image at a time: what passes between the two stays in the cache.
#include <algorithm>

#include "ridge/backend/cpu/conv/conv_depthwise.h"
#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm_panels.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/pointwise_depthwise.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBandElements = (512 << 10) / 4;  // of the image between, on the stack
// Several a thread, as another program may take a processor from one of them.
constexpr int64_t kBandsOfThread = 2;
constexpr size_t kFactors = 3;
// An image between that is smaller stays in the cache anyway.
constexpr int64_t kFewestBytes = 768 << 10;

struct Geometry {
  explicit Geometry(const Node& node)
      : op(node.op_as<PointwiseDepthwise>()),
        images(op.images(node.input_types())),
        depthwise(op.window,
                  images.between.shape.back(),
                  images.between.shape,
                  node.inputs[2].shape(),
                  images.last.shape) {}

  // The product of `pixels` of the pointwise convolution.
  GemmShape product(const Shape& w, int64_t pixels) const {
    return {.m = pixels, .n = w[3], .k = w[2], .lda = w[2], .ldb = w[3], .ldc = w[3]};
  }
  int64_t pixels() const { return images.between.elements() / images.between.shape.back(); }

  const PointwiseDepthwise& op;
  PointwiseDepthwise::Images images;
  ConvGeometry depthwise;
};

struct Loops {
  explicit Loops(const Node& node)
      : first(node.op_as<PointwiseDepthwise>().first, kFactors, first_count(node)),
        second(node.op_as<PointwiseDepthwise>().second,
               kFactors + first_count(node),
               node.inputs.size() - kFactors - first_count(node)) {}
  static size_t first_count(const Node& node) {
    return static_cast<size_t>(node.op_as<PointwiseDepthwise>().first_operands);
  }
  LoopBehind first, second;
};

bool accepts(const Node& node) {
  if (node.outputs[0].dtype != DType::kF32) return false;
  const Geometry g(node);
  const Loops loops(node);
  return g.images.between.bytes() >= kFewestBytes && loops.first.is_complete() &&
         loops.second.is_complete() && DepthwiseForward::accepts(g.depthwise, kBandElements);
}

// multiply(shape, x, w, y, finish_block) makes rows of the pointwise convolution.
template <typename Multiply>
std::unique_ptr<HostKernel> make(const Node& node, Multiply multiply) {
  const Geometry g(node);
  const GemmShape all = g.product(node.inputs[1].shape(), g.pixels());
  return std::make_unique<HostKernel>(
      [all, multiply, conv = DepthwiseForward(g.depthwise, kBandElements), loops = Loops(node)](
          const KernelArgs& args) {
        float* z = static_cast<float*>(args.outputs[0]);
        const auto finish_row = [&](int64_t begin, int64_t end) {
          loops.second.run(args, args.outputs, begin, end);
        };
        const FinishRange finish(finish_row);
        const int64_t bands = conv.bands(kBandsOfThread * num_threads());
        parallel_for(bands, 1, [&](int64_t first_band, int64_t end_band) {
          alignas(64) float window[kBandElements];
          const auto write_pixels = [&](int64_t begin, int64_t end, float* to) {
            if (begin == end) return;
            void* const image = to - begin * all.n;
            const auto finish_block = [&](const GemmBlock& block) {
              const auto run_loop = [&](int64_t from, int64_t until) {
                loops.first.run(args, {&image, 1}, from, until);
              };
              finish_rows(FinishRange(run_loop), block, begin * all.n, all.n);
            };
            GemmShape shape = all;
            shape.m = end - begin;
            multiply(shape,
                     static_cast<const float*>(args.inputs[0]) + begin * all.k,
                     args.inputs[1],
                     to,
                     FinishBlock(finish_block));
          };
          for (int64_t band = first_band; band < end_band; ++band)
            conv.run_band(band,
                          bands,
                          window,
                          write_pixels,
                          static_cast<const float*>(args.inputs[2]),
                          z,
                          &finish);
        });
      });
}

std::unique_ptr<HostKernel> make_plain(const Node& node) {
  return make(node,
              [](const GemmShape& shape,
                 const float* x,
                 const void* w,
                 float* y,
                 const FinishBlock& finish) {
                gemm(shape, x, static_cast<const float*>(w), y, false, nullptr, &finish);
              });
}

std::unique_ptr<HostKernel> make_packed(const Node& node) {
  return make(node,
              [](const GemmShape& shape,
                 const float* x,
                 const void* panels,
                 float* y,
                 const FinishBlock& finish) { gemm_packed(shape, x, panels, y, &finish); });
}

std::vector<PackedOperand> packed_operands(const Node& node) {
  const Geometry g(node);
  const GemmShape shape = g.product(node.inputs[1].shape(), g.pixels());
  const auto panels = gemm_panels(shape, DType::kF32);
  if (!panels) return {};
  return {panels_operand(1, shape, *panels)};
}

}  // namespace

void add_pointwise_depthwise_kernels(KernelTable& table) {
  table.add(PointwiseDepthwise::kTraits.name,
            {"bands", 0},
            make_plain,
            accepts,
            {packed_operands, make_packed});
}

}  // namespace ridge::cpu
