// Convolution and its gradients as products: an element of the result is a sum over the depth of
// left(m, k) right(k, n), for each group of channels. Sizes are those of G, a struct that the
// printed source has: x (kImages, kHeight, kWidth, kIn), w (kKernelRows, kKernelColumns, kIn /
// kGroups, kOut), y (kImages, kRows, kColumns, kOut), and the window's.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

inline float product_added(float a, float b, float sum) { return __builtin_fmaf(a, b, sum); }
inline double product_added(double a, double b, double sum) { return __builtin_fma(a, b, sum); }

template <class G>
struct GroupSizes {
  static constexpr typename G::Index kIn = G::kIn / G::kGroups, kOut = G::kOut / G::kGroups;
};

/// What the element of x is that position `k` of the window over pixel `m` of y holds; 0 outside.
template <class G, typename T>
inline Sum<T> windowed(const T* x,
                       typename G::Index group,
                       typename G::Index m,
                       typename G::Index k) {
  using Index = typename G::Index;
  constexpr Index kChannels = GroupSizes<G>::kIn;
  const Index channel = k % kChannels, position = k / kChannels;
  const Index column = m % G::kColumns, row = m / G::kColumns % G::kRows;
  const Index image = m / G::kColumns / G::kRows;
  const Index h = row * G::kStrideDown - G::kTop + position / G::kKernelColumns * G::kDilationDown;
  const Index w =
      column * G::kStrideAcross - G::kLeft + position % G::kKernelColumns * G::kDilationAcross;
  if (h < 0 || h >= G::kHeight || w < 0 || w >= G::kWidth) return Sum<T>(0);
  return wide_of(
      x[((image * G::kHeight + h) * G::kWidth + w) * G::kIn + group * kChannels + channel]);
}

/// y (pixels, channels) = windows of x by w.
template <class G, typename T>
struct Convolution {
  using Index = typename G::Index;
  using A = Sum<T>;
  static constexpr Index kM = G::kImages * G::kRows * G::kColumns, kN = GroupSizes<G>::kOut;
  static constexpr Index kK = G::kKernelRows * G::kKernelColumns * GroupSizes<G>::kIn;
  static constexpr Index kGroups = G::kGroups;
  /// Along which side neighbours in memory lie.
  static constexpr bool kLeftAlongDepth = true, kRightAlongDepth = false;
  const T* x;
  const T* w;

  A left(Index group, Index m, Index k) const { return windowed<G>(x, group, m, k); }
  A right(Index group, Index k, Index n) const { return wide_of(w[k * G::kOut + group * kN + n]); }
};

/// dx (pixels, channels) = what the windows that hold a pixel give to it.
template <class G, typename T>
struct ConvolutionInput {
  using Index = typename G::Index;
  using A = Sum<T>;
  static constexpr Index kM = G::kImages * G::kHeight * G::kWidth, kN = GroupSizes<G>::kIn;
  static constexpr Index kOut = GroupSizes<G>::kOut;
  static constexpr Index kK = G::kKernelRows * G::kKernelColumns * kOut;
  static constexpr Index kGroups = G::kGroups;
  static constexpr bool kLeftAlongDepth = true, kRightAlongDepth = true;
  const T* dy;
  const T* w;

  A left(Index group, Index m, Index k) const {
    const Index channel = k % kOut, position = k / kOut;
    const Index column = m % G::kWidth, row = m / G::kWidth % G::kHeight;
    const Index image = m / G::kWidth / G::kHeight;
    // How far the window begins before the first pixel of y's grid; whole strides are windows.
    const Index down = row + G::kTop - position / G::kKernelColumns * G::kDilationDown;
    const Index across = column + G::kLeft - position % G::kKernelColumns * G::kDilationAcross;
    if (down < 0 || across < 0 || down % G::kStrideDown != 0 || across % G::kStrideAcross != 0)
      return A(0);
    const Index h = down / G::kStrideDown, v = across / G::kStrideAcross;
    if (h >= G::kRows || v >= G::kColumns) return A(0);
    return wide_of(
        dy[((image * G::kRows + h) * G::kColumns + v) * G::kOut + group * kOut + channel]);
  }
  A right(Index group, Index k, Index n) const {
    return wide_of(w[(k / kOut * kN + n) * G::kOut + group * kOut + k % kOut]);
  }
};

/// dw (positions and channels, channels): the sum over all pixels.
template <class G, typename T>
struct ConvolutionWeight {
  using Index = typename G::Index;
  using A = Sum<T>;
  static constexpr Index kM = G::kKernelRows * G::kKernelColumns * GroupSizes<G>::kIn;
  static constexpr Index kN = GroupSizes<G>::kOut;
  static constexpr Index kK = G::kImages * G::kRows * G::kColumns, kGroups = G::kGroups;
  static constexpr bool kLeftAlongDepth = false, kRightAlongDepth = false;
  const T* x;
  const T* dy;

