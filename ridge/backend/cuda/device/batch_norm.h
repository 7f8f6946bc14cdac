// Batch norm over x (rows, channels) and its gradient, step by step, in the order of
// backend/cpu/isa/batch_norm.cc: the same bits. Printed kernels include functions.h of
// backend/cpu/isa before this, and norm_activations.h.
//
// A sum over a chunk of rows is a chain, and there are few chunks; what goes into the links of the
// chain is not. So the threads of a block make links side by side, N columns of x at a time, and
// then one thread a chain adds them up. T is what images are stored in, C what channels are, and A
// what is computed in.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

// Rows taken together in the sums; and how many are summed before the sum goes on in f64.
inline constexpr int64_t kRowsTogether = 4, kRowsSummed = 64;

/// The first of the work of this thread, and the step to the next.
inline int64_t grid_first() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
inline int64_t grid_stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Chunks of rows by columns of N channels: the items of the sums, in this order.
template <int N>
struct Items {
  int64_t rows, channels, chunk;

  int64_t packs() const { return channels / N; }
  int64_t count() const { return (rows + chunk - 1) / chunk * packs(); }
  int64_t row(int64_t item) const { return item / packs() * chunk; }
  int64_t column(int64_t item) const { return item % packs() * N; }
  int64_t size(int64_t item) const {
    const int64_t left = rows - row(item);
    return left < chunk ? left : chunk;
  }
  /// Where the sums of the item's first column lie.
  int64_t at(int64_t item) const { return item / packs() * channels + column(item); }
};

// ---- forward ----

/// Adds up to kRowsSummed rows of N columns: their deviations from `center` and the squares of
/// those.
template <int N, typename T, typename A>
inline void add_deviations(
    const T* from, int64_t n, int64_t channels, const A* center, A* one, A* two) {
  int64_t r = 0;
#pragma unroll 4
  for (; r + kRowsTogether <= n; r += kRowsTogether) {
    Pack<T, N> rows[kRowsTogether];
#pragma unroll
    for (int i = 0; i < kRowsTogether; ++i) rows[i] = load<N>(from + (r + i) * channels);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A e = wide_of(rows[0].at[k]) - center[k], f = wide_of(rows[1].at[k]) - center[k];
      const A g = wide_of(rows[2].at[k]) - center[k], h = wide_of(rows[3].at[k]) - center[k];
      one[k] = one[k] + ((e + f) + (g + h));
      two[k] = two[k] + (cpu::fma_of(e, e, f * f) + cpu::fma_of(g, g, h * h));
    }
  }
  for (; r < n; ++r) {
    const Pack<T, N> row = load<N>(from + r * channels);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A e = wide_of(row.at[k]) - center[k];
      one[k] = one[k] + e;
      two[k] = cpu::fma_of(e, e, two[k]);
    }
  }
}

/// The mean of the first few of n rows: near enough to that of all.
template <int N, typename T, typename A>
inline void find_center(const T* from, int64_t n, int64_t channels, A* center) {
  const int few = n < 8 ? static_cast<int>(n) : 8;
#pragma unroll
  for (int r = 0; r < 8; ++r)
    if (r < few) {
      const Pack<T, N> row = load<N>(from + r * channels);
#pragma unroll
      for (int k = 0; k < N; ++k)
        center[k] = r == 0 ? wide_of(row.at[k]) : center[k] + wide_of(row.at[k]);
    }
#pragma unroll
  for (int k = 0; k < N; ++k) center[k] = center[k] / static_cast<A>(few);
}

