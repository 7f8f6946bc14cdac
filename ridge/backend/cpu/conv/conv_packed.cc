#include "ridge/backend/cpu/conv/conv_packed.h"

#include <optional>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/gemm/gemm_panels.h"
#include "ridge/graph/ops/conv.h"

namespace ridge::cpu {
namespace {

// The product of the patches and the weights (taps and channels, out_channels).
GemmShape product_of(const ConvGeometry& g) {
  const int64_t depth = g.taps() * g.channels;
  return {.m = g.images * g.out[0] * g.out[1],
          .n = g.out_channels,
          .k = depth,
          .lda = depth,
          .ldb = g.out_channels,
          .ldc = g.out_channels};
}

template <typename T>
ProductKernel make_gathering(const ConvGeometry& g) {
  return {[shape = product_of(g), patches = forward_patches(g)](const KernelArgs& args,
                                                                const FinishRange* finish) {
    const T* x = static_cast<const T*>(args.inputs[0]);
    const auto gather = [&](const GemmRows& rows, T* to) { gather_patches(patches, x, rows, to); };
    run_finishing(finish, 0, 0, shape.ldc, [&](const FinishBlock* finish_block) {
      gemm_packed<T>(shape,
                     GatherRows<T>(gather),
                     args.inputs[1],
                     static_cast<T*>(args.outputs[0]),
                     finish_block);
    });
  }};
}

}  // namespace

std::vector<PackedOperand> conv_panels(const Node& conv) {
  const ConvGeometry g = geometry_of<Conv2d>(conv);
  const DType dtype = conv.outputs[0].dtype;
  if (g.groups > 1 || size_of(dtype) < 4) return {};
  const GemmShape shape = product_of(g);
  const std::optional<GemmPanels> panels = gemm_panels(shape, dtype);
  if (!panels) return {};
  return {panels_operand(1, shape, *panels)};
}

ProductKernel make_packed_conv(const Node& conv) {
  const ConvGeometry g = geometry_of<Conv2d>(conv);
  const DType dtype = conv.outputs[0].dtype;
  if (g.is_pointwise()) return make_packed_product(dtype, product_of(g));
  return dtype == DType::kF64 ? make_gathering<double>(g) : make_gathering<float>(g);
}

}  // namespace ridge::cpu
