// Softmax, log-softmax and cross-entropy of one instruction set, row by row.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"

namespace ridge::cpu {

/// x and y are (rows, n); y may be x.
using RowsKernel = void (*)(const void* x, void* y, int64_t rows, int64_t n);

struct CrossEntropyRows {
  const void* logits;   // (rows, n)
  const void* targets;  // (rows): i64, or i32
  bool is_i64;
  void* loss;  // (rows)
  int64_t n;
  int64_t ignore_index;
  double label_smoothing;
};

/// Rows [begin, end). Targets must have been checked.
using CrossEntropyKernel = void (*)(const CrossEntropyRows& rows, int64_t begin, int64_t end);

/// Float dtypes only.
struct SoftmaxKernels {
  RowsKernel softmax[kElements];
  RowsKernel log_softmax[kElements];
  CrossEntropyKernel cross_entropy[kElements];
};

namespace avx2 {
extern const SoftmaxKernels softmax_kernels;
}
namespace avx512 {
extern const SoftmaxKernels softmax_kernels;
}

}  // namespace ridge::cpu
