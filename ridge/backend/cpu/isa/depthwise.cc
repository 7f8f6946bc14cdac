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

template <typename T>
constexpr DepthwiseKernels<T> kKernels = {pixel<T>, dot<T>};

}  // namespace

namespace RIDGE_ISA {
const AllDepthwiseKernels depthwise_kernels = {
    kKernels<double>, kKernels<float>, kKernels<F16Bits>, kKernels<BF16Bits>};
}

}  // namespace ridge::cpu
