// Pooling: windows over an image, and the windows that hold a pixel. Sizes are those of W, a struct
// that the printed source has: kHeight, kWidth and kChannels of the image; kRows and kColumns of
// windows; kKernel and kStride, vertical and horizontal; kTop and kLeft, of padding.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

/// Positions [begin, end) along one dimension.
struct Span {
  int64_t begin, end;
};

/// The pixels of a window, along one dimension.
template <class W, int kDimension>
inline Span pixels_of(int64_t window) {
  constexpr int64_t kLength = kDimension == 0 ? W::kHeight : W::kWidth;
  constexpr int64_t kPadding = kDimension == 0 ? W::kTop : W::kLeft;
  constexpr int64_t kStride = W::kStride[kDimension], kKernel = W::kKernel[kDimension];
  const int64_t first = window * kStride - kPadding, end = first + kKernel;
  return {first < 0 ? 0 : first, end < kLength ? end : kLength};
}

/// The windows that hold a pixel, along one dimension; none where begin >= end.
template <class W, int kDimension>
inline Span windows_of(int64_t pixel) {
  constexpr int64_t kCount = kDimension == 0 ? W::kRows : W::kColumns;
  constexpr int64_t kPadding = kDimension == 0 ? W::kTop : W::kLeft;
  constexpr int64_t kStride = W::kStride[kDimension], kKernel = W::kKernel[kDimension];
  const int64_t first = pixel + kPadding - kKernel + 1;  // where the first of them may begin
  const int64_t begin = first <= 0 ? 0 : (first + kStride - 1) / kStride;
  const int64_t end = (pixel + kPadding) / kStride + 1;
  return {begin, end < kCount ? end : kCount};
}

/// What a sum over a window is divided by, along one dimension.
template <class W, int kDimension, typename A>
inline A count_of(int64_t window) {
  constexpr int64_t kKernel = W::kKernel[kDimension];
  if (W::kCountPadding) return static_cast<A>(kKernel);
  const Span span = pixels_of<W, kDimension>(window);
  return static_cast<A>(span.end - span.begin);
}

/// An element of an image, as N channels from one on: of an image, row and column.
struct Pixel {
  int64_t image, row, column, channel;

  Pixel(int64_t at, int64_t rows, int64_t columns, int64_t channels) {
    channel = at % channels;
    column = at / channels % columns;
    row = at / channels / columns % rows;
    image = at / channels / columns / rows;
  }
};

template <class W>
inline int64_t image_place(const Pixel& p, int64_t row, int64_t column) {
  return ((p.image * W::kHeight + row) * W::kWidth + column) * W::kChannels + p.channel;
}
template <class W>
inline int64_t window_place(const Pixel& p, int64_t row, int64_t column) {
  return ((p.image * W::kRows + row) * W::kColumns + column) * W::kChannels + p.channel;
}

/// Calls body(pixel, place of its channels) for n results, each of N channels.
template <int N, class Body>
inline void for_each_pixel(int64_t n, int64_t rows, int64_t columns, int64_t channels, Body body) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    body(Pixel(i * N, rows, columns, channels), i * N);
}

template <class W, int N, typename T>
inline void max_pool(const T* x, T* y, int64_t n) {
  for_each_pixel<N>(n, W::kRows, W::kColumns, W::kChannels, [&](const Pixel& p, int64_t to) {
    const Span rows = pixels_of<W, 0>(p.row), columns = pixels_of<W, 1>(p.column);
    Pack<T, N> best = load<N>(x + image_place<W>(p, rows.begin, columns.begin));
    for (int64_t h = rows.begin; h < rows.end; ++h)
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const Pack<T, N> each = load<N>(x + image_place<W>(p, h, w));
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const Sum<T> a = wide_of(each.at[k]);
          if (a > wide_of(best.at[k]) || a != a) best.at[k] = each.at[k];
        }
      }
    store<N>(y + to, best);
  });
}

