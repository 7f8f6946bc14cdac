// Sums and maxima over chunks of an axis, and argmax.
#include "ridge/backend/cpu/isa/columns.h"
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/reduce_kernels.h"

namespace ridge::cpu {
namespace {

// A tile: where its elements begin in x and its results in y.
struct Tile {
  Tile(const ReduceStage& s, int64_t index) {
    const int64_t tiles = (s.inner + kReduceColumns - 1) / kReduceColumns;
    const int64_t chunks = (s.n + s.chunk - 1) / s.chunk;
    const int64_t group = index / tiles;
    const int64_t column = index % tiles * kReduceColumns;
    const int64_t first = group % chunks * s.chunk;
    from = (group / chunks * s.n + first) * s.inner + column;
    to = group * s.inner + column;
    rows = least(s.chunk, s.n - first);
    columns = least(kReduceColumns, s.inner - column);
  }
  int64_t from;
  int64_t to;
  int64_t rows;
  int64_t columns;
};

// ---- floats ----

template <class Op, typename T>
Computed<T> reduce_row(const T* x, int64_t n) {
  using A = Computed<T>;
  return combine<Op, A>(
      n, [x](int64_t i, int count) { return lanes_at<A>(x, i, count, Op::template kNeutral<A>); });
}

template <class Op, typename T, typename Out>
void reduce_floats(const ReduceStage& s, const void* x, void* y, int64_t begin, int64_t end) {
  using A = Computed<T>;
  const A divisor = static_cast<A>(s.divisor);
  alignas(64) A sum[kReduceColumns];
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(s, index);
    const T* from = static_cast<const T*>(x) + tile.from;
    Out* to = static_cast<Out*>(y) + tile.to;
    if (s.inner == 1) {
      *to = rounded<Out>(reduce_row<Op>(from, tile.rows) / divisor);
    } else {
      reduce_columns<Op>(from, s.inner, tile.rows, tile.columns, sum);
      for (int64_t j = 0; j < tile.columns; ++j) to[j] = rounded<Out>(sum[j] / divisor);
    }
  }
}

template <typename A>
void add_rows(const void* x, int64_t n, int64_t columns, void* sum) {
  add_columns<Plus, false>(static_cast<const A*>(x), columns, n, columns, static_cast<A*>(sum));
}

// ---- integers: any order gives the same bits ----

struct WrappingPlus {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct LargerInteger {
  template <typename T>
  static T of(T a, T b) {
    return a > b ? a : b;
  }
};

template <class Op, typename T>
void reduce_integers(const ReduceStage& s, const void* x, void* y, int64_t begin, int64_t end) {
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(s, index);
    const T* row = static_cast<const T*>(x) + tile.from;
    T* to = static_cast<T*>(y) + tile.to;
    if (s.inner == 1) {
      T all = row[0];
      for (int64_t i = 1; i < tile.rows; ++i) all = Op::of(all, row[i]);
      *to = all;
      continue;
    }
    __builtin_memcpy(to, row, static_cast<size_t>(tile.columns) * sizeof(T));
    for (int64_t r = 1; r < tile.rows; ++r) {
      row += s.inner;
      RIDGE_INDEPENDENT
      for (int64_t j = 0; j < tile.columns; ++j) to[j] = Op::of(to[j], row[j]);
    }
  }
}

// ---- bytes ----

// Adds n rows of x, each `stride` elements behind the other, to `columns` sums. Some rows at a time
// are added in 16 bits.
template <typename T>
void add_rows_of_bytes(const T* x, int64_t stride, int64_t n, int64_t columns, uint32_t* sum) {
  using Short = std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>;
  constexpr int64_t kRows = 256;  // of -128, or of 255, are within 16 bits
  alignas(64) Short part[kReduceColumns];
  for (int64_t first = 0; first < n; first += kRows) {
    const int64_t rows = least(kRows, n - first);
    for (int64_t j = 0; j < columns; ++j) part[j] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* const row = x + (first + r) * stride;
      RIDGE_INDEPENDENT
      for (int64_t j = 0; j < columns; ++j) part[j] = static_cast<Short>(part[j] + row[j]);
    }
    for (int64_t j = 0; j < columns; ++j) sum[j] += static_cast<uint32_t>(int32_t{part[j]});
  }
}

// A row is some columns one below the other, and a rest.
template <typename T>
uint32_t sum_of_row(const T* x, int64_t n) {
  constexpr int64_t kColumns = 128;
  alignas(64) uint32_t sum[kColumns] = {};
  add_rows_of_bytes(x, kColumns, n / kColumns, kColumns, sum);
  uint32_t all = 0;
  for (const uint32_t each : sum) all += each;
  for (int64_t i = n - n % kColumns; i < n; ++i) all += static_cast<uint32_t>(int32_t{x[i]});
  return all;
}

