// How a product by tensor cores (device/product_mma.h) is cut for the device.
#pragma once

#include <cstdint>

#include "ridge/backend/cuda/print_kernel.h"

namespace ridge::cuda {

/// The tile of a block and that of a warp.
struct ProductForm {
  int64_t rows, columns, warp_rows, warp_columns;
  int64_t stages;              ///< Steps of the depth that lie in shared memory.
  int64_t per_multiprocessor;  ///< Blocks that run there at a time.
  /// What the whole device makes of it, TFLOP/s: an estimate for an H200. Large tiles read less
  /// from the second cache, and large tiles of a warp less from shared memory.
  double rate;

  int64_t threads() const { return rows / warp_rows * (columns / warp_columns) * 32; }
  /// Steps of both factors, and 16 rows of sums of each warp.
  int64_t shared_bytes() const {
    return (rows + columns) * kDepth * 2 * stages + threads() / 32 * 16 * (warp_columns + 8) * 4;
  }

  static constexpr int64_t kDepth = 32;  ///< Of a step.
};

/// Largest first: 132, 82 and 42 KiB of shared memory.
inline constexpr ProductForm kProductForms[] = {
    {128, 256, 64, 64, 4, 1, 450.0},
    {128, 128, 64, 64, 4, 2, 380.0},
    {64, 64, 32, 32, 4, 4, 220.0},
};

struct ProductSize {
  int64_t batches, m, n, k;
  int64_t result_bytes;   ///< Of an element, in all results.
  bool has_loop = false;  ///< The product is read by a loop that the kernel has too.
};

struct ProductCut {
  ProductForm form;
  int64_t parts = 1;  ///< Of the depth, each a block's own.

  int64_t part_steps(int64_t k) const;
};

/// That which takes least by a model of the device: tiles that its multiprocessors take one after
/// the other, and, with parts, their sums, which are written and read. What it gives depends on the
/// size alone, since bits follow from it.
ProductCut cut_product(const ProductSize& size);

/// Whether the kernel of a fused_matmul of 16-bit factors takes less than a library's product and
/// the loop behind it, which writes the product and reads it once more: by the same model.
bool is_faster_joined(const Node& node);

/// The kernel of a matmul or fused_matmul of 16-bit factors, cut like that.
PrintedKernel print_product(const Node& node, const ProductCut& cut);

}  // namespace ridge::cuda
