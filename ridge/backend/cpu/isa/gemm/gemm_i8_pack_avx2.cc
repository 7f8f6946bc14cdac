// Packs bytes for the products of gemm_i8_kernels.h.
#include <immintrin.h>

#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu {
namespace {

__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
__m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Lanes whose steps lie side by side, as (16 lanes, 64 steps).
void fetch_along(const GemmI8Lanes& x, int64_t p, int64_t steps, uint8_t* to) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(x.flip));
  const uint8_t* from = x.from + p;
  for (int i = 0; i < kI8Lanes; ++i, from += x.lane_stride, to += kI8Steps) {
    if (i < x.lanes && steps == kI8Steps) {
      store(to, _mm256_xor_si256(load(from), flip));
      store(to + 32, _mm256_xor_si256(load(from + 32), flip));
      continue;
    }
    store(to, _mm256_setzero_si256());
    store(to + 32, _mm256_setzero_si256());
    for (int64_t s = 0; i < x.lanes && s < steps; ++s)
      to[s] = static_cast<uint8_t>(from[s] ^ x.flip);
  }
}

// Lanes that lie side by side, as (16 quads of steps, 16 lanes, 4 steps).
void fetch_across(const GemmI8Lanes& x, int64_t p, int64_t steps, uint8_t* to) {
  alignas(16) uint8_t some[4][16] = {}, flips[16] = {};
  for (int i = 0; i < x.lanes; ++i) flips[i] = x.flip;
  const __m128i flip = load16(flips);
  const uint8_t* from = x.from + p * x.depth_stride;
  for (int64_t q = 0; q < kI8Steps; q += 4, to += 64) {
    __m128i step[4];
    for (int64_t s = 0; s < 4; ++s, from += x.depth_stride) {
      step[s] = _mm_setzero_si128();
      if (q + s >= steps) continue;
      const uint8_t* row = from;
      if (x.lanes < kI8Lanes) {
        for (int i = 0; i < x.lanes; ++i) some[s][i] = from[i];
        row = some[s];
      }
      step[s] = _mm_xor_si128(load16(row), flip);
    }
    const __m128i low01 = _mm_unpacklo_epi8(step[0], step[1]);
    const __m128i high01 = _mm_unpackhi_epi8(step[0], step[1]);
    const __m128i low23 = _mm_unpacklo_epi8(step[2], step[3]);
    const __m128i high23 = _mm_unpackhi_epi8(step[2], step[3]);
    __m128i* const quads = reinterpret_cast<__m128i*>(to);
    _mm_store_si128(quads, _mm_unpacklo_epi16(low01, low23));
    _mm_store_si128(quads + 1, _mm_unpackhi_epi16(low01, low23));
    _mm_store_si128(quads + 2, _mm_unpacklo_epi16(high01, high23));
    _mm_store_si128(quads + 3, _mm_unpackhi_epi16(high01, high23));
  }
}

// Transposes 8 by 8 quads of rows of 64 bytes.
void transpose_eight(const uint8_t* from, uint8_t* to) {
  __m256i x[8], y[8];
  for (int i = 0; i < 8; i += 2) {
    const __m256i even = load(from + i * 64), odd = load(from + i * 64 + 64);
    x[i] = _mm256_unpacklo_epi32(even, odd);
    x[i + 1] = _mm256_unpackhi_epi32(even, odd);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      y[i + 2 * j] = _mm256_unpacklo_epi64(x[i + j], x[i + 2 + j]);
      y[i + 2 * j + 1] = _mm256_unpackhi_epi64(x[i + j], x[i + 2 + j]);
    }
  for (int i = 0; i < 4; ++i) {
    store(to + i * 64, _mm256_permute2x128_si256(y[i], y[4 + i], 0x20));
    store(to + (4 + i) * 64, _mm256_permute2x128_si256(y[i], y[4 + i], 0x31));
  }
}

void transpose_tile(const uint8_t* from, uint8_t* to) {
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      transpose_eight(from + i * 8 * 64 + j * 32, to + j * 8 * 64 + i * 32);
}

void add_row_sums(const uint8_t* tile, int32_t* sums) {
  const __m256i zero = _mm256_setzero_si256();
  for (int i = 0; i < kI8Lanes; ++i, tile += kI8Steps) {
    const __m256i sum =
        _mm256_add_epi64(_mm256_sad_epu8(load(tile), zero), _mm256_sad_epu8(load(tile + 32), zero));
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    sums[i] += _mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2);
  }
}

// Sixteen pairs of bytes, at most 2^13 together, fit in 16 bits.
void add_column_sums(const uint8_t* tile, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi8(1), wide_ones = _mm256_set1_epi16(1);
  for (int half = 0; half < 2; ++half) {
    __m256i sum = _mm256_setzero_si256();
    for (int q = 0; q < 16; ++q)
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, load(tile + q * 64 + half * 32)));
    int32_t* const to = sums + half * 8;
    store(to, _mm256_add_epi32(load(to), _mm256_madd_epi16(sum, wide_ones)));
  }
}

