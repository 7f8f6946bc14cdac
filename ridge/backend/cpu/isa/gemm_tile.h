// The register tile of the packed GEMM, written once over a vector type V and compiled by one file
// for each element type and instruction set. Everything here has internal linkage, as those files
// share no code.
#pragma once

#include <immintrin.h>

#include <utility>

#include "ridge/backend/cpu/isa/gemm_kernels.h"

namespace ridge::cpu {
namespace {

// Adds sums (rows, kColumns) to C, or stores them, one by one: for tiles that end inside a vector
// and for a C whose columns are not contiguous.
template <typename T>
void put_partial(const GemmTile<T>& t, const T* sums, int columns) {
  for (int r = 0; r < t.rows; ++r) {
    T* to = t.c + r * t.row_stride;
    for (int j = 0; j < t.cols; ++j, to += t.col_stride)
      *to = t.add ? *to + sums[r * columns + j] : sums[r * columns + j];
  }
}

// One step of depth. Inlined always: the sums must stay in registers.
template <class V, int kRows, int kVectors>
[[gnu::always_inline]] inline void step(typename V::Reg (&sum)[kRows][kVectors],
                                        const typename V::Elem*& a,
                                        const typename V::Elem*& b) {
  typename V::Reg right[kVectors];
  for (int v = 0; v < kVectors; ++v) right[v] = V::load(b + v * V::kLanes);
  for (int r = 0; r < kRows; ++r) {
    const typename V::Reg left = V::broadcast(a + r);
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::fma(left, right[v], sum[r][v]);
  }
  a += kRows;
  b += V::kVectors * V::kLanes;
}

template <class V, int kRows, int kVectors>
void compute(const GemmTile<typename V::Elem>& t) {
  using T = typename V::Elem;
  constexpr int kColumns = kVectors * V::kLanes;
  typename V::Reg sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::zero();
  const bool whole = t.col_stride == 1 && t.cols == kColumns;
  const T* a = t.a;
  const T* b = t.b;
  int64_t left = t.depth;

  // C is wanted only at the end, and fetched now. One row a step: all at once, they would keep
  // the loads of A and B waiting.
  if (whole && left >= kRows) {
    left -= kRows;
    constexpr int kLine = 64 / sizeof(T);
    for (int r = 0; r < kRows; ++r) {
      const T* row = t.c + r * t.row_stride;
      for (int j = 0; j < kColumns; j += kLine) V::prefetch(row + j);
      V::prefetch(row + kColumns - 1);  // where the row is not aligned
      step<V, kRows, kVectors>(sum, a, b);
    }
  }
  for (; left > 0; --left) step<V, kRows, kVectors>(sum, a, b);

  if (!whole) {
    alignas(64) T sums[kRows * kColumns];
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) V::store(sums + r * kColumns + v * V::kLanes, sum[r][v]);
    put_partial(t, sums, kColumns);
    return;
  }
  T* c = t.c;
  const int64_t row_stride = t.row_stride;
  if (t.add)
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = V::add(V::load(c + r * row_stride + v * V::kLanes), sum[r][v]);
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) V::store(c + r * row_stride + v * V::kLanes, sum[r][v]);
}

// A kernel for every number of rows, so that a short tile pays for no rows that it does not have.
template <class V, int kVectors, int... kRow>
void compute_rows(const GemmTile<typename V::Elem>& t, std::integer_sequence<int, kRow...>) {
  using Compute = void (*)(const GemmTile<typename V::Elem>&);
  static constexpr Compute kByRows[] = {compute<V, kRow + 1, kVectors>...};
  kByRows[t.rows - 1](t);
}

template <class V>
void gemm_tile(const GemmTile<typename V::Elem>& t) {
  static_assert(V::kVectors == 2);
  const std::make_integer_sequence<int, V::kRows> rows;
  if (t.cols <= V::kLanes)
    compute_rows<V, 1>(t, rows);
  else
    compute_rows<V, 2>(t, rows);
}

}  // namespace
}  // namespace ridge::cpu
