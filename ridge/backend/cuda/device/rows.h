// Softmax, log-softmax, cross-entropy and norms, row by row. Printed kernels include
// backend/cpu/isa/functions.h before this.
#pragma once

#include "ridge/backend/cuda/device/row_sums.h"

namespace ridge::cuda {

// Elements that are summed in the computed dtype; over more of them, sums go on in f64. As
// backend/cpu/isa/softmax.cc and norm.cc have it.
inline constexpr int kExponentials = 1024;
inline constexpr int kNormed = 4096;

/// The sum of exp(x - max).
template <class R>
inline double exponential_sum(const R& row, typename R::A max) {
  return row.template sum<kExponentials>([max](typename R::A x) { return cpu::exp_of(x - max); });
}

template <class R>
inline void softmax_rows(const typename R::Element* x,
                         typename R::Element* y,
                         int64_t rows,
                         int64_t n) {
  using A = typename R::A;
  for_each_row<R>(x, rows, n, [&](const R& row, int64_t number) {
    const A max = row.largest();
    const A scale = static_cast<A>(1.0 / exponential_sum(row, max));
    row.write(y + number * n, [=](A each, int64_t) { return cpu::exp_of(each - max) * scale; });
  });
}

template <class R>
inline void log_softmax_rows(const typename R::Element* x,
                             typename R::Element* y,
                             int64_t rows,
                             int64_t n) {
  using A = typename R::A;
  for_each_row<R>(x, rows, n, [&](const R& row, int64_t number) {
    const A max = row.largest();
    const A shift = static_cast<A>(cpu::log_of(exponential_sum(row, max)));
    row.write(y + number * n, [=](A each, int64_t) { return each - max - shift; });
  });
}

/// A term whose weight is 0 is left out: its logarithm may be infinite.
template <class R, typename Index>
inline void cross_entropy_rows(const typename R::Element* x,
                               const Index* targets,
                               typename R::Element* loss,
                               Fault* fault,
                               int64_t rows,
                               int64_t n,
                               int64_t ignore_index,
                               double smoothing) {
  using A = typename R::A;
  for_each_row<R>(x, rows, n, [&](const R& row, int64_t number) {
    const A max = row.largest();
    const double normalizer = cpu::log_of(exponential_sum(row, max));
    double shifted = 0;  // sum of x - max
    if (smoothing != 0.0)
      shifted = row.template sum<kExponentials>([max](A each) { return each - max; });
    if (R::thread() != 0 || row.n == 0) return;
    const int64_t target = targets[number];
    if (target == ignore_index) return narrow(loss[number], A(0));
    const bool is_class = target >= 0 && target < n;
    if (!is_class) report(fault, number, target);
    double sum = 0;
    if (smoothing != 1.0)
      sum -= (1.0 - smoothing) * (static_cast<double>(wide_of(row.x[is_class ? target : 0])) -
                                  static_cast<double>(max) - normalizer);
    if (smoothing != 0.0) sum -= smoothing * (shifted / static_cast<double>(n) - normalizer);
    narrow(loss[number], static_cast<A>(sum));
  });
}

/// The variance is taken around a first estimate of the mean, and corrected for what that missed.
template <class R>
inline void layer_norm_rows(const typename R::Element* x,
                            const typename R::Element* gamma,
                            const typename R::Element* beta,
                            typename R::Element* y,
                            int64_t rows,
                            int64_t n,
                            double eps) {
  using A = typename R::A;
  const auto count = static_cast<double>(n);
  for_each_row<R>(x, rows, n, [&](const R& row, int64_t number) {
    const A high = static_cast<A>(row.template sum<kNormed>([](A each) { return each; }) / count);
    const double missed = row.template sum<kNormed>([high](A each) { return each - high; }) / count;
    const double square = row.template sum<kNormed>([high](A each) {
      const A centered = each - high;
      return centered * centered;
    });
    const double variance = cpu::variance_of(square / count, missed);
    const A low = static_cast<A>(missed);
    const A scale = static_cast<A>(1.0 / cpu::sqrt_of(variance + eps));
    row.write(y + number * n, [=](A each, int64_t column) {
      return cpu::fma_of(
          (each - high - low) * scale, wide_of(gamma[column]), wide_of(beta[column]));
    });
  });
}

template <class R>
inline void rms_norm_rows(const typename R::Element* x,
                          const typename R::Element* gamma,
                          typename R::Element* y,
                          int64_t rows,
                          int64_t n,
                          double eps) {
  using A = typename R::A;
  for_each_row<R>(x, rows, n, [&](const R& row, int64_t number) {
    const double square = row.template sum<kNormed>([](A each) { return each * each; });
    const double mean = square / static_cast<double>(n);
    const A scale = static_cast<A>(1.0 / cpu::sqrt_of(mean + eps));
    row.write(y + number * n,
              [=](A each, int64_t column) { return each * scale * wide_of(gamma[column]); });
  });
}

}  // namespace ridge::cuda