template <bool kColumns>
void pack(const GemmI8Lanes& x) {
  const bool lies_across = x.depth_stride != 1;
  uint8_t* to = x.to;
  for (int64_t p = 0; p < x.depth; p += kI8Steps, to += x.to_tile) {
    const int64_t steps = x.depth - p < kI8Steps ? x.depth - p : kI8Steps;
    const auto fetch = lies_across ? fetch_across : fetch_along;
    if (lies_across == kColumns) {
      fetch(x, p, steps, to);
    } else {
      alignas(64) uint8_t tile[kI8Tile];
      fetch(x, p, steps, tile);
      transpose_tile(tile, to);
    }
    if (x.sums != nullptr) kColumns ? add_column_sums(to, x.sums) : add_row_sums(to, x.sums);
  }
}

// ---- windows over images ----

constexpr int64_t kSlack = 64;  // bytes behind steps that lie side by side, which may be written

// Both may write up to kSlack bytes behind theirs, and read none behind `end`.
uint8_t* fill(uint8_t byte, int64_t count, uint8_t* to) {
  const __m256i bytes = _mm256_set1_epi8(static_cast<char>(byte));
  for (int64_t i = 0; i < count; i += 32) store(to + i, bytes);
  return to + count;
}
uint8_t* copy(const uint8_t* from, const uint8_t* end, int64_t count, uint8_t* to) {
  int64_t i = 0;
  for (; i < count && end - from >= i + 32; i += 32) store(to + i, load(from + i));
  for (; i < count; ++i) to[i] = from[i];
  return to + count;
}

int64_t within(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// The pixels that a window sees.
struct Window {
  const GemmI8Windows& w;
  const uint8_t* image;
  int64_t place[2];   // among the windows of the image
  int64_t top, left;  // pixel of the first element

  Window(const GemmI8Windows& windows, int64_t row) : w(windows) {
    const int64_t line = row / w.windows[1];
    place[0] = line % w.windows[0];
    place[1] = row % w.windows[1];
    image = w.images + line / w.windows[0] * image_bytes();
    find_first();
  }
  // The window behind it.
  void advance() {
    if (++place[1] == w.windows[1]) {
      place[1] = 0;
      if (++place[0] == w.windows[0]) {
        place[0] = 0;
        image += image_bytes();
      }
    }
    find_first();
  }
  void find_first() {
    top = place[0] * w.stride[0] - w.padding[0];
    left = place[1] * w.stride[1] - w.padding[1];
  }
  int64_t image_bytes() const { return w.size[0] * w.size[1] * w.pitch; }
  const uint8_t* end() const { return w.images + w.bytes; }
  int64_t line_steps() const { return w.kernel[1] * w.channels; }
  // The image's line that line `i` of the window sees; null where it is beyond.
  const uint8_t* line(int64_t i) const {
    const int64_t y = top + i * w.dilation[0];
    return y < 0 || y >= w.size[0] ? nullptr : image + y * w.size[1] * w.pitch;
  }
  // The pixel of that line that element `k` of a line of the window sees; null where it is beyond.
  const uint8_t* pixel(const uint8_t* line, int64_t k) const {
    const int64_t x = left + k * w.dilation[1];
    return line == nullptr || x < 0 || x >= w.size[1] ? nullptr : line + x * w.pitch;
  }

  // Steps [first, last) of a line of the window, whose pixels lie side by side.
  uint8_t* line_side_by_side(const uint8_t* line, int64_t first, int64_t last, uint8_t* to) const {
    if (line == nullptr) return fill(w.beyond, last - first, to);
    const int64_t begin = within(-left, 0, w.kernel[1]) * w.channels;
    const int64_t stop = within(w.size[1] - left, 0, w.kernel[1]) * w.channels;
    const int64_t from = within(begin, first, last), until = within(stop, from, last);
    to = fill(w.beyond, from - first, to);
    to = copy(line + left * w.channels + from, end(), until - from, to);
    return fill(w.beyond, last - until, to);
  }
  uint8_t* line_by_pixels(const uint8_t* line, int64_t first, int64_t last, uint8_t* to) const {
    while (first < last) {
      const int64_t channel = first % w.channels;
      const int64_t count = within(w.channels - channel, 0, last - first);
      const uint8_t* const from = pixel(line, first / w.channels);
      to = from == nullptr ? fill(w.beyond, count, to) : copy(from + channel, end(), count, to);
      first += count;
    }
    return to;
  }
  // Whether all of it lies in the image, in lines that lie side by side.
  bool is_inside() const {
    return top >= 0 && left >= 0 && top + (w.kernel[0] - 1) * w.dilation[0] < w.size[0] &&
           left + w.kernel[1] <= w.size[1];
  }
  // All steps of the row, of a window inside. False where that would read behind the images.
  bool copies_lines(uint8_t* to) const {
    const int64_t unit = line_steps(), apart = w.size[1] * w.pitch * w.dilation[0];
    const uint8_t* from = line(0) + left * w.channels;
    const int64_t last = (w.kernel[0] - 1) * apart + (unit + 31) / 32 * 32;
    if (end() - from < last) return false;
    for (int64_t i = 0; i < w.kernel[0]; ++i, from += apart, to += unit)
      for (int64_t j = 0; j < unit; j += 32) store(to + j, load(from + j));
    return true;
  }
  // Steps [begin, stop) of the row, side by side.
  void steps(int64_t begin, int64_t stop, uint8_t* to) const {
    const bool lie_side_by_side = w.dilation[1] == 1 && w.channels == w.pitch;
    const int64_t unit = line_steps();
    const bool are_all = begin == 0 && stop == w.kernel[0] * unit;
    if (lie_side_by_side && are_all && is_inside() && copies_lines(to)) return;
    for (int64_t i = begin / unit; i * unit < stop; ++i) {
      const int64_t first = within(begin - i * unit, 0, unit);
      const int64_t last = within(stop - i * unit, 0, unit);
      to = lie_side_by_side ? line_side_by_side(line(i), first, last, to)
                            : line_by_pixels(line(i), first, last, to);
    }
  }
};

// Steps [begin, begin + depth) of a row whose pixels have whole tiles of channels.
void pack_tiles_of_pixels(const Window& window, int64_t begin, const GemmI8Lanes& x, uint8_t* to) {
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(x.flip));
  const __m256i beyond = _mm256_set1_epi8(static_cast<char>(window.w.beyond ^ x.flip));
  const int64_t channels = window.w.channels, across = window.w.kernel[1];
  int64_t channel = begin % channels, element = begin / channels % across;
  int64_t down = begin / channels / across;
  const uint8_t* line = window.line(down);
  for (int64_t left = x.depth; left > 0; channel = 0) {
    const int64_t count = within(channels - channel, 0, left);
    const uint8_t* const pixel = window.pixel(line, element);
    for (int64_t i = channel; i < channel + count; i += kI8Steps, to += x.to_tile) {
      store(to, pixel == nullptr ? beyond : _mm256_xor_si256(load(pixel + i), flip));
      store(to + 32, pixel == nullptr ? beyond : _mm256_xor_si256(load(pixel + i + 32), flip));
    }
    left -= count;
    if (++element < across) continue;
    element = 0;
    line = window.line(++down);
  }
}