template <typename T>
void sum_bytes(const T* x, int32_t* y, int64_t n, int64_t inner, int64_t begin, int64_t end) {
  for (int64_t outer = begin; outer < end; ++outer) {
    const T* const from = x + outer * n * inner;
    int32_t* const to = y + outer * inner;
    if (inner == 1) {
      *to = static_cast<int32_t>(sum_of_row(from, n));
      continue;
    }
    for (int64_t j = 0; j < inner; j += kReduceColumns) {
      const int64_t columns = least(kReduceColumns, inner - j);
      alignas(64) uint32_t sum[kReduceColumns] = {};
      add_rows_of_bytes(from + j, inner, n, columns, sum);
      __builtin_memcpy(to + j, sum, static_cast<size_t>(columns) * sizeof(int32_t));
    }
  }
}

// ---- argmax ----

template <typename A>
bool is_larger(A a, A b) {
  if constexpr (kIsFloat<A>)
    return (a > b) | ((a != a) & (b == b));
  else
    return a > b;
}

template <typename A>
bool is_same(A a, A b) {
  if constexpr (kIsFloat<A>)
    return (a == b) | ((a != a) & (b != b));
  else
    return a == b;
}

// The largest, then the first that is the same: blocks that do not hold it are passed over whole.
template <typename T>
int64_t first_largest(const T* x, int64_t n) {
  using A = Computed<T>;
  A best;
  if constexpr (kIsFloat<T>) {
    best = reduce_row<Larger>(x, n);
  } else {
    best = x[0];
    for (int64_t i = 1; i < n; ++i) best = x[i] > best ? x[i] : best;
  }
  constexpr int64_t kLook = 128;
  int64_t i = 0;
  for (; i + kLook <= n; i += kLook) {
    A found = 0;
    for (int64_t j = 0; j < kLook; ++j) found = is_same(wide(x[i + j]), best) ? A(1) : found;
    if (found != A(0)) break;
  }
  while (i < n - 1 && !is_same(wide(x[i]), best)) ++i;
  return i;
}

template <typename T>
void argmax(const void* x, int64_t* y, int64_t n, int64_t inner, int64_t begin, int64_t end) {
  using A = Computed<T>;
  const T* from = static_cast<const T*>(x) + begin * n * inner;
  int64_t* to = y + begin * inner;
  for (int64_t outer = begin; outer < end; ++outer, from += n * inner, to += inner) {
    if (inner == 1) {
      *to = first_largest(from, n);
      continue;
    }
    A best[kReduceColumns];
    for (int64_t j = 0; j < inner; j += kReduceColumns) {
      const int64_t columns = least(kReduceColumns, inner - j);
      for (int64_t i = 0; i < columns; ++i) best[i] = wide(from[j + i]), to[j + i] = 0;
      for (int64_t r = 1; r < n; ++r) {
        const T* row = from + r * inner + j;
        for (int64_t i = 0; i < columns; ++i) {
          const A each = wide(row[i]);
          const bool larger = is_larger(each, best[i]);
          best[i] = larger ? each : best[i];
          to[j + i] = larger ? r : to[j + i];
        }
      }
    }
  }
}

// ---- tables ----

template <int kIndex = 0>
constexpr void fill(ReduceKernels& k) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (kIsFloat<T>) {
      using A = Computed<T>;
      k.sum[0][0][kIndex] = reduce_floats<Plus, T, T>;
      k.sum[0][1][kIndex] = reduce_floats<Plus, T, A>;
      k.sum[1][0][kIndex] = reduce_floats<Plus, A, T>;
      k.sum[1][1][kIndex] = reduce_floats<Plus, A, A>;
      k.max[kIndex] = reduce_floats<Larger, T, T>;
    } else if constexpr (kIsInteger<T>) {
      for (auto& x : k.sum)
        for (auto& y : x) y[kIndex] = reduce_integers<WrappingPlus, T>;
      k.max[kIndex] = reduce_integers<LargerInteger, T>;
    }
    if constexpr (kIsFloat<T> || kIsInteger<T>) k.argmax[kIndex] = argmax<T>;
    fill<kIndex + 1>(k);
  }
}

constexpr ReduceKernels make_kernels() {
  ReduceKernels k{};
  fill(k);
  k.add_rows[0] = add_rows<double>;
  k.add_rows[1] = add_rows<float>;
  k.sum_i8 = sum_bytes<int8_t>;
  k.sum_u8 = sum_bytes<uint8_t>;
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const ReduceKernels reduce_kernels = make_kernels();
}

}  // namespace ridge::cpu
