// The products of attention: register tiles over operands that are read where they lie, small
// enough for the caches to hold.
#include <utility>

#include "ridge/backend/cpu/isa/attention/attention_kernels.h"
#include "ridge/backend/cpu/isa/lanes.h"

namespace ridge::cpu {
namespace {

#ifdef __AVX512F__
constexpr int kRows = 14;  // with 2 vectors each, 28 sums of the 32 registers
#else
constexpr int kRows = 6;  // 12 of 16
#endif
constexpr int kVectors = 2;

// Only indices that the compiler knows from the start keep an array in registers (g++ 12).
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

template <typename T>
T updated(const AttentionProduct<T>& p, T old, T product, int64_t column) {
  if (p.result == AttentionProduct<T>::kScale) return product * p.scale;
  if (p.result == AttentionProduct<T>::kAdd) return old + product;
  return sizeof(T) == 4 ? static_cast<T>(__builtin_fmaf(static_cast<float>(old),
                                                        static_cast<float>(p.factors[column]),
                                                        static_cast<float>(product)))
                        : static_cast<T>(__builtin_fma(old, p.factors[column], product));
}

// A tile that ends inside a vector, element by element.
template <typename T>
[[gnu::noinline]] void put_partial(const AttentionProduct<T>& p,
                                   const T* products,
                                   int64_t width,
                                   int64_t row,
                                   int64_t rows,
                                   int64_t column) {
  for (int64_t i = 0; i < rows; ++i) {
    T* c = p.c + (row + i) * p.c_row;
    for (int64_t j = column; j < p.cols; ++j)
      c[j] = updated(p, c[j], products[i * width + j - column], j);
  }
}

template <typename T, int kTileRows, int kTileVectors>
void compute_tile(const AttentionProduct<T>& p, int64_t row, int64_t column) {
  using R = typename Lanes<T>::R;
  constexpr int kWidth = kTileVectors * R::kWidth;
  typename R::Type sum[kTileRows][kTileVectors];
  const auto each_sum = [&](auto body) {
    unrolled<kTileRows>([&](auto r) {
      unrolled<kTileVectors>([&](auto v) { body(sum[r.kValue][v.kValue], r.kValue, v.kValue); });
    });
  };
  each_sum([](auto& x, int, int) { x = R::set(T(0)); });

  // Rows of A in groups of four, which two strides reach from one pointer each.
  constexpr int kGroups = (kTileRows + 3) / 4;
  const int64_t stride = p.a_row, three_strides = 3 * p.a_row, a_step = p.a_step, b_row = p.b_row;
  const T* group[kGroups];
  for (int g = 0; g < kGroups; ++g) group[g] = p.a + (row + 4 * g) * stride;
  const T* b = p.b + column;
  for (int64_t left = p.depth; left > 0; --left) {
    typename R::Type right[kTileVectors];
    unrolled<kTileVectors>([&](auto v) { right[v.kValue] = R::load(b + v.kValue * R::kWidth); });
    unrolled<kTileRows>([&](auto r) {
      constexpr int kRow = r.kValue;
      const T* from = group[kRow / 4] + (kRow % 4 == 3 ? three_strides : kRow % 4 * stride);
      const typename R::Type left_factor = R::set(*from);
      unrolled<kTileVectors>([&](auto v) {
        sum[kRow][v.kValue] = R::fma(left_factor, right[v.kValue], sum[kRow][v.kValue]);
      });
    });
    unrolled<kGroups>([&](auto g) { group[g.kValue] += a_step; });
    b += b_row;
  }

  if (p.cols - column < kWidth) {
    alignas(64) T products[kTileRows * kWidth];
    each_sum([&](auto& x, int r, int v) { R::store(products + r * kWidth + v * R::kWidth, x); });
    return put_partial(p, products, kWidth, row, kTileRows, column);
  }
  T* const c = p.c + row * p.c_row + column;
  const int64_t c_row = p.c_row;
  const auto at = [&](int r, int v) { return c + r * c_row + v * R::kWidth; };
  if (p.result == AttentionProduct<T>::kScale) {
    const typename R::Type scale = R::set(p.scale);
    each_sum([&](auto& x, int r, int v) { R::store(at(r, v), x * scale); });
  } else if (p.result == AttentionProduct<T>::kAdd) {
    each_sum([&](auto& x, int r, int v) { R::store(at(r, v), R::load(at(r, v)) + x); });
  } else {
    typename R::Type factors[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) factors[v] = R::load(p.factors + column + v * R::kWidth);
    each_sum([&](auto& x, int r, int v) {
      R::store(at(r, v), R::fma(R::load(at(r, v)), factors[v], x));
    });
  }
}

// A kernel for every number of rows, so that a short tile pays for no rows that it does not have.
template <typename T, int kTileVectors, int... kRow>
void compute_rows(const AttentionProduct<T>& p,
                  int64_t row,
                  int64_t rows,
                  int64_t column,
                  std::integer_sequence<int, kRow...>) {
  using Compute = void (*)(const AttentionProduct<T>&, int64_t, int64_t);
  static constexpr Compute kByRows[] = {compute_tile<T, kRow + 1, kTileVectors>...};
  kByRows[rows - 1](p, row, column);
}

template <typename T>
void multiply(const AttentionProduct<T>& p) {
  constexpr int64_t kWidth = Lanes<T>::R::kWidth;
  const std::make_integer_sequence<int, kRows> counts;
  for (int64_t column = 0; column < p.cols; column += kVectors * kWidth) {
    const bool is_narrow = p.cols - column <= kWidth;
    // Tiles of about one height: a last one of a row or two would wait for its own sums.
    for (int64_t row = 0; row < p.rows;) {
      const int64_t left = p.rows - row, tiles = (left + kRows - 1) / kRows;
      const int64_t rows = (left + tiles - 1) / tiles;
      if (is_narrow)
        compute_rows<T, 1>(p, row, rows, column, counts);
      else
        compute_rows<T, kVectors>(p, row, rows, column, counts);
      row += rows;
    }
  }
}

}  // namespace

namespace RIDGE_ISA {
void attention_multiply(const AttentionProduct<float>& p) { multiply(p); }
void attention_multiply(const AttentionProduct<double>& p) { multiply(p); }
}  // namespace RIDGE_ISA

}  // namespace ridge::cpu
