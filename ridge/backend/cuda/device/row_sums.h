// Sums over a row, for the ops that are made of some of them: a piece of the row is summed by
// sixteen threads as device/kernel.h says, the pieces one after the other in f64.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

/// How a row of T is read: by kGroups groups of sixteen threads, 1 or all 16 of the block; with
/// kIsAligned it is a multiple of four elements. All threads of the block call everything together.
template <typename T, int kGroupsOfRow, bool kIsAlignedRow>
struct Row {
  using Element = T;
  using A = Sum<T>;
  static constexpr int kGroups = kGroupsOfRow;
  static constexpr int kRowsAtOnce = 16 / kGroups;

  const T* x;
  int64_t n;    ///< Elements; 0 where the group has no row.
  int64_t all;  ///< Elements of any row.

  static int own() { return kGroups == 1 ? static_cast<int>(threadIdx.x) / kGroup : 0; }
  static int lane() { return static_cast<int>(threadIdx.x) % kGroup; }
  static int group() { return kGroups == 1 ? 0 : static_cast<int>(threadIdx.x) / kGroup; }
  /// The number of the thread among those that share the row.
  static int thread() { return group() * kGroup + lane(); }
  static Pack<T, 4> four(const T* from, int64_t count) {
    return kIsAlignedRow ? load<4>(from) : load_some<4>(from, count);
  }
  static void put(T* to, const Pack<T, 4>& pack, int64_t count) {
    if (kIsAlignedRow)
      store<4>(to, pack);
    else
      store_some<4>(to, pack, count);
  }

  /// Sums f(element) over pieces of kPieceSize elements.
  template <int kPieceSize, class F>
  double sum(F f) const {
    __shared__ A results[16];
    const int64_t pieces = (all + kPieceSize - 1) / kPieceSize;
    double total = 0;
#pragma unroll 1
    for (int64_t first = 0; first < pieces; first += kGroups) {
      const int64_t begin = (first + group()) * kPieceSize;
      const int64_t end = begin + kPieceSize < n ? begin + kPieceSize : n;
      Reduced<Plus, A> piece;
#pragma unroll 2
      for (int64_t i = begin + lane() * 4; i < end; i += 4 * kGroup) {
        const Pack<T, 4> pack = four(x + i, end - i);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (kIsAlignedRow || i + k < end) piece.add(k, f(wide_of(pack.at[k])));
      }
      const A own = piece.result();
      if (kGroups == 1) {
        total += static_cast<double>(own);
        continue;
      }
      if (lane() == 0) results[group()] = own;
      __syncthreads();
      for (int k = 0; k < kGroups && first + k < pieces; ++k)
        total += static_cast<double>(results[k]);
      __syncthreads();
    }
    return total;
  }

  /// The largest element; NaN where one is. Which zero it is may differ from the CPU's.
  A largest() const {
    __shared__ A results[16];
    A best = Larger::neutral<A>();
#pragma unroll 2
    for (int64_t i = thread() * 4; i < n; i += 4 * kGroup * kGroups) {
      const Pack<T, 4> pack = four(x + i, n - i);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (kIsAlignedRow || i + k < n) best = larger(best, wide_of(pack.at[k]));
    }
#pragma unroll
    for (int by = kGroup / 2; by > 0; by /= 2)
      best = larger(best, __shfl_down_sync(0xffffffffu, best, by, kGroup));
    best = __shfl_sync(0xffffffffu, best, 0, kGroup);
    if (kGroups == 1) return best;
    if (lane() == 0) results[group()] = best;
    __syncthreads();
    for (int k = 0; k < kGroups; ++k) best = larger(best, results[k]);
    __syncthreads();
    return best;
  }

  /// Writes f(element, its column) of every element to y, the row's.
  template <class F>
  void write(T* y, F f) const {
#pragma unroll 2
    for (int64_t i = thread() * 4; i < n; i += 4 * kGroup * kGroups) {
      Pack<T, 4> pack = four(x + i, n - i);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (kIsAlignedRow || i + k < n) narrow(pack.at[k], f(wide_of(pack.at[k]), i + k));
      put(y + i, pack, n - i);
    }
  }
};

/// A row of so many elements, a multiple of 64, that a warp reads once and holds in registers. Sums
/// are those of Row.
template <typename T, int kColumns>
struct HeldRow {
  using Element = T;
  using A = Sum<T>;
  static constexpr int kRowsAtOnce = 8, kPacks = kColumns / 64;

  const T* x;
  int64_t n;  ///< Elements; 0 where the warp has no row.
  int64_t all;
  Pack<T, 2> held[kPacks];

  HeldRow(const T* row, int64_t count, int64_t columns) : x(row), n(count), all(columns) {
#pragma unroll
    for (int j = 0; j < kPacks; ++j) held[j] = count > 0 ? load<2>(row + column(j)) : Pack<T, 2>{};
  }
  static int own() { return static_cast<int>(threadIdx.x) / 32; }
  static int column(int j) { return j * 64 + static_cast<int>(threadIdx.x) % 32 * 2; }

  template <int kPieceSize, class F>
  double sum(F f) const {
    static_assert(kColumns <= kPieceSize, "several pieces");
    Reduced<Plus, A, 2> piece;
#pragma unroll
    for (int j = 0; j < kPacks; ++j)
#pragma unroll
      for (int k = 0; k < 2; ++k) piece.add(k, f(wide_of(held[j].at[k])));
    return 0.0 + static_cast<double>(piece.result());
  }

  template <class F>
  void write(T* y, F f) const {
    if (n == 0) return;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      Pack<T, 2> pack;
#pragma unroll
      for (int k = 0; k < 2; ++k) narrow(pack.at[k], f(wide_of(held[j].at[k]), column(j) + k));
      store<2>(y + column(j), pack);
    }
  }
};

/// Calls body(row, its number) for all rows of x (rows, n), with row.n == 0 for one beyond.
template <class R, class Body>
inline void for_each_row(const typename R::Element* x, int64_t rows, int64_t n, Body body) {
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * R::kRowsAtOnce; first < rows;
       first += static_cast<int64_t>(gridDim.x) * R::kRowsAtOnce) {
    const int64_t number = first + R::own();
    const R row{x + number * n, number < rows ? n : 0, n};
    body(row, number);
  }
}

}  // namespace ridge::cuda