  A left(Index group, Index m, Index k) const { return windowed<G>(x, group, k, m); }
  A right(Index group, Index k, Index n) const { return wide_of(dy[k * G::kOut + group * kN + n]); }
};

// Where the depth is cut into parts of kDepth, results are (parts, elements) of sums.

/// A thread sums a part of an element.
template <int64_t kDepth, class P, typename To>
inline void sum_directly(const P& product, To* to, int64_t results) {
  using Index = typename P::Index;
  constexpr int64_t kParts = (P::kK + kDepth - 1) / kDepth;
  constexpr int64_t kWidth = static_cast<int64_t>(P::kGroups) * P::kN;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < kParts * results;
       i += stride) {
    const int64_t place = i % results, part = i / results;
    const Index m = static_cast<Index>(place / kWidth);
    const Index group = static_cast<Index>(place % kWidth / P::kN);
    const Index n = static_cast<Index>(place % P::kN);
    const Index begin = static_cast<Index>(part * kDepth);
    const Index end = static_cast<Index>(begin + kDepth < P::kK ? begin + kDepth : P::kK);
    typename P::A sum = 0;
#pragma unroll 4
    for (Index k = begin; k < end; ++k)
      sum = product_added(product.left(group, m, k), product.right(group, k, n), sum);
    narrow(to[i], sum);
  }
}

/// A block of 256 threads makes tiles of 64 by 64, a thread four by four of each.
template <int64_t kDepth, class P, typename To>
inline void sum_tiles(const P& product, To* to, int64_t results) {
  using Index = typename P::Index;
  using A = typename P::A;
  constexpr int kSide = 64, kSteps = 16, kOwn = 4, kLoads = kSide * kSteps / 256;
  constexpr int kRow = kSide + 4;  // a vector more: neighbours in depth lie in other banks
  constexpr int64_t kParts = (P::kK + kDepth - 1) / kDepth;
  constexpr int64_t kDown = (P::kM + kSide - 1) / kSide, kAcross = (P::kN + kSide - 1) / kSide;
  using Four = Pack<A, kOwn>;
  __shared__ Four lefts[kSteps][kRow / kOwn], rights[kSteps][kRow / kOwn];
  const int thread = static_cast<int>(threadIdx.x);
  const int own_row = thread / 16 * kOwn, own_column = thread % 16 * kOwn;
#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < kDown * kAcross * P::kGroups * kParts; tile += gridDim.x) {
    const Index column = static_cast<Index>(tile % kAcross * kSide);
    const Index row = static_cast<Index>(tile / kAcross % kDown * kSide);
    const Index group = static_cast<Index>(tile / kAcross / kDown % P::kGroups);
    const int64_t part = tile / kAcross / kDown / P::kGroups;
    const Index begin = static_cast<Index>(part * kDepth);
    const Index end = static_cast<Index>(begin + kDepth < P::kK ? begin + kDepth : P::kK);
    A sums[kOwn][kOwn] = {};
#pragma unroll 1
    for (Index k = begin; k < end; k += kSteps) {
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int at = thread + 256 * j;
        const int depth = P::kLeftAlongDepth ? at % kSteps : at / kSide;
        const int lane = P::kLeftAlongDepth ? at / kSteps : at % kSide;
        reinterpret_cast<A*>(lefts[depth])[lane] = k + depth < end && row + lane < P::kM
                                                       ? product.left(group, row + lane, k + depth)
                                                       : A(0);
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int at = thread + 256 * j;
        const int depth = P::kRightAlongDepth ? at % kSteps : at / kSide;
        const int lane = P::kRightAlongDepth ? at / kSteps : at % kSide;
        reinterpret_cast<A*>(rights[depth])[lane] =
            k + depth < end && column + lane < P::kN
                ? product.right(group, k + depth, column + lane)
                : A(0);
      }
      __syncthreads();
#pragma unroll
      for (int depth = 0; depth < kSteps; ++depth) {
        const Four a = lefts[depth][own_row / kOwn], b = rights[depth][own_column / kOwn];
#pragma unroll
        for (int r = 0; r < kOwn; ++r)
#pragma unroll
          for (int c = 0; c < kOwn; ++c) sums[r][c] = product_added(a.at[r], b.at[c], sums[r][c]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < kOwn; ++r)
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
        const Index m = row + own_row + r, n = column + own_column + c;
        if (m >= P::kM || n >= P::kN) continue;
        const int64_t place = (static_cast<int64_t>(m) * P::kGroups + group) * P::kN + n;
        narrow(to[part * results + place], sums[r][c]);
      }
  }
}

/// Adds up the parts of each element.
template <int64_t kParts, typename A, typename To>
inline void add_parts(const A* sums, To* to, int64_t results) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < results;
       i += stride) {
    A sum = sums[i];
#pragma unroll 8
    for (int64_t part = 1; part < kParts; ++part) sum = sum + sums[part * results + i];
    narrow(to[i], sum);
  }
}

}  // namespace ridge::cuda
