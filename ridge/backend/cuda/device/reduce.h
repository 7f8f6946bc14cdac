// Reductions of one axis, and the place of the largest.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

inline float divided(float x, float by) { return x / by; }
inline double divided(double x, double by) { return x / by; }
inline int64_t divided(int64_t x, int64_t) { return x; }

/// x (rows, n) -> y (rows, pieces): a group of sixteen threads reduces a piece of 2048.
template <class Op, bool kIsAligned, typename From, typename To>
inline void reduce_rows(const From* x, To* y, int64_t rows, int64_t n, Sum<From> divisor) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int64_t pieces = (n + kPiece - 1) / kPiece, all_pieces = rows * pieces;
  const int64_t groups = static_cast<int64_t>(blockDim.x) / kGroup;
  for (int64_t first = blockIdx.x * groups; first < all_pieces; first += gridDim.x * groups) {
    const int64_t own = first + static_cast<int>(threadIdx.x) / kGroup;
    const int64_t begin = own % pieces * kPiece;
    const int64_t end = own >= all_pieces ? 0 : begin + kPiece < n ? begin + kPiece : n;
    const From* row = x + own / pieces * n;
    Reduced<Op, Sum<From>> all;
#pragma unroll 2
    for (int64_t i = begin + lane * 4; i < end; i += 4 * kGroup) {
      const Pack<From, 4> pack = kIsAligned ? load<4>(row + i) : load_some<4>(row + i, end - i);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (kIsAligned || i + k < end) all.add(k, wide_of(pack.at[k]));
    }
    const Sum<From> result = all.result();
    if (lane == 0 && own < all_pieces) narrow(y[own], divided(result, divisor));
  }
}

/// The same for rows of at most 16 elements, one thread a row: in the tree each element has a lane.
template <class Op, int kColumns, typename From, typename To>
inline void reduce_short_rows(const From* x, To* y, int64_t rows, Sum<From> divisor) {
  using A = Sum<From>;
  constexpr int kLanes = 16;
  static_assert(kColumns <= kLanes);
  const A none = Op::template neutral<A>();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows;
       row += stride) {
    A lanes[kLanes];
#pragma unroll
    for (int k = 0; k < kLanes; ++k)
      lanes[k] =
          k < kColumns ? Op::lanes(Op::lanes(none, wide_of(x[row * kColumns + k])), none) : none;
#pragma unroll
    for (int width = kLanes / 2; width > 0; width /= 2)
#pragma unroll
      for (int k = 0; k < width; ++k) lanes[k] = Op::fold(lanes[k], lanes[k + width]);
    narrow(y[row], divided(lanes[0], divisor));
  }
}

/// x (outer, n, inner) -> y (outer, chunks, inner): a thread reduces 64 rows of N neighbouring
/// columns, row after row.
template <class Op, int N, typename From, typename To>
inline void reduce_columns(
    const From* x, To* y, int64_t outer, int64_t n, int64_t inner, Sum<From> divisor) {
  constexpr int64_t kRows = 64;
  const int64_t chunks = (n + kRows - 1) / kRows, width = inner / N;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < outer * chunks * width;
       i += stride) {
    const int64_t chunk = i / width % chunks;
    const int64_t end = (chunk + 1) * kRows < n ? (chunk + 1) * kRows : n;
    const From* column = x + i / width / chunks * n * inner + i % width * N;
    Sum<From> all[N];
#pragma unroll
    for (int k = 0; k < N; ++k) all[k] = Op::template neutral<Sum<From>>();
#pragma unroll 8
    for (int64_t row = chunk * kRows; row < end; ++row) {
      const Pack<From, N> pack = load<N>(column + row * inner);
#pragma unroll
      for (int k = 0; k < N; ++k) all[k] = Op::lanes(all[k], wide_of(pack.at[k]));
    }
    Pack<To, N> results;
#pragma unroll
    for (int k = 0; k < N; ++k) narrow(results.at[k], divided(all[k], divisor));
    store<N>(y + i * N, results);
  }
}

// ---- argmax ----

/// A NaN is larger than any number.
template <typename T>
inline bool is_larger(T a, T b) {
  return a > b || (a != a && b == b);
}

/// An element and its place; of equal ones the first counts.
template <typename T>
struct Placed {
  T value;
  int64_t place;

  bool is_before(const Placed& other) const {
    return is_larger(value, other.value) || (!is_larger(other.value, value) && place < other.place);
  }
};

/// The first largest of a column of n elements, `stride` apart.
template <typename T>
inline int64_t argmax_column(const T* x, int64_t n, int64_t stride) {
  Sum<T> best = wide_of(x[0]);
  int64_t place = 0;
#pragma unroll 8
  for (int64_t i = 1; i < n; ++i) {
    const Sum<T> each = wide_of(x[i * stride]);
    const bool larger = is_larger(each, best);
    best = larger ? each : best;
    place = larger ? i : place;
  }
  return place;
}

/// Finds the place of the first largest before column `limit` in each row of x (rows, n); kWarps of
/// the block's 8 warps share a row.
template <int kWarps, typename T>
inline void argmax_rows(const T* x, int64_t* y, int64_t rows, int64_t n, int64_t limit) {
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kRows = 8 / kWarps;
  __shared__ Placed<Sum<T>> of_warps[8];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int part = warp % kWarps;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kRows; first < rows;
       first += static_cast<int64_t>(gridDim.x) * kRows) {
    const int64_t row = first + warp / kWarps;
    const T* from = x + (row < rows ? row : rows - 1) * n;
    Placed<Sum<T>> best = {wide_of(from[0]), 0};
    for (int64_t i = part * 32 + lane; i < limit; i += 32 * kWarps) {
      const Placed<Sum<T>> each = {wide_of(from[i]), i};
      if (each.is_before(best)) best = each;
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
      const Placed<Sum<T>> other = {__shfl_down_sync(kAll, best.value, by, 32),
                                    __shfl_down_sync(kAll, best.place, by, 32)};
      if (other.is_before(best)) best = other;
    }
    if (kWarps > 1) {
      if (lane == 0) of_warps[warp] = best;
      __syncthreads();
#pragma unroll
      for (int k = 1; k < kWarps; ++k)
        if (of_warps[k].is_before(best)) best = of_warps[k];
      __syncthreads();
    }
    if (lane == 0 && part == 0 && row < rows) y[row] = best.place;
  }
}

}  // namespace ridge::cuda
