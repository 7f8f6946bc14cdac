// Depthwise convolution of one pixel, one set for each instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// Offsets, in elements, at which a tap of the kernel reads along one dimension.
struct DepthwiseTap {
  int64_t source;
  int64_t weight;
};

struct DepthwiseTaps {
  const DepthwiseTap* taps;
  int64_t count;
};

/// result[c] = sum of source[c] * weights[c] over all pairs of a row and a column tap, each sum one
/// fma chain with the rows outermost.
template <typename T>
struct DepthwisePixel {
  const T* source;
  const T* weights;
  DepthwiseTaps rows;
  DepthwiseTaps cols;
  int64_t channels;
  T* result;
};

inline constexpr int kStripPixels = 4;
inline constexpr int kStripTaps = 7;     // at most, along a row
inline constexpr int kStripAdvance = 2;  // the same

/// kStripPixels results as of DepthwisePixel, `result_step` elements apart, whose column taps are
/// alike: neighbouring pixels of the source, `pixel` elements apart and in this order, of which
/// each next result takes those `advance` pixels further.
template <typename T>
struct DepthwiseStrip {
  const T* source;
  const T* weights;
  DepthwiseTaps rows;
  DepthwiseTaps cols;  // taps of the first result
  int64_t pixel;
  int64_t advance;
  int64_t channels;
  T* result;
  int64_t result_step;
};

inline constexpr int kDotTaps = 3;

/// For each pair of a row and a column tap, sums[pair][c] += the sum of x[c] * dy[c] over `count`
/// pixels, one fma chain; x of the next column tap lies `x_pixel` elements further.
template <typename T>
struct DepthwiseDots {
  const T* x;
  const T* dy;
  DepthwiseTaps rows;  // 1 to kDotTaps
  int64_t x_pixel;
  int64_t x_step;
  int64_t dy_step;
  int64_t count;
  int64_t channels;
  Computed<T>* sums;  // at a row's weight, kDotTaps columns of `channels`
};

/// sums[c] += the sum of x[c] * dy[c] over `count` pixels so many elements apart, which is one fma
/// chain.
template <typename T>
struct DepthwiseDot {
  const T* x;
  const T* dy;
  int64_t x_step;
  int64_t dy_step;
  int64_t count;
  int64_t channels;
  Computed<T>* sums;
};

template <typename T>
struct DepthwiseKernels {
  void (*pixel)(const DepthwisePixel<T>&);
  void (*strip)(const DepthwiseStrip<T>&);
  void (*dot)(const DepthwiseDot<T>&);
  void (*dots)(const DepthwiseDots<T>&);
};

struct AllDepthwiseKernels {
  DepthwiseKernels<double> f64;
  DepthwiseKernels<float> f32;
  DepthwiseKernels<F16Bits> f16;
  DepthwiseKernels<BF16Bits> bf16;
};

namespace avx2 {
extern const AllDepthwiseKernels depthwise_kernels;
}
namespace avx512 {
extern const AllDepthwiseKernels depthwise_kernels;
}

}  // namespace ridge::cpu
