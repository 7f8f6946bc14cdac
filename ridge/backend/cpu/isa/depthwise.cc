// Depthwise convolution of one pixel: vectors of channels, their sums in registers.
#include "ridge/backend/cpu/isa/depthwise_kernels.h"
#include "ridge/backend/cpu/isa/halves.h"
#include "ridge/backend/cpu/isa/vectors.h"

namespace ridge::cpu {
namespace {

float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Stores sums, rounded where T is 16-bit.
template <typename T>
void put(const Computed<T>* sums, T* to, int n) {
  if constexpr (kIsHalf<T>)
    narrow(sums, to, n);
  else
    for (int i = 0; i < n; ++i) to[i] = sums[i];
}

// ---- one pixel ----

template <typename T, int kVectors>
void pixel_vectors(const DepthwisePixel<T>& p, int64_t channel) {
  using V = Vector<Computed<T>>;
  typename V::Reg sums[kVectors];
  for (auto& sum : sums) sum = V::zero();
  for (int64_t r = 0; r < p.rows.count; ++r) {
    const T* source = p.source + p.rows.taps[r].source + channel;
    const T* weights = p.weights + p.rows.taps[r].weight + channel;
    for (int64_t c = 0; c < p.cols.count; ++c) {
      const T* from = source + p.cols.taps[c].source;
      const T* weight = weights + p.cols.taps[c].weight;
      for (int v = 0; v < kVectors; ++v)
        sums[v] = V::fma(V::load(from + v * V::kLanes), V::load(weight + v * V::kLanes), sums[v]);
    }
  }
  alignas(64) Computed<T> block[kVectors * V::kLanes];
  for (int v = 0; v < kVectors; ++v) V::store(block + v * V::kLanes, sums[v]);
  put(block, p.result + channel, kVectors * V::kLanes);
}

template <typename T>
void pixel_channel(const DepthwisePixel<T>& p, int64_t channel) {
  Computed<T> sum = 0;
  for (int64_t r = 0; r < p.rows.count; ++r)
    for (int64_t c = 0; c < p.cols.count; ++c) {
      const int64_t source = p.rows.taps[r].source + p.cols.taps[c].source + channel;
      const int64_t weight = p.rows.taps[r].weight + p.cols.taps[c].weight + channel;
      sum = multiply_add(wide(p.source[source]), wide(p.weights[weight]), sum);
    }
  put(&sum, p.result + channel, 1);
}

template <typename T>
void pixel(const DepthwisePixel<T>& p) {
  constexpr int kLanes = Vector<Computed<T>>::kLanes;
  int64_t c = 0;
  for (; c + 4 * kLanes <= p.channels; c += 4 * kLanes) pixel_vectors<T, 4>(p, c);
  for (; c + kLanes <= p.channels; c += kLanes) pixel_vectors<T, 1>(p, c);
  for (; c < p.channels; ++c) pixel_channel(p, c);
}

// ---- pixels of a row that are alike ----

template <typename T, int kTaps, int kAdvance>
void strip_vectors(const DepthwiseStrip<T>& s, int64_t channel) {
  using V = Vector<Computed<T>>;
  constexpr int kPixels = kTaps + kAdvance * (kStripPixels - 1);
  typename V::Reg sums[kStripPixels];
  for (auto& sum : sums) sum = V::zero();
  for (int64_t r = 0; r < s.rows.count; ++r) {
    const T* from = s.source + s.rows.taps[r].source + s.cols.taps[0].source + channel;
    const T* weights = s.weights + s.rows.taps[r].weight + channel;
    typename V::Reg x[kPixels];
    for (int i = 0; i < kPixels; ++i)
      if (kTaps >= kAdvance || i % kAdvance == 0) x[i] = V::load(from + i * s.pixel);
    for (int k = 0; k < kTaps; ++k) {
      const typename V::Reg weight = V::load(weights + s.cols.taps[k].weight);
      for (int p = 0; p < kStripPixels; ++p) sums[p] = V::fma(x[k + kAdvance * p], weight, sums[p]);
    }
  }
  for (int p = 0; p < kStripPixels; ++p) {
    if constexpr (kIsHalf<T>) {
      alignas(64) Computed<T> block[V::kLanes];
      V::store(block, sums[p]);
      put(block, s.result + p * s.result_step + channel, V::kLanes);
    } else {
      V::store(s.result + p * s.result_step + channel, sums[p]);
    }
  }
}

template <typename T, int kTaps, int kAdvance>
void strip_of(const DepthwiseStrip<T>& s) {
  constexpr int kLanes = Vector<Computed<T>>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= s.channels; c += kLanes) strip_vectors<T, kTaps, kAdvance>(s, c);
  if (c == s.channels) return;
  for (int p = 0; p < kStripPixels; ++p) {
    const DepthwisePixel<T> one{s.source + p * kAdvance * s.pixel,
                                s.weights,
                                s.rows,
                                s.cols,
                                s.channels,
                                s.result + p * s.result_step};
    for (int64_t left = c; left < s.channels; ++left) pixel_channel(one, left);
  }
}

template <typename T>
void strip(const DepthwiseStrip<T>& s) {
  using Run = void (*)(const DepthwiseStrip<T>&);
  static constexpr Run kRuns[kStripTaps][kStripAdvance] = {{strip_of<T, 1, 1>, strip_of<T, 1, 2>},
                                                           {strip_of<T, 2, 1>, strip_of<T, 2, 2>},
                                                           {strip_of<T, 3, 1>, strip_of<T, 3, 2>},
                                                           {strip_of<T, 4, 1>, strip_of<T, 4, 2>},
                                                           {strip_of<T, 5, 1>, strip_of<T, 5, 2>},
                                                           {strip_of<T, 6, 1>, strip_of<T, 6, 2>},
                                                           {strip_of<T, 7, 1>, strip_of<T, 7, 2>}};
  kRuns[s.cols.count - 1][s.advance - 1](s);
}

// ---- the gradient of a weight ----

template <typename T, int kVectors>
void dot_vectors(const DepthwiseDot<T>& d, int64_t channel) {
  using V = Vector<Computed<T>>;
  typename V::Reg sums[kVectors];
  for (auto& sum : sums) sum = V::zero();
  const T* x = d.x + channel;
  const T* dy = d.dy + channel;
  for (int64_t i = 0; i < d.count; ++i, x += d.x_step, dy += d.dy_step)
    for (int v = 0; v < kVectors; ++v)
      sums[v] = V::fma(V::load(x + v * V::kLanes), V::load(dy + v * V::kLanes), sums[v]);
  for (int v = 0; v < kVectors; ++v) {
    Computed<T>* to = d.sums + channel + v * V::kLanes;
    V::store(to, V::add(V::load(to), sums[v]));
  }
}

template <typename T>
void dot(const DepthwiseDot<T>& d) {
  constexpr int kLanes = Vector<Computed<T>>::kLanes;
  int64_t c = 0;
  for (; c + 4 * kLanes <= d.channels; c += 4 * kLanes) dot_vectors<T, 4>(d, c);
  for (; c + kLanes <= d.channels; c += kLanes) dot_vectors<T, 1>(d, c);
  for (; c < d.channels; ++c) {
    Computed<T> sum = 0;
    for (int64_t i = 0; i < d.count; ++i)
      sum = multiply_add(wide(d.x[i * d.x_step + c]), wide(d.dy[i * d.dy_step + c]), sum);
    d.sums[c] += sum;
  }
}

template <typename T, int kRows>
void dots_vectors(const DepthwiseDots<T>& d, int64_t channel) {
  using V = Vector<Computed<T>>;
  typename V::Reg sums[kRows][kDotTaps];
  const T* x[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = d.x + d.rows.taps[r].source + channel;
    for (int k = 0; k < kDotTaps; ++k) sums[r][k] = V::zero();
  }
  const T* dy = d.dy + channel;
  int64_t at = 0;
  for (int64_t i = 0; i < d.count; ++i, dy += d.dy_step, at += d.x_step) {
    const typename V::Reg right = V::load(dy);
    for (int r = 0; r < kRows; ++r)
      for (int k = 0; k < kDotTaps; ++k)
        sums[r][k] = V::fma(V::load(x[r] + at + k * d.x_pixel), right, sums[r][k]);
  }
  for (int r = 0; r < kRows; ++r)
    for (int k = 0; k < kDotTaps; ++k) {
      Computed<T>* to = d.sums + d.rows.taps[r].weight + k * d.channels + channel;
      V::store(to, V::add(V::load(to), sums[r][k]));
    }
}

template <typename T>
void dots(const DepthwiseDots<T>& d) {
  constexpr int kLanes = Vector<Computed<T>>::kLanes;
  using Run = void (*)(const DepthwiseDots<T>&, int64_t);
  static constexpr Run kRuns[kDotTaps] = {
      dots_vectors<T, 1>, dots_vectors<T, 2>, dots_vectors<T, 3>};
  int64_t c = 0;
  for (; c + kLanes <= d.channels; c += kLanes) kRuns[d.rows.count - 1](d, c);
  for (; c < d.channels; ++c)
    for (int64_t r = 0; r < d.rows.count; ++r)
      for (int k = 0; k < kDotTaps; ++k) {
        const T* x = d.x + d.rows.taps[r].source + k * d.x_pixel + c;
        Computed<T> sum = 0;
        for (int64_t i = 0; i < d.count; ++i)
          sum = multiply_add(wide(x[i * d.x_step]), wide(d.dy[i * d.dy_step + c]), sum);
        d.sums[d.rows.taps[r].weight + k * d.channels + c] += sum;
      }
}

template <typename T>
constexpr DepthwiseKernels<T> kKernels = {pixel<T>, strip<T>, dot<T>, dots<T>};

}  // namespace

namespace RIDGE_ISA {
const AllDepthwiseKernels depthwise_kernels = {
    kKernels<double>, kKernels<float>, kKernels<F16Bits>, kKernels<BF16Bits>};
}

}  // namespace ridge::cpu
