// Layer and root-mean-square norm, row by row. The variance is taken around a first estimate of the
// mean and corrected for what that estimate missed, so that data with a large mean come out right.
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/lanes.h"
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/norm_kernels.h"

namespace ridge::cpu {
namespace {

// Elements that are summed in the computed dtype; over more of them, sums go on in f64.
constexpr int64_t kSummed = 4096;

// Sum over a row of f(lanes), where f of `pad` is 0.
template <typename T, class F>
double row_sum(const T* x, int64_t n, Computed<T> pad, F f) {
  using A = Computed<T>;
  double sum = 0;
  for (int64_t i = 0; i < n; i += kSummed)
    sum += combine<Plus, A>(least(kSummed, n - i), [&](int64_t j, int count) {
      return f(lanes_at<A>(x + i, j, count, pad));
    });
  return sum;
}

inline void store_line_past_caches(const void* from, void* to) {
#ifdef __AVX512F__
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(from));
#else
  const auto* half = static_cast<const __m256i*>(from);
  _mm256_stream_si256(static_cast<__m256i*>(to), _mm256_load_si256(half));
  _mm256_stream_si256(static_cast<__m256i*>(to) + 1, _mm256_load_si256(half + 1));
#endif
}

struct Moments {
  double first = 0, second = 0;
};

// Sums of x - shift and of its square, in one pass.
template <typename T, typename A>
Moments moments(const T* x, int64_t n, A shift) {
  const auto all = Lanes<A>::all(shift);
  Moments sums;
  for (int64_t begin = 0; begin < n; begin += kSummed) {
    const int64_t count = least(kSummed, n - begin);
    Turns<Plus, A> first, second;
    for (int64_t i = 0; i < count; i += first.kStep)
      for (int k = 0; k < first.kTurns; ++k) {
        const int64_t at = i + k * kLanes;
        if (at >= count) break;
        const auto lanes = static_cast<int>(least(kLanes, count - at));
        const auto centered = lanes_at<A>(x + begin, at, lanes, shift) - all;
        first.sum[k] = first.sum[k] + centered;
        second.sum[k] = second.sum[k] + centered * centered;
      }
    sums.first += first.result();
    sums.second += second.result();
  }
  return sums;
}

// y = (x - high - low) * scale * gamma + beta.
template <typename A>
struct RowForm {
  A high;
  A low;
  A scale;
};

struct LayerNorm {
  static constexpr bool kHasShift = true;

  template <typename T>
  static RowForm<Computed<T>> form(const T* x, int64_t n, double eps) {
    using A = Computed<T>;
    const auto count = static_cast<double>(n);
    const A high = static_cast<A>(row_sum(x, n, A(0), [](const auto& v) { return v; }) / count);
    Moments sums = moments(x, n, high);
    const double missed = sums.first / count;
    const double variance = variance_of(sums.second / count, missed);
    return {high, static_cast<A>(missed), static_cast<A>(1.0 / sqrt_of(variance + eps))};
  }

  template <typename A>
  static A of(A x, const RowForm<A>& form, A gamma, A beta) {
    return fma_of((x - form.high - form.low) * form.scale, gamma, beta);
  }
};

struct RmsNorm {
  static constexpr bool kHasShift = false;

  template <typename T>
  static RowForm<Computed<T>> form(const T* x, int64_t n, double eps) {
    using A = Computed<T>;
    const double square = row_sum(x, n, A(0), [](const auto& v) { return v * v; });
    const double mean = square / static_cast<double>(n);
    return {A(0), A(0), static_cast<A>(1.0 / sqrt_of(mean + eps))};
  }

  template <typename A>
  static A of(A x, const RowForm<A>& form, A gamma, A) {
    return x * form.scale * gamma;
  }
};

template <class Norm, typename A>
void normalize(const A* x, const RowForm<A>& form, const A* gamma, const A* beta, A* y, int64_t n) {
  RIDGE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    y[i] = Norm::of(x[i], form, gamma[i], Norm::kHasShift ? beta[i] : A(0));
}

// Past the caches, and what comes after the row into them, as long computations leave the
// hardware's own prefetching too little lead.
template <class Norm, typename A>
void normalize_streamed(
    const A* x, const RowForm<A>& form, const A* gamma, const A* beta, A* y, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(A);
  alignas(64) A block[kLine * 4];
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) / sizeof(A)) % kLine;
  const int64_t head = least(n, (kLine - past) % kLine);
  normalize<Norm>(x, form, gamma, beta, y, head);
  int64_t i = head;
  for (; i + kLine * 4 <= n; i += kLine * 4) {
    for (int k = 0; k < 4; ++k) __builtin_prefetch(x + i + n + k * kLine);
    normalize<Norm>(x + i, form, gamma + i, Norm::kHasShift ? beta + i : nullptr, block, kLine * 4);
    for (int k = 0; k < 4; ++k) store_line_past_caches(block + k * kLine, y + i + k * kLine);
  }
  normalize<Norm>(x + i, form, gamma + i, Norm::kHasShift ? beta + i : nullptr, y + i, n - i);
}

template <class Norm, typename T>
void normalize_halves(
    const T* x, const RowForm<float>& form, const T* gamma, const T* beta, T* y, int64_t n) {
  alignas(64) float block[kBlock];
  alignas(64) float scale[kBlock];
  alignas(64) float shift[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = least(kBlock, n - i);
    widen(x + i, block, count);
    widen(gamma + i, scale, count);
    if constexpr (Norm::kHasShift) widen(beta + i, shift, count);
    normalize<Norm, float>(block, form, scale, shift, block, count);
    narrow(block, y + i, count);
  }
}

template <class Norm, typename T>
void norm_rows(const NormRows& rows, int64_t begin, int64_t end) {
  const T* gamma = static_cast<const T*>(rows.gamma);
  const T* beta = static_cast<const T*>(rows.beta);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(rows.x) + r * rows.n;
    T* y = static_cast<T*>(rows.y) + r * rows.n;
    const auto form = Norm::form(x, rows.n, rows.eps);
    if constexpr (kIsHalf<T>)
      normalize_halves<Norm>(x, form, gamma, beta, y, rows.n);
    else if (rows.streamed)
      normalize_streamed<Norm>(x, form, gamma, beta, y, rows.n);
    else
      normalize<Norm>(x, form, gamma, beta, y, rows.n);
  }
  if (rows.streamed) _mm_sfence();
}

}  // namespace

namespace RIDGE_ISA {
extern const RowNormKernels row_norm_kernels = {{norm_rows<LayerNorm, double>,
                                                 norm_rows<LayerNorm, float>,
                                                 norm_rows<LayerNorm, F16Bits>,
                                                 norm_rows<LayerNorm, BF16Bits>},
                                                {norm_rows<RmsNorm, double>,
                                                 norm_rows<RmsNorm, float>,
                                                 norm_rows<RmsNorm, F16Bits>,
                                                 norm_rows<RmsNorm, BF16Bits>}};
}

}  // namespace ridge::cpu
