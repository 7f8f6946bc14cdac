// The register tile of the packed GEMM, written once over a vector type V and compiled by one file
// for each element type and instruction set. Everything here has internal linkage, as those files
// share no code.
#pragma once

#include <immintrin.h>

#include <utility>

#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/backend/cpu/isa/row_fetch.h"

namespace ridge::cpu {
namespace {

// Adds sums (rows, kColumns) to a C whose columns are not contiguous, or stores them, one by one.
template <typename T>
void put_apart(const GemmTile<T>& t, const T* sums, int columns) {
  for (int r = 0; r < t.rows; ++r) {
    T* to = t.c + r * t.row_stride;
    for (int j = 0; j < t.cols; ++j, to += t.col_stride)
      *to = t.add ? *to + sums[r * columns + j] : sums[r * columns + j];
  }
}

// Calls body(Index<0>{}), ..., body(Index<n - 1>{}). Where registers are kept in an array, only
// indices that the compiler knows from the start keep it out of memory (g++ 12).
template <int i>
struct Index {
  static constexpr int kValue = i;
};

template <class Body, int... i>
[[gnu::always_inline]] inline void each(std::integer_sequence<int, i...>, Body body) {
  (body(Index<i>{}), ...);
}

template <int n, class Body>
[[gnu::always_inline]] inline void unrolled(Body body) {
  each(std::make_integer_sequence<int, n>{}, body);
}

// Rows of A in groups of four, which two strides reach from one pointer each.
template <typename T, int kRows, bool kApart>
struct Rows {
  static constexpr int kGroups = kApart ? (kRows + 3) / 4 : 1;
  const T* group[kGroups];
  int64_t stride;
  int64_t three_strides;