/// Of each chunk of rows and channel: the mean in `first`, the squared deviations in `second`. A
/// thread takes kRowsSummed rows of an item; kParts of them are a chunk.
template <int N, int kParts, typename T>
inline void batch_norm_sums(
    const T* x, double* first, double* second, int64_t rows, int64_t channels, int64_t chunk) {
  using A = Sum<T>;
  constexpr int kThreads = 128, kItems = kThreads / kParts;
  __shared__ A ones[N][kThreads], twos[N][kThreads];
  const Items<N> items{rows, channels, chunk};
  const int part = static_cast<int>(threadIdx.x) / kItems;
  const int own = static_cast<int>(threadIdx.x) % kItems;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kItems;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kItems; base < items.count();
       base += step) {
    const int64_t item = base + own;
    const bool is_item = item < items.count();
    const int64_t n = is_item ? items.size(item) : 0;
    const int64_t begin = part * kRowsSummed;
    A center[N] = {}, one[N] = {}, two[N] = {};
    if (begin < n) {
      const T* from = x + items.row(item) * channels + items.column(item);
      find_center<N>(from, n, channels, center);
      const int64_t left = n - begin;
      add_deviations<N>(from + begin * channels,
                        left < kRowsSummed ? left : kRowsSummed,
                        channels,
                        center,
                        one,
                        two);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      ones[k][threadIdx.x] = one[k];
      twos[k][threadIdx.x] = two[k];
    }
    __syncthreads();
    if (part == 0 && is_item) {
      const auto count = static_cast<double>(n);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        double sum = 0, square = 0;
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          if (p * kRowsSummed >= n) break;
          sum += static_cast<double>(ones[k][p * kItems + own]);
          square += static_cast<double>(twos[k][p * kItems + own]);
        }
        const double missed = sum / count;
        first[items.at(item) + k] = static_cast<double>(center[k]) + missed;
        second[items.at(item) + k] = cpu::variance_of(square / count, missed) * count;
      }
    }
    __syncthreads();
  }
}

// ---- the combination of chunks ----

// A block combines the chunks of some channels, kStaged at a time: brought into shared memory
// together, since what adds them up in turn would wait for each.
inline constexpr int kCombined = 8, kStaged = 128;

struct Staged {
  double first[kStaged][kCombined], second[kStaged][kCombined];

  /// Chunks [begin, begin + kStaged) of the channels from `channel` on. All threads of the block.
  void bring(const double* firsts,
             const double* seconds,
             int64_t begin,
             int64_t chunks,
             int64_t channel,
             int64_t channels) {
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) % kCombined;
    const int step = static_cast<int>(blockDim.x) / kCombined;
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.x) / kCombined; row < kStaged; row += step)
      if (begin + row < chunks && channel + column < channels) {
        const int64_t at = (begin + row) * channels + channel + column;
        first[row][column] = firsts[at];
        second[row][column] = seconds[at];
      }
    __syncthreads();
  }
};

/// All chunks together, one after the other (Chan, Golub and LeVeque, "Algorithms for computing the
/// sample variance", 1983): mean and variance, and what results are made of. What rounding takes
/// off the mean goes into the shift.
template <typename C, typename A>
inline void batch_norm_combine(const double* first,
                               const double* second,
                               const C* gamma,
                               const C* beta,
                               C* means,
                               C* variances,
                               A* centers,
                               A* scales,
                               A* shifts,
                               int64_t rows,
                               int64_t channels,
                               int64_t chunk,
                               double eps) {
  __shared__ Staged staged;
  __shared__ double shares[kStaged], weights[kStaged];
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kCombined;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kCombined; base < channels;
       base += stride) {
    const int64_t c = base + threadIdx.x;
    const bool combines = threadIdx.x < kCombined && c < channels;
    double mean = 0, square = 0;
    for (int64_t done = 0; done < chunks; done += kStaged) {
      staged.bring(first, second, done, chunks, base, channels);
      for (int k = static_cast<int>(threadIdx.x); k < kStaged; k += static_cast<int>(blockDim.x)) {
        const int64_t begin = (done + k) * chunk;
        const int64_t n = rows - begin < chunk ? rows - begin : chunk;
        shares[k] = static_cast<double>(n) / static_cast<double>(begin + n);
        weights[k] = shares[k] * static_cast<double>(begin);
      }
      __syncthreads();
      if (!combines) continue;
      const int n = chunks - done < kStaged ? static_cast<int>(chunks - done) : kStaged;
      int k = 0;
      if (done == 0) {
        mean = staged.first[0][threadIdx.x];
        square = staged.second[0][threadIdx.x];
        k = 1;
      }
#pragma unroll 4
      for (; k < n; ++k) {
        const double step = staged.first[k][threadIdx.x] - mean;
        mean += step * shares[k];
        square += staged.second[k][threadIdx.x] + step * step * weights[k];
      }
    }
    if (!combines) continue;
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
    const Pack<A, N> center = load<N>(centers + c), scale = load<N>(scales + c);
    const Pack<A, N> shift = load<N>(shifts + c);
#pragma unroll
    for (int k = 0; k < N; ++k)
      narrow(pack.at[k],
             Activation::of(
                 cpu::fma_of(wide_of(pack.at[k]) - center.at[k], scale.at[k], shift.at[k])));
    store<N>(y + i, pack);
  }
}

