// Transposes in registers: squares of 16x16 bytes, 8x8 halves, 8x8 words, 4x4 double words.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/transpose_kernels.h"

namespace ridge::cpu {
namespace {

template <int kBytes>
void move_one(const char* from, char* to) {
  __builtin_memcpy(to, from, kBytes);
}

// Offsets of lines that lie at equal distances, and of lines that do not.
struct Even {
  explicit Even(const LineOffsets& lines) : stride(lines.stride) {}
  int64_t operator[](int64_t line) const { return line * stride; }
  int64_t stride;
};
struct Listed {
  explicit Listed(const LineOffsets& lines) : table(lines.table) {}
  int64_t operator[](int64_t line) const { return table[line]; }
  const int64_t* table;
};

template <int kBytes, class From, class To>
void transpose_edge(const TransposeTile& t, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  const From from_cols(t.from_cols);
  const To to_rows(t.to_rows);
  for (int64_t r = row; r < rows; ++r)
    for (int64_t c = col; c < cols; ++c)
      move_one<kBytes>(t.from + r * kBytes + from_cols[c], t.to + to_rows[r] + c * kBytes);
}

__m128i load16(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void store16(char* p, __m128i x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x); }

struct Bytes {
  static constexpr int kBytes = 1;
  static constexpr int kSide = 16;
  static void square(const char* from, auto from_col, char* to, auto to_row) {
    __m128i x[16], y[16];
    for (int i = 0; i < 16; ++i) x[i] = load16(from + from_col(i));
    // Interleaving line i with line i + 8 four times is the transposition (a perfect shuffle).
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 8; ++i) {
        y[2 * i] = _mm_unpacklo_epi8(x[i], x[i + 8]);
        y[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + 8]);
      }
      for (int i = 0; i < 16; ++i) x[i] = y[i];
    }
    for (int i = 0; i < 16; ++i) store16(to + to_row(i), x[i]);
  }
};

struct Halves {
  static constexpr int kBytes = 2;
  static constexpr int kSide = 8;
  static void square(const char* from, auto from_col, char* to, auto to_row) {
    __m128i x[8], y[8];
    for (int i = 0; i < 8; ++i) x[i] = load16(from + from_col(i));
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 4; ++i) {
        y[2 * i] = _mm_unpacklo_epi16(x[i], x[i + 4]);
        y[2 * i + 1] = _mm_unpackhi_epi16(x[i], x[i + 4]);
      }
      for (int i = 0; i < 8; ++i) x[i] = y[i];
    }
    for (int i = 0; i < 8; ++i) store16(to + to_row(i), x[i]);
  }
};

struct Words {
  static constexpr int kBytes = 4;
  static constexpr int kSide = 8;
  static void square(const char* from, auto from_col, char* to, auto to_row) {
    __m256 pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
      const __m256 a = _mm256_loadu_ps(reinterpret_cast<const float*>(from + from_col(i)));
      const __m256 b = _mm256_loadu_ps(reinterpret_cast<const float*>(from + from_col(i + 1)));
      pairs[i] = _mm256_unpacklo_ps(a, b);
      pairs[i + 1] = _mm256_unpackhi_ps(a, b);
    }
    for (int i = 0; i < 8; i += 4)
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
        quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xee);
      }
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(reinterpret_cast<float*>(to + to_row(i)),
                       _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20));
      _mm256_storeu_ps(reinterpret_cast<float*>(to + to_row(i + 4)),
                       _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31));
    }
  }
};

struct DoubleWords {
  static constexpr int kBytes = 8;
  static constexpr int kSide = 4;
  static void square(const char* from, auto from_col, char* to, auto to_row) {
    __m256d x[4];
    for (int i = 0; i < 4; ++i)
      x[i] = _mm256_loadu_pd(reinterpret_cast<const double*>(from + from_col(i)));
    const __m256d low[2] = {_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpacklo_pd(x[2], x[3])};
    const __m256d high[2] = {_mm256_unpackhi_pd(x[0], x[1]), _mm256_unpackhi_pd(x[2], x[3])};
    const __m256d y[4] = {_mm256_permute2f128_pd(low[0], low[1], 0x20),
                          _mm256_permute2f128_pd(high[0], high[1], 0x20),
                          _mm256_permute2f128_pd(low[0], low[1], 0x31),
                          _mm256_permute2f128_pd(high[0], high[1], 0x31)};
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(reinterpret_cast<double*>(to + to_row(i)), y[i]);
  }
};

template <class Square, class From, class To>
void transpose_lines(const TransposeTile& t) {
  constexpr int kBytes = Square::kBytes, kSide = Square::kSide;
  constexpr int kLine = 64 / kBytes;  // columns of a cache line of the destination
  const From from_cols(t.from_cols);
  const To to_rows(t.to_rows);
  const int64_t whole_rows = t.rows - t.rows % kSide, whole_cols = t.cols - t.cols % kSide;
  for (int64_t c0 = 0; c0 < whole_cols; c0 += kLine) {
    const int64_t c1 = c0 + kLine < whole_cols ? c0 + kLine : whole_cols;
    for (int64_t r = 0; r < whole_rows; r += kSide)
      for (int64_t c = c0; c < c1; c += kSide)
        Square::square(
            t.from + r * kBytes,
            [&](int64_t i) { return from_cols[c + i]; },
            t.to + c * kBytes,
            [&](int64_t i) { return to_rows[r + i]; });
  }
  transpose_edge<kBytes, From, To>(t, 0, whole_rows, whole_cols, t.cols);
  transpose_edge<kBytes, From, To>(t, whole_rows, t.rows, 0, t.cols);
}

template <class Square>
void transpose(const TransposeTile& t) {
  if (t.from_cols.table != nullptr) return transpose_lines<Square, Listed, Even>(t);
  if (t.to_rows.table != nullptr) return transpose_lines<Square, Even, Listed>(t);
  transpose_lines<Square, Even, Even>(t);
}

// Sixteen bytes are moved one by one.
struct QuadWords {
  static constexpr int kBytes = 16;
  static constexpr int kSide = 1;
  static void square(const char* from, auto from_col, char* to, auto to_row) {
    move_one<kBytes>(from + from_col(0), to + to_row(0));
  }
};

}  // namespace

namespace RIDGE_ISA {
const TransposeKernels transpose_kernels = {{transpose<Bytes>,
                                             transpose<Halves>,
                                             transpose<Words>,
                                             transpose<DoubleWords>,
                                             transpose<QuadWords>}};
}

}  // namespace ridge::cpu
