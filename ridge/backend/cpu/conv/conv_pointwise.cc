#include "ridge/backend/cpu/conv/conv_pointwise.h"

#include <algorithm>

#include "ridge/backend/cpu/conv/conv_packed.h"
#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/fused_conv.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kMostParts = 32;
constexpr int64_t kFewestPixels = 64, kMostPixels = 384;  // pixels of a chunk; one fma chain
// Sums of a part are no more work to clear and add up than an eighth of its pixels.
constexpr int64_t kPixelsOfSums = 8;

struct PointwiseProduct {
  GemmShape shape;
  GemmBatch groups;
};

template <typename Op>
PointwiseProduct pointwise_product(const ConvGeometry& g) {
  const int64_t pixels = g.images * g.in[0] * g.in[1], c = g.group_in(), o = g.group_out();
  if constexpr (std::is_same_v<Op, Conv2d>)
    return {{.m = pixels,
             .n = o,
             .k = c,
             .lda = g.channels,
             .ldb = g.out_channels,
             .ldc = g.out_channels},
            {g.groups, c, o, o}};
  else if constexpr (std::is_same_v<Op, Conv2dGradInput>)
    return {{.m = pixels,
             .n = c,
             .k = o,
             .transpose_b = true,
             .lda = g.out_channels,
             .ldb = g.out_channels,
             .ldc = g.channels},
            {g.groups, o, o, c}};
  else
    return {{.m = c,
             .n = o,
             .k = pixels,
             .transpose_a = true,
             .lda = g.channels,
             .ldb = g.out_channels,
             .ldc = g.out_channels},
            {g.groups, c, o, o}};
}

template <typename Op>
ProductKernel make_product(const Node& node) {
  const auto [shape, groups] = pointwise_product<Op>(geometry_of<Op>(node));
  return make_batched_product(node.outputs[0].dtype, Op::kTraits.name, shape, groups);
}

template <typename Op>
std::unique_ptr<HostKernel> make_product_alone(const Node& node) {
  return make_alone(make_product<Op>(node));
}

template <typename Op, bool kTiles>
ProductKernel make_bf16_product(const Node& node) {
  auto [shape, groups] = pointwise_product<Op>(geometry_of<Op>(node));
  shape.products = kBF16Products<kTiles>;
  if constexpr (kTiles) return make_amx_product<BF16, BF16>(shape, groups);
  return make_batched_product(DType::kBF16, Op::kTraits.name, shape, groups);
}

template <typename Op, bool kTiles>
std::unique_ptr<HostKernel> make_bf16_alone(const Node& node) {
  return make_alone(make_bf16_product<Op, kTiles>(node));
}

template <typename T>
std::unique_ptr<HostKernel> make_sums(const ConvGeometry& g, const PixelSums& sums) {
  return std::make_unique<HostKernel>(
      [g, sums](const KernelArgs& args) {
        const T* x = static_cast<const T*>(args.inputs[0]);
        const T* dy = static_cast<const T*>(args.inputs[1]);
        T* all = static_cast<T*>(args.workspace);
        parallel_for(sums.parts(), 1, [&](int64_t part, int64_t) {
          const int64_t first = sums.first_of(part), end = sums.first_of(part + 1);
          for (int64_t i = first; i < end; i += sums.chunk())
            sums.add(x + i * g.channels,
                     dy + i * g.out_channels,
                     std::min(sums.chunk(), end - i),
                     i == first,
                     all + part * sums.sums());
        });
        sums.combine(all, static_cast<T*>(args.outputs[0]));
      },
      static_cast<size_t>(sums.parts() * sums.sums()) * sizeof(T));
}

std::unique_ptr<HostKernel> make_weight_gradient(const Node& node) {
  const auto g = geometry_of<Conv2dGradWeight>(node);
  const DType dtype = node.outputs[0].dtype;
  const PixelSums sums(g.images * g.in[0] * g.in[1],
                       g.channels,
                       g.out_channels,
                       static_cast<int64_t>(size_of(dtype)));
  if (g.groups == 1 && sums.pays()) {
    if (dtype == DType::kF32) return make_sums<float>(g, sums);
    if (dtype == DType::kF64) return make_sums<double>(g, sums);
  }
  return make_product_alone<Conv2dGradWeight>(node);
}