// ---- gradient ----

/// What a deviation from the mean was multiplied by.
template <typename C>
inline Sum<C> scale_of(C gamma, C variance, double eps) {
  return static_cast<Sum<C>>(static_cast<double>(wide_of(gamma)) /
                             cpu::sqrt_of(static_cast<double>(wide_of(variance)) + eps));
}

/// What is known of N channels, and what follows of it for an element of theirs.
template <int N, class Activation, typename C>
struct ChannelForm {
  using A = Sum<C>;
  Pack<C, N> means, shifts;
  Pack<A, N> scales;

  template <typename T>
  A deviation(T x, int k) const {
    return wide_of(x) - wide_of(means.at[k]);
  }
  template <typename D>
  A dz(D dy, A deviation, int k) const {
    const A z = cpu::fma_of(deviation, scales.at[k], wide_of(shifts.at[k]));
    return Activation::lets_through(z) ? wide_of(dy) : A(0);
  }
};

/// Of each chunk of rows and channel: the sum of dz in `first`, of dz times the deviation in
/// `second`. A link is kRowsTogether rows; threads make kMade of an item each, then a thread adds
/// the links of one sum.
template <int N, class Activation, typename T, typename D, typename C>
inline void batch_norm_grad_sums(const T* x,
                                 const D* dy,
                                 const C* gamma,
                                 const C* shifts,
                                 const C* means,
                                 const C* variances,
                                 double* first,
                                 double* second,
                                 int64_t rows,
                                 int64_t channels,
                                 int64_t chunk,
                                 double eps) {
  using A = Sum<C>;
  constexpr int kItems = 16, kMakers = 16, kMade = 2, kLinks = kMakers * kMade;
  __shared__ A links[2][kLinks][N][kItems], scales[N][kItems];
  const Items<N> items{rows, channels, chunk};
  const int own = static_cast<int>(threadIdx.x) % kItems;
  const int maker = static_cast<int>(threadIdx.x) / kItems;
  // As one that adds: which sum, of which column of the item.
  const int sum = maker / N, column = maker % N;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kItems;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kItems; base < items.count();
       base += step) {
    const int64_t item = base + own;
    const bool is_item = item < items.count();
    const int64_t c = is_item ? items.column(item) : 0;
    const int64_t n = is_item ? items.size(item) : 0;
    const int64_t from = is_item ? items.row(item) * channels + c : 0;
    if (maker < N) scales[maker][own] = scale_of(gamma[c + maker], variances[c + maker], eps);
    __syncthreads();
    ChannelForm<N, Activation, C> form{load<N>(means + c), load<N>(shifts + c), {}};
#pragma unroll
    for (int k = 0; k < N; ++k) form.scales.at[k] = scales[k][own];
    const int64_t links_of_item = n / kRowsTogether;
    A total = A(0);
    // As many rounds for all items of the block, whose threads meet.
    for (int64_t done = 0; done * kRowsTogether < chunk; done += kLinks) {
#pragma unroll
      for (int m = 0; m < kMade; ++m) {
        const int link = m * kMakers + maker;
        if (done + link >= links_of_item) continue;
        const int64_t at = from + (done + link) * kRowsTogether * channels;
        Pack<T, N> xs[kRowsTogether];
        Pack<D, N> dys[kRowsTogether];
#pragma unroll
        for (int i = 0; i < kRowsTogether; ++i) {
          xs[i] = load<N>(x + at + i * channels);
          dys[i] = load<N>(dy + at + i * channels);
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const A e = form.deviation(xs[0].at[k], k), f = form.deviation(xs[1].at[k], k);
          const A g = form.deviation(xs[2].at[k], k), h = form.deviation(xs[3].at[k], k);
          const A p = form.dz(dys[0].at[k], e, k), q = form.dz(dys[1].at[k], f, k);
          const A r = form.dz(dys[2].at[k], g, k), s = form.dz(dys[3].at[k], h, k);
          links[0][link][k][own] = (p + q) + (r + s);
          links[1][link][k][own] = cpu::fma_of(p, e, q * f) + cpu::fma_of(r, g, s * h);
        }
      }
      __syncthreads();
      if (sum < 2) {
        const int64_t left = links_of_item - done;
        const int last = left < kLinks ? static_cast<int>(left) : kLinks;
#pragma unroll 8
        for (int i = 0; i < last; ++i) total = total + links[sum][i][column][own];
      }
      __syncthreads();
    }
    if (sum < 2 && is_item) {
      const ChannelForm<1, Activation, C> alone{
          load<1>(means + c + column), load<1>(shifts + c + column), {{scales[column][own]}}};
      for (int64_t r = links_of_item * kRowsTogether; r < n; ++r) {
        const int64_t at = from + r * channels + column;
        const A e = alone.deviation(x[at], 0), p = alone.dz(dy[at], e, 0);
        total = sum == 0 ? total + p : cpu::fma_of(p, e, total);
      }
      (sum == 0 ? first : second)[items.at(item) + column] = static_cast<double>(total);
    }
    __syncthreads();
  }
}

