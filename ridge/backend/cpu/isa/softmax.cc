// Softmax and its relatives. Sums of a row are taken over blocks by the lanes, and over the blocks
// in order in f64.
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/lanes.h"
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/softmax_kernels.h"

namespace ridge::cpu {
namespace {

template <typename T>
Computed<T> largest(const T* x, int64_t n) {
  using A = Computed<T>;
  return combine<Larger, A>(
      n, [x](int64_t i, int count) { return lanes_at<A>(x, i, count, Larger::kNeutral<A>); });
}

// e[i] = exp(x[i] - max), and their sum; n is at most kBlock. e may be x.
template <typename T>
double exponentials(const T* x, Computed<T> max, int64_t n, Computed<T>* e) {
  using A = Computed<T>;
  if constexpr (kIsHalf<T>) {
    widen(x, e, n);
    for (int64_t i = 0; i < n; ++i) e[i] = exp_of(e[i] - max);
  } else {
    RIDGE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) e[i] = exp_of(x[i] - max);
  }
  return combine<Plus, A>(n, [e](int64_t i, int count) { return lanes_at<A>(e, i, count, A(0)); });
}

// The exponentials are kept in y, or for 16-bit floats in a block; a longer row computes them
// twice.
template <typename T>
void softmax_row(const T* x, T* y, int64_t n) {
  using A = Computed<T>;
  alignas(64) A block[kBlock];
  const A max = largest(x, n);
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = least(kBlock, n - i);
    if constexpr (kIsHalf<T>)
      sum += exponentials(x + i, max, count, block);
    else
      sum += exponentials(x + i, max, count, y + i);
  }
  const A scale = static_cast<A>(1.0 / sum);
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = least(kBlock, n - i);
    if constexpr (kIsHalf<T>) {
      if (n > kBlock) exponentials(x + i, max, count, block);
      for (int64_t j = 0; j < count; ++j) block[j] *= scale;
      narrow(block, y + i, count);
    } else {
      for (int64_t j = 0; j < count; ++j) y[i + j] *= scale;
    }
  }
}

// log(sum(exp(x - max))) of a row.
template <typename T>
double log_sum(const T* x, Computed<T> max, int64_t n) {
  alignas(64) Computed<T> block[kBlock];
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlock)
    sum += exponentials(x + i, max, least(kBlock, n - i), block);
  return __builtin_log(sum);
}

template <typename T>
void log_softmax_row(const T* x, T* y, int64_t n) {
  using A = Computed<T>;
  alignas(64) A block[kBlock];
  const A max = largest(x, n);
  const A shift = static_cast<A>(log_sum(x, max, n));
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = least(kBlock, n - i);
    if constexpr (kIsHalf<T>) {
      widen(x + i, block, count);
      for (int64_t j = 0; j < count; ++j) block[j] = block[j] - max - shift;
      narrow(block, y + i, count);
    } else {
      RIDGE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) y[i + j] = x[i + j] - max - shift;
    }
  }
}

template <typename T, void (*kRow)(const T*, T*, int64_t)>
void each_row(const void* x, void* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    kRow(static_cast<const T*>(x) + r * n, static_cast<T*>(y) + r * n, n);
}

// A term whose weight is 0 is left out: its logarithm may be infinite.
template <typename T>
double row_loss(const T* x, int64_t n, int64_t target, double smoothing) {
  using A = Computed<T>;
  const A max = largest(x, n);
  const double normalizer = log_sum(x, max, n);
  double loss = 0;
  if (smoothing != 1.0)
    loss -= (1.0 - smoothing) *
            (static_cast<double>(wide(x[target])) - static_cast<double>(max) - normalizer);
  if (smoothing != 0.0) {
    double shifted = 0;  // sum of x - max
    for (int64_t i = 0; i < n; i += kBlock)
      shifted += combine<Plus, A>(least(kBlock, n - i), [&](int64_t j, int count) {
        return lanes_at<A>(x + i, j, count, max) - Lanes<A>::all(max);
      });
    loss -= smoothing * (shifted / static_cast<double>(n) - normalizer);
  }
  return loss;
}

template <typename T>
void cross_entropy(const CrossEntropyRows& rows, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t target = rows.is_i64 ? static_cast<const int64_t*>(rows.targets)[r]
                                       : static_cast<const int32_t*>(rows.targets)[r];
    const T* x = static_cast<const T*>(rows.logits) + r * rows.n;
    const double loss =
        target == rows.ignore_index ? 0.0 : row_loss(x, rows.n, target, rows.label_smoothing);
    static_cast<T*>(rows.loss)[r] = rounded<T>(static_cast<Computed<T>>(loss));
  }
}

template <int kIndex = 0>
constexpr void fill(SoftmaxKernels& k) {
  using T = Element<kIndex>;
  if constexpr (kIsFloat<T>) {
    k.softmax[kIndex] = each_row<T, softmax_row<T>>;
    k.log_softmax[kIndex] = each_row<T, log_softmax_row<T>>;
    k.cross_entropy[kIndex] = cross_entropy<T>;
    fill<kIndex + 1>(k);
  }
}

constexpr SoftmaxKernels make_kernels() {
  SoftmaxKernels k{};
  fill(k);
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const SoftmaxKernels softmax_kernels = make_kernels();
}

}  // namespace ridge::cpu
