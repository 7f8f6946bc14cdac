// Products of bytes by AVX2 alone, exact: bytes are widened to 16 bits, pairs of which vpmaddwd
// multiplies and adds up in 32 bits. (vpmaddubsw would saturate.)
#include "ridge/backend/cpu/isa/gemm/gemm_i8_tile.h"

namespace ridge::cpu {
namespace {

struct Pairs256 {
  using Reg = __m256i;
  static constexpr int kProducts = 16;  // of an instruction
  static Reg zero() { return _mm256_setzero_si256(); }
  static Reg load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store(int32_t* p, Reg x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static Reg dot(Reg sum, Reg a, Reg b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
};

__m256i widen(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
__m256i* at(int32_t* p) { return reinterpret_cast<__m256i*>(p); }

// Some rows by the eight columns that begin at `column`. `wide` is op(A) in 16 bits, rows of
// kI8Chain steps, from the row `first` of the block on. A register of sums has two of each of four
// columns.
struct PairsPart {
  const GemmI8Block& t;
  const int16_t* wide;
  int64_t first, column;

  void fetch(int64_t, int64_t) const {}
  // The products of a quad of steps.
  template <int kRows>
  void add_quad(__m256i (&sums)[kRows][2], const int16_t* quad, const int8_t* b) const {
    const __m256i low = widen(b), high = widen(b + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i x = _mm256_set1_epi64x(
          *reinterpret_cast<const int64_t __attribute__((may_alias))*>(quad + r * kI8Chain));
      sums[r][0] = Pairs256::dot(sums[r][0], x, low);
      sums[r][1] = Pairs256::dot(sums[r][1], x, high);
      // It keeps g++ 12 from multiplying all rows first, for which there are too few registers.
      asm volatile("" : "+x"(sums[r][0]), "+x"(sums[r][1]));
    }
  }
  template <int kRows>
  void run(int64_t row) const {
    const int8_t* b = t.b + column / kI8Lanes * t.b_panel + column % kI8Lanes * 4;
    const int16_t* quad = wide + row * kI8Chain;
    __m256i sums[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
    // Four quads at a time, as what counts a loop takes the ports of products; zeros fill them up.
    for (int64_t left = (t.steps + 15) / 16; left > 0; --left, quad += 16, b += 256) {
      add_quad(sums, quad, b);
      add_quad(sums, quad + 4, b + 64);
      add_quad(sums, quad + 8, b + 128);
      add_quad(sums, quad + 12, b + 192);
    }
    int32_t* const c = t.c + (first + row) * t.c_row + column;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i halves = _mm256_hadd_epi32(sums[r][0], sums[r][1]);
      const __m256i sum = _mm256_permute4x64_epi64(halves, 0xd8);
      int32_t* const to = c + r * t.c_row;
      _mm256_storeu_si256(at(to), t.add ? _mm256_add_epi32(_mm256_loadu_si256(at(to)), sum) : sum);
    }
  }
};

void block(const GemmI8Block& t) {
  constexpr int64_t kWideRows = 12;  // 24 KiB, which stay in a first-level cache
  alignas(64) int16_t wide[kWideRows * kI8Chain];
  const int64_t tiles = (t.steps + kI8Steps - 1) / kI8Steps;
  const int64_t pieces = (t.rows + kWideRows - 1) / kWideRows;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    fetch_next(t, piece, pieces);
    const int64_t row = t.rows * piece / pieces, rows = t.rows * (piece + 1) / pieces - row;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const uint8_t* const from = t.a + tile * t.a_tile + (row + r) * kI8Steps;
        int16_t* const to = wide + r * kI8Chain + tile * kI8Steps;
        for (int i = 0; i < kI8Steps; ++i) to[i] = from[i];
      }
    for (int64_t column = 0; column < t.panels * kI8Lanes; column += 8)
      for_rows<6>(rows, PairsPart{t, wide, row, column});
  }
}

}  // namespace

namespace avx2 {
const GemmI8Kernels gemm_i8_kernels = {nullptr, nullptr, block, run_dots<Pairs256>, false, false};
}

}  // namespace ridge::cpu
