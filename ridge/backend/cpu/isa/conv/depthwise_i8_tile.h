// Depthwise convolutions of bytes over a vector type V. Internal linkage, as in gemm_tile.h.
//
// V interleaves the bytes of kLines lines within 128 bits, so that part q of a block of channels
// holds channels 4q to 4q + 3 of each 16 of them; packing results to bytes puts them in order
// again. Scales and other numbers of the channels are prepared in the order of the parts.
#pragma once

#include <immintrin.h>

#include "ridge/backend/cpu/isa/conv/depthwise_i8_kernels.h"

namespace ridge::cpu {
namespace {

constexpr int kParts = 4;

// Vectors of 256 bits, but for the products.
struct Bytes256 {
  using Reg = __m256i;
  using Floats = __m256;
  static constexpr int kWidth = 8;   // numbers of 32 bits
  static constexpr int kPixels = 2;  // results whose sums fit into the registers
  static Reg zero() { return _mm256_setzero_si256(); }
  static Reg load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store(void* p, Reg x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static Reg bytes(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static Reg numbers(int32_t x) { return _mm256_set1_epi32(x); }
  static Reg flipped(Reg x, Reg flip) { return _mm256_xor_si256(x, flip); }
  static Reg low8(Reg a, Reg b) { return _mm256_unpacklo_epi8(a, b); }
  static Reg high8(Reg a, Reg b) { return _mm256_unpackhi_epi8(a, b); }
  static Reg low16(Reg a, Reg b) { return _mm256_unpacklo_epi16(a, b); }
  static Reg high16(Reg a, Reg b) { return _mm256_unpackhi_epi16(a, b); }
  static Reg plus(Reg a, Reg b) { return _mm256_add_epi32(a, b); }
  static Reg minus(Reg a, Reg b) { return _mm256_sub_epi32(a, b); }
  static Reg times(Reg a, Reg b) { return _mm256_mullo_epi32(a, b); }
  static Floats floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  static void store(void* p, Floats x) { _mm256_storeu_ps(static_cast<float*>(p), x); }
  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats scaled(Reg sum, Floats scale, Floats bias) {
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale), bias);
  }
  // NaN becomes 0 behind the zero point.
  static Reg rounded(Floats x, Floats least, Floats most, Reg zero) {
    const Reg is_number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    const Floats inside = _mm256_min_ps(_mm256_max_ps(x, least), most);
    return _mm256_and_si256(plus(_mm256_cvtps_epi32(inside), zero), is_number);
  }
  static Reg packed(const Reg (&x)[kParts], bool is_signed) {
    const Reg low = _mm256_packs_epi32(x[0], x[1]), high = _mm256_packs_epi32(x[2], x[3]);
    return is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
  }
  // For results of i8 or u8: the zero point in 16 bits, and limits as bytes.
  struct Limits {
    Reg zero, low, high;
    bool are_signed;
  };
  // Numbers are within 2^30; packing saturates them.
  static Reg packed_plain(const Floats (&x)[kParts], const Limits& limits) {
    const Reg low = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
    const Reg high = _mm256_packs_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
    const Reg a = _mm256_adds_epi16(low, limits.zero), b = _mm256_adds_epi16(high, limits.zero);
    if (limits.are_signed)
      return _mm256_min_epi8(_mm256_max_epi8(_mm256_packs_epi16(a, b), limits.low), limits.high);
    return _mm256_min_epu8(_mm256_max_epu8(_mm256_packus_epi16(a, b), limits.low), limits.high);
  }
  static Reg pairs(int32_t x) { return _mm256_set1_epi16(static_cast<int16_t>(x)); }
};

// Two lines as pairs of 16 bits, which vpmaddwd multiplies: exact for all bytes, and weights less
// their zero points.
struct Pairs256 : Bytes256 {
  static constexpr int kLines = 2;
  static constexpr bool kHasZeros = true;
  static Reg ones() { return _mm256_set1_epi16(1); }
  static Reg dot(Reg sum, Reg x, Reg w) { return plus(sum, _mm256_madd_epi16(x, w)); }
  static void interleave(const Reg (&line)[kLines], Reg (&x)[kParts]) {
    const Reg low0 = low8(line[0], zero()), low1 = low8(line[1], zero());
    const Reg high0 = high8(line[0], zero()), high1 = high8(line[1], zero());
    x[0] = low16(low0, low1);
    x[1] = high16(low0, low1);
    x[2] = low16(high0, high1);
    x[3] = high16(high0, high1);
  }
  static Reg weights(Reg w, Reg zeros) { return _mm256_sub_epi16(w, zeros); }
};

// Four lines as quads of bytes, as vpdpbusd multiplies them. Weights are i8 whose zero points are
// 0.
template <class B>
struct Quads : B {
  using Reg = typename B::Reg;
  static constexpr int kLines = 4;
  static constexpr bool kHasZeros = false;
  static Reg ones() { return B::bytes(1); }
  static void interleave(const Reg (&line)[kLines], Reg (&x)[kParts]) {
    const Reg low01 = B::low8(line[0], line[1]), low23 = B::low8(line[2], line[3]);
    const Reg high01 = B::high8(line[0], line[1]), high23 = B::high8(line[2], line[3]);
    x[0] = B::low16(low01, low23);
    x[1] = B::high16(low01, low23);
    x[2] = B::low16(high01, high23);
    x[3] = B::high16(high01, high23);
  }
  static Reg weights(Reg w, Reg) { return w; }
};

template <class V>
int64_t groups_of(int64_t down) {
  return (down + V::kLines - 1) / V::kLines;
}

// A block as it is prepared: weights (groups of lines, elements of a line, parts), and then the
// numbers of its channels.
template <class V>
struct Prepared {
  using Reg = typename V::Reg;
  static constexpr int64_t kBytes = sizeof(Reg);
  char* at;
  int64_t down, across;

