// Batch norm over x (rows, channels) and its gradient, step by step, in the order of
// backend/cpu/isa/batch_norm.cc: the same bits. Printed kernels include
// backend/cpu/isa/functions.h before this.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

// Rows taken together in the sums; and how many are summed before the sum goes on in f64.
inline constexpr int64_t kRowsTogether = 4, kRowsSummed = 64;

struct NoActivation {
  template <typename A>
  static A of(A z) {
    return z;
  }
  template <typename A>
  static bool lets_through(A) {
    return true;
  }
};
/// NaN stays NaN; no gradient flows there.
struct ReluActivation {
  template <typename A>
  static A of(A z) {
    return z < A(0) ? A(0) : z;
  }
  template <typename A>
  static bool lets_through(A z) {
    return z > A(0);
  }
};
struct Relu6Activation {
  template <typename A>
  static A of(A z) {
    return z < A(0) ? A(0) : z > A(6) ? A(6) : z;
  }
  template <typename A>
  static bool lets_through(A z) {
    return z > A(0) && z < A(6);
  }
};

/// The first of the work of this thread, and the step to the next.
inline int64_t grid_first() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
inline int64_t grid_stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// ---- forward ----

/// Of each chunk of rows and channel: the mean in `first`, the squared deviations in `second`.
template <typename T>
inline void batch_norm_sums(
    const T* x, double* first, double* second, int64_t rows, int64_t channels, int64_t chunk) {
  using A = Sum<T>;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  for (int64_t i = grid_first(); i < chunks * channels; i += grid_stride()) {
    const int64_t begin = i / channels * chunk;
    const int64_t n = rows - begin < chunk ? rows - begin : chunk;
    const T* column = x + begin * channels + i % channels;
    // The mean of a few rows is near enough to that of all.
    const int64_t few = n < 8 ? n : 8;
    A center = wide_of(column[0]);
    for (int64_t r = 1; r < few; ++r) center = center + wide_of(column[r * channels]);
    center = center / static_cast<A>(few);
    double ones = 0, twos = 0;
    for (int64_t r = 0; r < n;) {
      A one = A(0), two = A(0);
      const int64_t stop = r + kRowsSummed < n ? r + kRowsSummed : n;
#pragma unroll 2
      for (; r + kRowsTogether <= stop; r += kRowsTogether) {
        const T* row = column + r * channels;
        const A e = wide_of(row[0]) - center, f = wide_of(row[channels]) - center;
        const A g = wide_of(row[2 * channels]) - center, h = wide_of(row[3 * channels]) - center;
        one = one + ((e + f) + (g + h));
        two = two + (cpu::fma_of(e, e, f * f) + cpu::fma_of(g, g, h * h));
      }
      for (; r < stop; ++r) {
        const A e = wide_of(column[r * channels]) - center;
        one = one + e;
        two = cpu::fma_of(e, e, two);
      }
      ones += static_cast<double>(one);
      twos += static_cast<double>(two);
    }
    const auto count = static_cast<double>(n);
    const double missed = ones / count;
    first[i] = static_cast<double>(center) + missed;
    second[i] = cpu::variance_of(twos / count, missed) * count;
  }
}

/// All chunks together, one after the other (Chan, Golub and LeVeque, "Algorithms for computing the
/// sample variance", 1983): mean and variance, and what results are made of. What rounding takes
/// off the mean goes into the shift.
template <typename T, typename A>
inline void batch_norm_combine(const double* first,
                               const double* second,
                               const T* gamma,
                               const T* beta,
                               T* means,
                               T* variances,
                               A* centers,
                               A* scales,
                               A* shifts,
                               int64_t rows,
                               int64_t channels,
                               int64_t chunk,
                               double eps) {
  for (int64_t c = grid_first(); c < channels; c += grid_stride()) {
    double mean = first[c], square = second[c];
#pragma unroll 4
    for (int64_t begin = chunk; begin < rows; begin += chunk) {
      const int64_t n = rows - begin < chunk ? rows - begin : chunk;
      const double share = static_cast<double>(n) / static_cast<double>(begin + n);
      const double weight = share * static_cast<double>(begin);
      const int64_t at = begin / chunk * channels + c;
      const double step = first[at] - mean;
      mean += step * share;
      square += second[at] + step * step * weight;
    }
    const double variance = square / static_cast<double>(rows);
    narrow(means[c], static_cast<A>(mean));
    narrow(variances[c], static_cast<A>(variance));
    const A high = static_cast<A>(mean);
    const double scale = static_cast<double>(wide_of(gamma[c])) / cpu::sqrt_of(variance + eps);
    centers[c] = high;
    scales[c] = static_cast<A>(scale);
    shifts[c] = static_cast<A>(static_cast<double>(wide_of(beta[c])) -
                               (mean - static_cast<double>(high)) * scale);
  }
}

