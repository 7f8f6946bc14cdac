// Depthwise convolution of one pixel, one set for each instruction set.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// Where a tap of the kernel reads along one dimension: offsets in elements.
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
  void (*dot)(const DepthwiseDot<T>&);
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