  int64_t weight_bytes() const { return groups_of<V>(down) * across * kParts * kBytes; }
  char* weights(int64_t group) const { return at + group * across * kParts * kBytes; }
  char* terms() const { return at + weight_bytes(); }  // with which sums begin
  char* scales() const { return terms() + kParts * kBytes; }
  char* biases() const { return scales() + kParts * kBytes; }
  // Whether numbers are within 2^30, whatever the sums are.
  bool& is_plain() const { return *reinterpret_cast<bool*>(biases() + kParts * kBytes); }
  int64_t bytes() const { return weight_bytes() + 3 * kParts * kBytes + 64; }
};

template <class V>
int64_t prepared_bytes(int64_t down, int64_t across) {
  return Prepared<V>{nullptr, down, across}.bytes();
}

// The place of channel `c` of a block in the order of its parts.
template <class V>
int64_t place_of(int64_t c) {
  return c % 16 / 4 * V::kWidth + c / 16 * 4 + c % 4;
}

template <class V>
void prepare(const DepthwiseI8Weights& w) {
  using Reg = typename V::Reg;
  const Prepared<V> to{static_cast<char*>(w.to), w.kernel[0], w.kernel[1]};
  const Reg flip = V::bytes(w.flip), zeros = V::flipped(V::load(w.zeros), flip);
  Reg zero_lines[V::kLines], zero_parts[kParts], sums[kParts];
  for (Reg& line : zero_lines) line = zeros;
  V::interleave(zero_lines, zero_parts);
  for (Reg& sum : sums) sum = V::zero();
  for (int64_t group = 0; group < groups_of<V>(w.kernel[0]); ++group)
    for (int64_t k = 0; k < w.kernel[1]; ++k) {
      Reg lines[V::kLines], parts[kParts];
      for (int i = 0; i < V::kLines; ++i) {
        const int64_t line = group * V::kLines + i;
        const uint8_t* const from = w.weights + (line * w.kernel[1] + k) * w.pitch;
        lines[i] = line < w.kernel[0] ? V::flipped(V::load(from), flip) : zeros;
      }
      V::interleave(lines, parts);
      for (int q = 0; q < kParts; ++q) {
        const Reg part = V::weights(parts[q], zero_parts[q]);
        V::store(to.weights(group) + (k * kParts + q) * Prepared<V>::kBytes, part);
        sums[q] = V::dot(sums[q], V::ones(), part);
      }
    }
  alignas(64) int32_t added[kParts * V::kWidth] = {};
  float* const scales = reinterpret_cast<float*>(to.scales());
  float* const biases = reinterpret_cast<float*>(to.biases());
  constexpr float kMostScale = 0.25f, kMostBias = 0x1p29f;
  bool is_plain = true;
  for (int64_t c = 0; c < kParts * V::kWidth; ++c) {
    const int64_t place = place_of<V>(c);
    const bool is_there = c < w.count;
    if (is_there && w.sum_bias != nullptr) added[place] = w.sum_bias[c];
    scales[place] = w.scales != nullptr && is_there ? w.scales[w.has_scale_each ? c : 0] : 1;
    biases[place] = w.bias != nullptr && is_there ? w.bias[c] : -0.0f;  // x + -0 is x
    if (is_there)
      is_plain = is_plain && __builtin_fabsf(scales[place]) <= kMostScale &&
                 __builtin_fabsf(biases[place]) <= kMostBias;
  }
  to.is_plain() = is_plain;
  for (int q = 0; q < kParts; ++q)
    V::store(to.terms() + q * Prepared<V>::kBytes,
             V::minus(V::load(added + q * V::kWidth), V::times(sums[q], V::numbers(w.x_zero))));
}

// The results of a line.
template <class V>
struct Results {
  using Reg = typename V::Reg;
  const DepthwiseI8Line& r;
  const Prepared<V> prepared;