/// dgamma and dbeta, and what dx is made of.
template <typename C, typename A>
inline void batch_norm_grad_combine(const double* first,
                                    const double* second,
                                    const C* gamma,
                                    const C* variances,
                                    C* dgamma,
                                    C* dbeta,
                                    A* scales,
                                    A* slopes,
                                    A* bases,
                                    int64_t rows,
                                    int64_t channels,
                                    int64_t chunk,
                                    double eps) {
  __shared__ Staged staged;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kCombined;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kCombined; base < channels;
       base += stride) {
    const int64_t c = base + threadIdx.x;
    const bool combines = threadIdx.x < kCombined && c < channels;
    double sum = 0, product = 0;
    for (int64_t done = 0; done < chunks; done += kStaged) {
      staged.bring(first, second, done, chunks, base, channels);
      if (!combines) continue;
      const int n = chunks - done < kStaged ? static_cast<int>(chunks - done) : kStaged;
#pragma unroll 8
      for (int k = 0; k < n; ++k) {
        sum += staged.first[k][threadIdx.x];
        product += staged.second[k][threadIdx.x];
      }
    }
    if (!combines) continue;
    const double deviation = 1.0 / cpu::sqrt_of(static_cast<double>(wide_of(variances[c])) + eps);
    narrow(dgamma[c], static_cast<A>(product * deviation));
    narrow(dbeta[c], static_cast<A>(sum));
    scales[c] = scale_of(gamma[c], variances[c], eps);
    const auto count = static_cast<double>(rows);
    slopes[c] = static_cast<A>(deviation * deviation * product / count);
    bases[c] = static_cast<A>(sum / count);
  }
}

template <int N, class Activation, typename T, typename D, typename C, typename A>
inline void batch_norm_grad_write(const T* x,
                                  const D* dy,
                                  const C* means,
                                  const A* scales,
                                  const C* shifts,
                                  const A* slopes,
                                  const A* bases,
                                  T* dx,
                                  int64_t elements,
                                  int64_t channels) {
  for (int64_t i = grid_first() * N; i < elements; i += grid_stride() * N) {
    const int64_t c = i % channels;
    // Tables are read as packs: a number at a time they would take longer than the images.
    const ChannelForm<N, Activation, C> form{
        load<N>(means + c), load<N>(shifts + c), load<N>(scales + c)};
    const Pack<A, N> slope = load<N>(slopes + c), base = load<N>(bases + c);
    Pack<T, N> pack = load<N>(x + i);
    const Pack<D, N> from = load<N>(dy + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A deviation = form.deviation(pack.at[k], k);
      const A dz = form.dz(from.at[k], deviation, k);
      narrow(pack.at[k], cpu::fma_of(-deviation, slope.at[k], dz - base.at[k]) * form.scales.at[k]);
    }
    store<N>(dx + i, pack);
  }
}

}  // namespace ridge::cuda