// The same of any pixels, by way of lines. Those of many windows are made before the first is read,
// because reading what was just written by other vectors waits until it is in the cache.
void pack_lines(Window& window, int64_t begin, const GemmI8Lanes& x) {
  constexpr int64_t kBytes = kI8NearBytes / kI8Lanes + kSlack;
  alignas(64) uint8_t lines[kBytes];
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(x.flip)), zero = _mm256_setzero_si256();
  const int64_t tiles = (x.depth + kI8Steps - 1) / kI8Steps, pitch = tiles * kI8Steps + kSlack;
  const int64_t together = within(kBytes / pitch, 1, kI8Lanes);
  for (int64_t first = 0; first < kI8Lanes; first += together) {
    const int64_t last = within(first + together, 0, kI8Lanes);
    for (int64_t i = first; i < last && i < x.lanes; ++i) {
      uint8_t* const line = lines + (i - first) * pitch;
      if (i > 0) window.advance();
      window.steps(begin, begin + x.depth, line);
      fill(x.flip, kSlack, line + x.depth);  // zeros after the flip
    }
    for (int64_t i = first; i < last; ++i) {
      const uint8_t* from = lines + (i - first) * pitch;
      uint8_t* to = x.to + i * kI8Steps;
      for (int64_t tile = 0; tile < tiles; ++tile, from += kI8Steps, to += x.to_tile) {
        store(to, i < x.lanes ? _mm256_xor_si256(load(from), flip) : zero);
        store(to + 32, i < x.lanes ? _mm256_xor_si256(load(from + 32), flip) : zero);
      }
    }
  }
}

void pack_windows(const GemmI8Windows& windows, int64_t row, int64_t begin, const GemmI8Lanes& x) {
  const int64_t tiles = (x.depth + kI8Steps - 1) / kI8Steps;
  Window window(windows, row);
  if (windows.channels % kI8Steps != 0) {
    pack_lines(window, begin, x);
  } else {
    for (int64_t i = 0; i < kI8Lanes; ++i) {
      uint8_t* to = x.to + i * kI8Steps;
      if (i < x.lanes) {
        if (i > 0) window.advance();
        pack_tiles_of_pixels(window, begin, x, to);
        continue;
      }
      for (int64_t tile = 0; tile < tiles; ++tile, to += x.to_tile) {
        store(to, _mm256_setzero_si256());
        store(to + 32, _mm256_setzero_si256());
      }
    }
  }
  for (int64_t tile = 0; tile < tiles && x.sums != nullptr; ++tile)
    add_row_sums(x.to + tile * x.to_tile, x.sums);
}

}  // namespace

namespace avx2 {
void pack_i8_windows(const GemmI8Windows& windows,
                     int64_t row,
                     int64_t step,
                     const GemmI8Lanes& lanes) {
  pack_windows(windows, row, step, lanes);
}
void pack_i8_rows(const GemmI8Lanes& x) { pack<false>(x); }
void pack_i8_columns(const GemmI8Lanes& x) { pack<true>(x); }
}  // namespace avx2

}  // namespace ridge::cpu
