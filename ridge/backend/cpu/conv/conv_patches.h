// Which pixels of one image belong to each pixel of another, and the matrix of patches that turns
// a convolution into a product.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/graph/ops/conv.h"

namespace ridge::cpu {

/// Sizes of a convolution y = conv2d(x, w), whichever of the three is computed.
struct ConvGeometry {
  ConvGeometry(const WindowFields& window,
               int64_t group_count,
               const Shape& x,
               const Shape& w,
               const Shape& y);

  int64_t images;
  std::array<int64_t, 2> in, out, kernel;  // height, width
  std::array<int64_t, 2> stride, padding, dilation;
  int64_t channels, out_channels;  // channels of all groups together
  int64_t groups;

  int64_t group_in() const { return channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t taps() const { return kernel[0] * kernel[1]; }
  /// True when an output pixel sees just the input pixel at its place.
  bool is_pointwise() const;
};

/// Whether tiles (else vdpbf16ps) multiply convolutions of bf16 here, with channels enough to
/// multiply more numbers than zeros.
bool multiplies_bf16(const ConvGeometry& g, bool by_tiles);

/// How gemm() multiplies bf16 where tiles do not.
template <bool kTiles>
inline constexpr GemmProducts kBF16Products = kTiles ? GemmProducts::kOwn : GemmProducts::kPairs;

/// The geometry of a node of op Op: conv2d or one of its gradients.
template <typename Op>
ConvGeometry geometry_of(const Node& node) {
  const auto& op = node.op_as<Op>();
  const Shape &a = node.inputs[0].shape(), &b = node.inputs[1].shape(),
              &result = node.outputs[0].shape;
  if constexpr (std::is_same_v<Op, Conv2d>)
    return {op.window, op.groups, a, b, result};
  else if constexpr (std::is_same_v<Op, Conv2dGradInput>)
    return {op.window, op.groups, result, b, a};
  else
    return {op.window, op.groups, a, result, b};
}

/// The same of a node of op Op whose images and weights are bf16.
template <typename Op, bool kTiles>
bool multiplies_bf16(const Node& node) {
  return node.inputs[0].dtype() == DType::kBF16 && multiplies_bf16(geometry_of<Op>(node), kTiles);
}

/// A matrix (pixels of a grid in each image, depth): row (n, i, j) holds, for each vertical and
/// each horizontal offset, `channels` of the source pixel (n, i * step + offset, j * step +
/// offset), or zeros where there is none.
struct PatchMatrix {
  int64_t images = 0;
  std::array<int64_t, 2> source{};  // height, width
  int64_t pitch = 0;                // channels of a source pixel
  int64_t channels = 0;
  std::array<int64_t, 2> grid{};
  std::array<int64_t, 2> step{};
  std::array<std::vector<int64_t>, 2> offsets;  // ascending

  int64_t pixels() const { return images * grid[0] * grid[1]; }
  int64_t depth() const {
    return static_cast<int64_t>(offsets[0].size() * offsets[1].size()) * channels;
  }
  /// Rows of which a chunk fits the workspace: about `bytes`, a function of shapes alone.
  int64_t chunk_rows(int64_t bytes, size_t element_bytes) const;
};

/// The patches of x that each pixel of y sums; their offsets are in the order of the kernel.
PatchMatrix forward_patches(const ConvGeometry& g);

/// Writes rows [begin, end) of the matrix, in parallel. `source` points to the first channel
/// wanted. To is From, or float where From is 16-bit.
template <typename From, typename To>
void gather_patches(
    const PatchMatrix& patches, const From* source, int64_t begin, int64_t end, To* to);

/// Writes `rows` whole rows from `begin` on, on this thread, as panels of tiles
/// (isa/gemm/gemm_amx_kernels.h). The depth is 8192 at most.
void gather_patch_tiles(
    const PatchMatrix& patches, const BF16* source, int64_t begin, int64_t rows, BF16* panels);

/// Writes those elements of the matrix on this thread.
template <typename T>
void gather_patches(const PatchMatrix& patches, const T* source, const GemmRows& rows, T* to);

/// The same of the transposed matrix, whose rows are those of the depth and whose steps are the
/// pixels: row i of step p at to[p * rows.rows + i].
template <typename T>
void gather_patch_columns(const PatchMatrix& patches, const T* source, const GemmRows& rows, T* to);

}  // namespace ridge::cpu
