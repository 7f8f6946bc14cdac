// Pooling of one window, one set for each instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// A rectangle of pixels; the strides are in elements.
struct PoolRectangle {
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t col_stride;
  int64_t channels;  // number to handle, from the pointers on
};

/// T is float, double, F16Bits or BF16Bits. Pixels are taken rows first; channels do not meet.
template <typename T>
struct PoolKernels {
  using Sum = Computed<T>;
  /// y = the largest pixel of x, or a NaN if there is one.
  void (*max)(const T* x, const PoolRectangle& r, T* y);
  /// Adds dy to the pixel of dx at the place of the first largest pixel of x; both lie alike.
  void (*max_grad)(const T* x, const T* dy, const PoolRectangle& r, Sum* dx);
  /// y = the sum of all pixels of x, divided by `count`.
  void (*avg)(const T* x, const PoolRectangle& r, Sum count, T* y);
  /// dx = the sum over all pixels (i, j) of dy of dy * row_shares[i] * col_shares[j].
  void (*avg_grad)(
      const T* dy, const PoolRectangle& r, const Sum* row_shares, const Sum* col_shares, T* dx);
};

struct AllPoolKernels {
  PoolKernels<float> f32;
  PoolKernels<double> f64;
  PoolKernels<F16Bits> f16;
  PoolKernels<BF16Bits> bf16;
  // y = the largest pixel of x.
  void (*max_i8)(const int8_t* x, const PoolRectangle& r, int8_t* y);
  void (*max_u8)(const uint8_t* x, const PoolRectangle& r, uint8_t* y);
};

namespace avx2 {
extern const AllPoolKernels pool_kernels;
}
namespace avx512 {
extern const AllPoolKernels pool_kernels;
}

}  // namespace ridge::cpu
