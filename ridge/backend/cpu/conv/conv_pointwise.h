// Convolutions whose kernel is a single pixel: products of the images themselves.
#pragma once

#include "ridge/backend/host.h"

namespace ridge::cpu {

/// Adds the choices "amx_gemm" and "gemm" of conv2d and of its two gradients.
void add_pointwise_kernels(KernelTable& table);
/// Adds their choice "pairs_gemm".
void add_pointwise_pairs_kernels(KernelTable& table);

/// The sum over pixels of x^T dz, x (pixels, channels) and dz (pixels, out_channels), f32 or f64:
/// in parts of the pixels, each a sum of its own, and in chunks that the nearer caches hold. All is
/// a function of the sizes.
class PixelSums {
 public:
  PixelSums(int64_t pixels, int64_t channels, int64_t out_channels, int64_t element_bytes);

  /// False where there are too few pixels for parts: one product does better.
  bool pays() const { return parts_ >= kFewestParts; }
  int64_t parts() const { return parts_; }
  int64_t chunk() const { return chunk_; }
  int64_t sums() const { return channels_ * out_channels_; }
  int64_t first_of(int64_t part) const { return pixels_ * part / parts_; }

  /// Adds n <= chunk() pixels to the sums of a part, or sets them.
  template <typename T>
  void add(const T* x, const T* dz, int64_t n, bool is_first, T* part_sums) const;
  /// Adds up the sums (parts, channels, out_channels), which it uses, in their order.
  template <typename T>
  void combine(T* part_sums, T* dw) const;

 private:
  static constexpr int64_t kFewestParts = 4;
  int64_t pixels_, channels_, out_channels_, chunk_, parts_;
};

/// Bytes of dz that a chunk takes at most.
inline constexpr int64_t kPixelChunkBytes = 384 << 10;

}  // namespace ridge::cpu