template <typename Op>
bool accepts(const Node& node) {
  return geometry_of<Op>(node).is_pointwise();
}

template <typename Op, bool kTiles>
bool accepts_bf16(const Node& node) {
  return accepts<Op>(node) && multiplies_bf16<Op, kTiles>(node);
}

// The gradient of weights by `of_weights`, which adds up its products of pixels all at once.
template <bool kTiles>
void add_bf16_kernels(KernelTable& table, const Choice& choice, const Choice& of_weights) {
  add_product<Conv2d, FusedConv2d>(table,
                                   {.choice = choice,
                                    .make = make_bf16_product<Conv2d, kTiles>,
                                    .accepts = accepts_bf16<Conv2d, kTiles>});
  table.add("conv2d_grad_input",
            choice,
            make_bf16_alone<Conv2dGradInput, kTiles>,
            accepts_bf16<Conv2dGradInput, kTiles>);
  table.add("conv2d_grad_weight",
            of_weights,
            make_bf16_alone<Conv2dGradWeight, kTiles>,
            accepts_bf16<Conv2dGradWeight, kTiles>);
}

}  // namespace

PixelSums::PixelSums(int64_t pixels, int64_t channels, int64_t out_channels, int64_t element_bytes)
    : pixels_(pixels), channels_(channels), out_channels_(out_channels) {
  const int64_t fitting = kPixelChunkBytes / ((2 * channels + out_channels) * element_bytes);
  chunk_ = std::min(fitting / 16 * 16, kMostPixels);
  const bool fits = chunk_ >= kFewestPixels;
  chunk_ = std::max(chunk_, kFewestPixels);
  parts_ = fits ? std::min({kMostParts, pixels / (kPixelsOfSums * channels), pixels / chunk_}) : 0;
}

template <typename T>
void PixelSums::add(const T* x, const T* dz, int64_t n, bool is_first, T* part_sums) const {
  gemm({.m = channels_,
        .n = out_channels_,
        .k = n,
        .transpose_a = true,
        .lda = channels_,
        .ldb = out_channels_,
        .ldc = out_channels_},
       x,
       dz,
       part_sums,
       /*accumulate=*/!is_first,
       nullptr);
}

template <typename T>
void PixelSums::combine(T* part_sums, T* dw) const {
  parallel_for(sums(), 4096, [&](int64_t begin, int64_t end) {
    std::copy(part_sums + begin, part_sums + end, dw + begin);
    for (int64_t p = 1; p < parts_; ++p)
      for (int64_t i = begin; i < end; ++i) dw[i] += part_sums[p * sums() + i];
  });
}

template void PixelSums::add(const float*, const float*, int64_t, bool, float*) const;
template void PixelSums::add(const double*, const double*, int64_t, bool, double*) const;
template void PixelSums::combine(float*, float*) const;
template void PixelSums::combine(double*, double*) const;

void add_pointwise_pairs_kernels(KernelTable& table) {
  add_bf16_kernels</*kTiles=*/false>(table, {"pairs_gemm", 3}, {"pairs_gemm", 4});
}

void add_pointwise_kernels(KernelTable& table) {
  add_bf16_kernels</*kTiles=*/true>(table, {"amx_gemm", 2}, {"amx_gemm", 2});
  add_product<Conv2d, FusedConv2d>(table,
                                   {.choice = {"gemm", 0},
                                    .make = make_product<Conv2d>,
                                    .accepts = accepts<Conv2d>,
                                    .packed_operands = conv_panels,
                                    .make_packed = make_packed_conv});
  table.add("conv2d_grad_input",
            {"gemm", 0},
            make_product_alone<Conv2dGradInput>,
            accepts<Conv2dGradInput>);
  table.add("conv2d_grad_weight", {"gemm", 1}, make_weight_gradient, accepts<Conv2dGradWeight>);
}

}  // namespace ridge::cpu