  const char* part(const char* of, int q) const { return of + q * Prepared<V>::kBytes; }
  bool are_bytes() const {
    return r.result == DepthwiseI8Result::kI8 || r.result == DepthwiseI8Result::kU8;
  }
  typename V::Floats scaled(Reg sum, int q) const {
    return V::scaled(
        sum, V::floats(part(prepared.scales(), q)), V::floats(part(prepared.biases(), q)));
  }

  [[gnu::always_inline]] Reg bytes_of(const Reg (&sums)[kParts]) const {
    const auto least = V::all(static_cast<float>(r.low - r.zero));
    const auto most = V::all(static_cast<float>(r.high - r.zero));
    const Reg zero = V::numbers(r.zero);
    Reg x[kParts];
#pragma GCC unroll 4
    for (int q = 0; q < kParts; ++q) x[q] = V::rounded(scaled(sums[q], q), least, most, zero);
    return V::packed(x, r.result == DepthwiseI8Result::kI8);
  }
  [[gnu::always_inline]] Reg plain_bytes_of(const Reg (&sums)[kParts]) const {
    typename V::Floats x[kParts];
#pragma GCC unroll 4
    for (int q = 0; q < kParts; ++q) x[q] = scaled(sums[q], q);
    return V::packed_plain(x,
                           {V::pairs(r.zero),
                            V::bytes(static_cast<uint8_t>(r.low)),
                            V::bytes(static_cast<uint8_t>(r.high)),
                            r.result == DepthwiseI8Result::kI8});
  }
  [[gnu::always_inline]] void put_bytes(const Reg (&sums)[kParts], int64_t column) const {
    const Reg bytes = prepared.is_plain() ? plain_bytes_of(sums) : bytes_of(sums);
    uint8_t* const to = static_cast<uint8_t*>(r.to) + column * r.to_pixel;
    if (r.count == kParts * V::kWidth) return V::store(to, bytes);
    alignas(64) uint8_t block[kParts * V::kWidth];
    V::store(block, bytes);
    for (int64_t c = 0; c < r.count; ++c) to[c] = block[c];
  }
  void put_numbers(const Reg (&sums)[kParts], int64_t column) const {
    alignas(64) int32_t block[kParts * V::kWidth];
    for (int q = 0; q < kParts; ++q) {
      int32_t* const to = block + q * V::kWidth;
      if (r.result == DepthwiseI8Result::kI32)
        V::store(to, sums[q]);
      else
        V::store(to, scaled(sums[q], q));
    }
    // Numbers of both types are of 32 bits, which are copied as they are.
    char* const to = static_cast<char*>(r.to) + column * r.to_pixel * 4;
    for (int64_t c = 0; c < r.count; ++c) __builtin_memcpy(to + c * 4, block + place_of<V>(c), 4);
  }
};

// The pixels of column `x` that a group of lines of the window sees.
template <class V>
[[gnu::always_inline]] inline void fetch(const DepthwiseI8Line& r,
                                         int64_t group,
                                         int64_t x,
                                         typename V::Reg (&parts)[kParts]) {
  const bool is_inside = x >= 0 && x < r.width;
  const uint8_t* const* const lines = (is_inside ? r.lines : r.beyond) + group * V::kLines;
  const int64_t at = is_inside ? x * r.pixel : 0;
  typename V::Reg bytes[V::kLines];
#pragma GCC unroll 4
  for (int i = 0; i < V::kLines; ++i) bytes[i] = V::load(lines[i] + at);
  if (r.flip != 0) {
    const typename V::Reg flip = V::bytes(r.flip);
#pragma GCC unroll 4
    for (int i = 0; i < V::kLines; ++i) bytes[i] = V::flipped(bytes[i], flip);
  }
  V::interleave(bytes, parts);
}

// kPixels results from column `column` on. kAcross elements of a line of the window, kStride pixels
// from a result to the next and no dilation are known where kAcross is not 0.
template <class V, int kAcross, int kStride>
void strip(const DepthwiseI8Line& r, const Results<V>& results, int64_t column) {
  using Reg = typename V::Reg;
  constexpr int kPixels = kAcross == 0 ? 1 : V::kPixels;
  const int64_t across = kAcross == 0 ? r.kernel[1] : kAcross;
  const int64_t first = column * r.stride - r.padding;
  Reg sums[kPixels][kParts];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 4
    for (int q = 0; q < kParts; ++q)
      sums[p][q] = V::load(results.part(results.prepared.terms(), q));
  for (int64_t group = 0; group < groups_of<V>(r.kernel[0]); ++group) {
    const char* const weights = results.prepared.weights(group);
    const auto weight = [&](int64_t k, int q) {
      return V::load(weights + (k * kParts + q) * Prepared<V>::kBytes);
    };
    if constexpr (kAcross == 0) {
      for (int64_t k = 0; k < across; ++k) {
        Reg x[kParts];
        fetch<V>(r, group, first + k * r.dilation, x);
        for (int q = 0; q < kParts; ++q) sums[0][q] = V::dot(sums[0][q], x[q], weight(k, q));
      }
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kAcross + kStride * (kPixels - 1); ++i) {
        Reg x[kParts];
        fetch<V>(r, group, first + i, x);
#pragma GCC unroll 8
        for (int p = 0; p < kPixels; ++p) {
          const int k = i - p * kStride;
          if (k < 0 || k >= kAcross) continue;
#pragma GCC unroll 4
          for (int q = 0; q < kParts; ++q) sums[p][q] = V::dot(sums[p][q], x[q], weight(k, q));
        }
      }
    }
  }
  const bool are_bytes = results.are_bytes();
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    if (column + p >= r.columns) break;
    are_bytes ? results.put_bytes(sums[p], column + p) : results.put_numbers(sums[p], column + p);
  }
}

template <class V, int kAcross, int kStride>
void strips(const DepthwiseI8Line& r) {
  // It is only read.
  const Results<V> results{
      r, {static_cast<char*>(const_cast<void*>(r.prepared)), r.kernel[0], r.kernel[1]}};
  constexpr int kPixels = kAcross == 0 ? 1 : V::kPixels;
  for (int64_t column = 0; column < r.columns; column += kPixels)
    strip<V, kAcross, kStride>(r, results, column);
}

template <class V>
void run_line(const DepthwiseI8Line& r) {
  const bool is_dense = r.dilation == 1 && r.stride <= 2;
  if (is_dense && r.kernel[1] == 3) return r.stride == 1 ? strips<V, 3, 1>(r) : strips<V, 3, 2>(r);
  if (is_dense && r.kernel[1] == 5) return r.stride == 1 ? strips<V, 5, 1>(r) : strips<V, 5, 2>(r);
  strips<V, 0, 0>(r);
}

template <class V>
constexpr DepthwiseI8Kernels kDepthwiseI8 = {
    kParts * V::kWidth, V::kLines, V::kHasZeros, prepared_bytes<V>, prepare<V>, run_line<V>};

}  // namespace
}  // namespace ridge::cpu