  explicit Rows(const GemmTile<T>& t) : stride(t.a_row), three_strides(3 * t.a_row) {
    for (int g = 0; g < kGroups; ++g) group[g] = t.a + 4 * g * t.a_row;
  }
  const T* row(int r) const {
    if constexpr (!kApart) return group[0] + r;
    return group[r / 4] + (r % 4 == 3 ? three_strides : r % 4 * stride);
  }
  void advance(int64_t step) {
    for (int g = 0; g < kGroups; ++g) group[g] += step;
  }
};

// One step of depth. Inlined always: the sums must stay in registers.
template <class V, int kRows, int kVectors, bool kApart, bool kCopy>
[[gnu::always_inline]] inline void step(typename V::Reg (&sum)[kRows][kVectors],
                                        Rows<typename V::Elem, kRows, kApart>& a,
                                        const typename V::Elem*& b,
                                        typename V::Elem*& copy,
                                        const GemmTile<typename V::Elem>& t) {
  typename V::Reg right[kVectors];
  unrolled<kVectors>([&](auto v) { right[v.kValue] = V::load(b + v.kValue * V::kLanes); });
  if constexpr (kCopy) {
    unrolled<kVectors>([&](auto v) { V::store(copy + v.kValue * V::kLanes, right[v.kValue]); });
    copy += kVectors * V::kLanes;
  }
  unrolled<kRows>([&](auto r) {
    const typename V::Reg left = V::broadcast(a.row(r.kValue));
    unrolled<kVectors>([&](auto v) {
      sum[r.kValue][v.kValue] = V::fma(left, right[v.kValue], sum[r.kValue][v.kValue]);
    });
  });
  a.advance(t.a_step);
  b += t.b_step;
}

inline void fetch_line(GemmAhead& ahead) {
  GemmAhead::Rows& rows = ahead.now;
  // Few lines, long before they are wanted; but what does not come then holds up a whole tile.
  constexpr FetchInto kInto = FetchInto::kFirst;
  if (rows.count == 0 || !fetch_line<kInto>(rows.at, ahead.offset, rows.bytes, rows.stride)) return;
  if (--rows.count > 0) return;
  rows = ahead.then;
  ahead.then.count = 0;
}

template <class V, int kRows, int kVectors, bool kApart, bool kCopy>
void compute(const GemmTile<typename V::Elem>& t) {
  using T = typename V::Elem;
  constexpr int kColumns = kVectors * V::kLanes;
  typename V::Reg sum[kRows][kVectors];
  const auto each_sum = [&](auto body) {
    unrolled<kRows>([&](auto r) {
      unrolled<kVectors>([&](auto v) { body(sum[r.kValue][v.kValue], r.kValue, v.kValue); });
    });
  };
  each_sum([](auto& x, int, int) { x = V::zero(); });
  Rows<T, kRows, kApart> a(t);
  const T* b = t.b;
  T* copy = t.copy;
  int64_t left = t.depth;

  // Lines for later are fetched a few at a time: many at once would fill the queue of misses. C is
  // wanted only at the end: a row of it with each of the last blocks, or it would leave the
  // first-level cache again before.
  constexpr int64_t kBlock = 8;
  const int64_t lines = t.ahead == nullptr ? 0 : t.ahead->lines * kBlock / t.depth + 1;
  int fetched = t.col_stride == 1 ? 0 : kRows;
  for (int64_t block = kBlock; left > 0; left -= block) {
    for (int64_t i = 0; i < lines; ++i) fetch_line(*t.ahead);
    for (; fetched < kRows - (left - 1) / kBlock; ++fetched) {
      constexpr int kLine = 64 / sizeof(T);
      const T* row = t.c + fetched * t.row_stride;
      for (int j = 0; j < kColumns; j += kLine) V::prefetch(row + j);
      V::prefetch(row + kColumns - 1);  // the last line, for rows that are not aligned
    }
    if (left < block) block = left;
    for (int64_t i = 0; i < block; ++i) step<V, kRows, kVectors, kApart, kCopy>(sum, a, b, copy, t);
  }

  if (t.col_stride != 1) {
    alignas(64) T sums[kRows * kColumns];
    each_sum([&](auto& x, int r, int v) { V::store(sums + r * kColumns + v * V::kLanes, x); });
    put_apart(t, sums, kColumns);
    return;
  }
  // Row after row: of rows a multiple of a page apart the first-level cache holds few at a time.
  const auto at = [&](int r, int v) { return t.c + r * t.row_stride + v * V::kLanes; };
  if (t.cols == kColumns) {
    if (t.add)
      each_sum([&](auto& x, int r, int v) { V::store(at(r, v), V::add(V::load(at(r, v)), x)); });
    else
      each_sum([&](auto& x, int r, int v) { V::store(at(r, v), x); });
    return;
  }
  // The tile ends inside its last vector.
  constexpr int kLast = kVectors - 1;
  const auto some = V::first(t.cols - kLast * V::kLanes);
  if (t.add)
    each_sum([&](auto& x, int r, int v) {
      if (v < kLast)
        V::store(at(r, v), V::add(V::load(at(r, v)), x));
      else
        V::store(at(r, v), V::add(V::load(at(r, v), some), x), some);
    });
  else
    each_sum([&](auto& x, int r, int v) {
      if (v < kLast)
        V::store(at(r, v), x);
      else
        V::store(at(r, v), x, some);
    });
}

// A kernel for every number of rows, so that a short tile pays for no rows that it does not have.
template <class V, int kVectors, bool kApart, bool kCopy, int... kRow>
void compute_rows(const GemmTile<typename V::Elem>& t, std::integer_sequence<int, kRow...>) {
  using Compute = void (*)(const GemmTile<typename V::Elem>&);
  static constexpr Compute kByRows[] = {compute<V, kRow + 1, kVectors, kApart, kCopy>...};
  kByRows[t.rows - 1](t);
}

template <class V, bool kApart>
void compute_tile(const GemmTile<typename V::Elem>& t) {
  static_assert(V::kVectors == 2);
  const std::make_integer_sequence<int, V::kRows> rows;
  if (t.cols <= V::kLanes)
    compute_rows<V, 1, kApart, false>(t, rows);
  else if (t.copy == nullptr)
    compute_rows<V, 2, kApart, false>(t, rows);
  else
    compute_rows<V, 2, kApart, true>(t, rows);
}

template <class V>
void gemm_tile(const GemmTile<typename V::Elem>& t) {
  if (t.a_row == 1)
    compute_tile<V, false>(t);
  else
    compute_tile<V, true>(t);
}

template <class V, int kRows>
void compute_thin(const GemmThinTile<typename V::Elem>& t) {
  using T = typename V::Elem;
  constexpr int kColumns = V::kVectors * V::kLanes;
  constexpr int kLine = 64 / sizeof(T);
  typename V::Reg sum[kRows][V::kVectors];
  const auto each_sum = [&](auto body) {
    unrolled<kRows>([&](auto r) {
      unrolled<V::kVectors>([&](auto v) {
        body(sum[r.kValue][v.kValue], t.sums + r.kValue * kColumns + v.kValue * V::kLanes);
      });
    });
  };
  if (t.resume)
    each_sum([](auto& x, T* at) { x = V::load(at); });
  else
    each_sum([](auto& x, T*) { x = V::zero(); });
  const T *a = t.a, *b = t.b, *ahead = t.ahead;
  for (int64_t p = 0; p < t.depth; ++p) {
    V::prefetch_far(ahead);
    V::prefetch_far(ahead + kLine);
    ahead += t.ahead_step;
    typename V::Reg right[V::kVectors];
    unrolled<V::kVectors>([&](auto v) { right[v.kValue] = V::load(b + v.kValue * V::kLanes); });
    unrolled<kRows>([&](auto r) {
      const typename V::Reg left = V::broadcast(a + r.kValue);
      unrolled<V::kVectors>([&](auto v) {
        sum[r.kValue][v.kValue] = V::fma(left, right[v.kValue], sum[r.kValue][v.kValue]);
      });
    });
    a += kRows;
    b += t.b_step;
  }
  each_sum([](auto& x, T* at) { V::store(at, x); });
}

template <class V, int... kRow>
void compute_thin_rows(const GemmThinTile<typename V::Elem>& t,
                       std::integer_sequence<int, kRow...>) {
  using Compute = void (*)(const GemmThinTile<typename V::Elem>&);
  static constexpr Compute kByRows[] = {compute_thin<V, kRow + 1>...};
  kByRows[t.rows - 1](t);
}

template <class V>
void gemm_thin_tile(const GemmThinTile<typename V::Elem>& t) {
  compute_thin_rows<V>(t, std::make_integer_sequence<int, V::kRows>{});
}

}  // namespace
}  // namespace ridge::cpu