template <int N, class Activation, typename T, typename A>
inline void batch_norm_write(const T* x,
                             const A* centers,
                             const A* scales,
                             const A* shifts,
                             T* y,
                             int64_t elements,
                             int64_t channels) {
  for (int64_t i = grid_first() * N; i < elements; i += grid_stride() * N) {
    const int64_t c = i % channels;
    Pack<T, N> pack = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; ++k)
      narrow(pack.at[k],
             Activation::of(
                 cpu::fma_of(wide_of(pack.at[k]) - centers[c + k], scales[c + k], shifts[c + k])));
    store<N>(y + i, pack);
  }
}

// ---- gradient ----

/// What a deviation from the mean was multiplied by.
template <typename T, typename A>
inline void batch_norm_scale(
    const T* gamma, const T* variance, A* scales, int64_t channels, double eps) {
  for (int64_t c = grid_first(); c < channels; c += grid_stride())
    scales[c] = static_cast<A>(static_cast<double>(wide_of(gamma[c])) /
                               cpu::sqrt_of(static_cast<double>(wide_of(variance[c])) + eps));
}

/// Of each chunk of rows and channel: the sum of dz in `first`, of dz times the deviation in
/// `second`.
template <class Activation, typename T, typename A>
inline void batch_norm_grad_sums(const T* x,
                                 const T* dy,
                                 const T* means,
                                 const A* scales,
                                 const T* shifts,
                                 double* first,
                                 double* second,
                                 int64_t rows,
                                 int64_t channels,
                                 int64_t chunk) {
  const int64_t chunks = (rows + chunk - 1) / chunk;
  for (int64_t i = grid_first(); i < chunks * channels; i += grid_stride()) {
    const int64_t c = i % channels, begin = i / channels * chunk;
    const int64_t n = rows - begin < chunk ? rows - begin : chunk;
    const A mean = wide_of(means[c]), scale = scales[c], shift = wide_of(shifts[c]);
    const int64_t from = begin * channels + c;
    const auto deviation = [&](int64_t r) { return wide_of(x[from + r * channels]) - mean; };
    const auto dz = [&](int64_t r, A e) {
      const A gradient = wide_of(dy[from + r * channels]);
      return Activation::lets_through(cpu::fma_of(e, scale, shift)) ? gradient : A(0);
    };
    A one = A(0), two = A(0);
    int64_t row = 0;
#pragma unroll 2
    for (; row + kRowsTogether <= n; row += kRowsTogether) {
      const A e = deviation(row), f = deviation(row + 1);
      const A g = deviation(row + 2), h = deviation(row + 3);
      const A p = dz(row, e), q = dz(row + 1, f), r = dz(row + 2, g), s = dz(row + 3, h);
      one = one + ((p + q) + (r + s));
      two = two + (cpu::fma_of(p, e, q * f) + cpu::fma_of(r, g, s * h));
    }
    for (; row < n; ++row) {
      const A e = deviation(row), p = dz(row, e);
      one = one + p;
      two = cpu::fma_of(p, e, two);
    }
    first[i] = static_cast<double>(one);
    second[i] = static_cast<double>(two);
  }
}

/// dgamma and dbeta, and what dx is made of.
template <typename T, typename A>
inline void batch_norm_grad_combine(const double* first,
                                    const double* second,
                                    const T* variances,
                                    T* dgamma,
                                    T* dbeta,
                                    A* slopes,
                                    A* bases,
                                    int64_t rows,
                                    int64_t channels,
                                    int64_t chunk,
                                    double eps) {
  const int64_t chunks = (rows + chunk - 1) / chunk;
  for (int64_t c = grid_first(); c < channels; c += grid_stride()) {
    double sum = 0, product = 0;
#pragma unroll 8
    for (int64_t k = 0; k < chunks; ++k) {
      sum += first[k * channels + c];
      product += second[k * channels + c];
    }
    const double deviation = 1.0 / cpu::sqrt_of(static_cast<double>(wide_of(variances[c])) + eps);
    narrow(dgamma[c], static_cast<A>(product * deviation));
    narrow(dbeta[c], static_cast<A>(sum));
    const auto count = static_cast<double>(rows);
    slopes[c] = static_cast<A>(deviation * deviation * product / count);
    bases[c] = static_cast<A>(sum / count);
  }
}

template <int N, class Activation, typename T, typename A>
inline void batch_norm_grad_write(const T* x,
                                  const T* dy,
                                  const T* means,
                                  const A* scales,
                                  const T* shifts,
                                  const A* slopes,
                                  const A* bases,
                                  T* dx,
                                  int64_t elements,
                                  int64_t channels) {
  for (int64_t i = grid_first() * N; i < elements; i += grid_stride() * N) {
    const int64_t c = i % channels;
    const Pack<T, N> from = load<N>(x + i);
    Pack<T, N> pack = load<N>(dy + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A deviation = wide_of(from.at[k]) - wide_of(means[c + k]);
      const bool through =
          Activation::lets_through(cpu::fma_of(deviation, scales[c + k], wide_of(shifts[c + k])));
      const A dz = through ? wide_of(pack.at[k]) : A(0);
      narrow(pack.at[k], cpu::fma_of(-deviation, slopes[c + k], dz - bases[c + k]) * scales[c + k]);
    }
    store<N>(dx + i, pack);
  }
}

}  // namespace ridge::cuda