/// Each pixel asks the windows that hold it, in their order, whether it is their first largest.
template <class W, int N, typename T>
inline void max_pool_grad(const T* x, const T* dy, T* dx, int64_t n) {
  for_each_pixel<N>(n, W::kHeight, W::kWidth, W::kChannels, [&](const Pixel& p, int64_t to) {
    const Span over = windows_of<W, 0>(p.row), across = windows_of<W, 1>(p.column);
    const int64_t own = p.row * W::kWidth + p.column;
    Sum<T> sums[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = Sum<T>(0);
    for (int64_t oh = over.begin; oh < over.end; ++oh)
      for (int64_t ow = across.begin; ow < across.end; ++ow) {
        const Span rows = pixels_of<W, 0>(oh), columns = pixels_of<W, 1>(ow);
        Pack<T, N> best = load<N>(x + image_place<W>(p, rows.begin, columns.begin));
        int64_t places[N];
#pragma unroll
        for (int k = 0; k < N; ++k) places[k] = rows.begin * W::kWidth + columns.begin;
        for (int64_t h = rows.begin; h < rows.end; ++h)
          for (int64_t w = columns.begin; w < columns.end; ++w) {
            const Pack<T, N> each = load<N>(x + image_place<W>(p, h, w));
#pragma unroll
            for (int k = 0; k < N; ++k) {
              const Sum<T> a = wide_of(each.at[k]), b = wide_of(best.at[k]);
              const bool is_larger_now = a > b || (a != a && b == b);
              if (is_larger_now) best.at[k] = each.at[k];
              places[k] = is_larger_now ? h * W::kWidth + w : places[k];
            }
          }
        const Pack<T, N> share = load<N>(dy + window_place<W>(p, oh, ow));
#pragma unroll
        for (int k = 0; k < N; ++k)
          if (places[k] == own) sums[k] = sums[k] + wide_of(share.at[k]);
      }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) narrow(result.at[k], sums[k]);
    store<N>(dx + to, result);
  });
}

template <class W, int N, typename T>
inline void avg_pool(const T* x, T* y, int64_t n) {
  using A = Sum<T>;
  for_each_pixel<N>(n, W::kRows, W::kColumns, W::kChannels, [&](const Pixel& p, int64_t to) {
    const Span rows = pixels_of<W, 0>(p.row), columns = pixels_of<W, 1>(p.column);
    A sums[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = A(0);
    for (int64_t h = rows.begin; h < rows.end; ++h)
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const Pack<T, N> each = load<N>(x + image_place<W>(p, h, w));
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] = sums[k] + wide_of(each.at[k]);
      }
    const A count = count_of<W, 0, A>(p.row) * count_of<W, 1, A>(p.column);
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) narrow(result.at[k], sums[k] / count);
    store<N>(y + to, result);
  });
}

/// Each pixel adds up what the windows that hold it give to it.
template <class W, int N, typename T>
inline void avg_pool_grad(const T* dy, T* dx, int64_t n) {
  using A = Sum<T>;
  for_each_pixel<N>(n, W::kHeight, W::kWidth, W::kChannels, [&](const Pixel& p, int64_t to) {
    const Span over = windows_of<W, 0>(p.row), across = windows_of<W, 1>(p.column);
    A sums[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = A(0);
    bool is_first = true;
    for (int64_t oh = over.begin; oh < over.end; ++oh)
      for (int64_t ow = across.begin; ow < across.end; ++ow) {
        const A share = (A(1) / count_of<W, 0, A>(oh)) * (A(1) / count_of<W, 1, A>(ow));
        const Pack<T, N> each = load<N>(dy + window_place<W>(p, oh, ow));
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const A own = wide_of(each.at[k]) * share;
          sums[k] = is_first ? own : sums[k] + own;
        }
        is_first = false;
      }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) narrow(result.at[k], sums[k]);
    store<N>(dx + to, result);
  });
}

}  // namespace ridge::cuda
