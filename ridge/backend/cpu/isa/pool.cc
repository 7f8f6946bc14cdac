// Pooling of one window, over blocks of channels.
#include "ridge/backend/cpu/isa/halves.h"
#include "ridge/backend/cpu/isa/pool_kernels.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChannels = 128;  // at a time, in buffers on the stack

// n elements in the type of the sum: in place, or widened into the buffer.
template <typename T>
const Computed<T>* read(const T* from, Computed<T>* buffer, int64_t n) {
  if constexpr (kIsHalf<T>) {
    widen(from, buffer, n);
    return buffer;
  } else {
    return from;
  }
}

template <typename T>
void write(const Computed<T>* from, T* to, int64_t n) {
  if constexpr (kIsHalf<T>)
    narrow(from, to, n);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

// The signed integer as wide as T.
template <typename T>
struct PlaceOf {
  using Type = int32_t;
};
template <>
struct PlaceOf<double> {
  using Type = int64_t;
};

int64_t block_width(int64_t channels, int64_t c) {
  return channels - c < kChannels ? channels - c : kChannels;
}

// Calls visit(row, column, offset) for every pixel, rows first.
template <typename F>
void for_each_pixel(const PoolRectangle& r, F visit) {
  for (int64_t i = 0; i < r.rows; ++i)
    for (int64_t j = 0; j < r.cols; ++j) visit(i, j, i * r.row_stride + j * r.col_stride);
}

template <typename T>
void pool_max(const T* x, const PoolRectangle& r, T* y) {
  using Sum = Computed<T>;
  for (int64_t c = 0; c < r.channels; c += kChannels) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum best[kChannels], buffer[kChannels];
    write(read(x + c, buffer, n), best, n);
    for_each_pixel(r, [&](int64_t, int64_t, int64_t offset) {
      const Sum* pixel = read(x + offset + c, buffer, n);
      for (int64_t k = 0; k < n; ++k) {
        const bool larger = (pixel[k] > best[k]) | (pixel[k] != pixel[k]);
        best[k] = larger ? pixel[k] : best[k];
      }
    });
    write(best, y + c, n);
  }
}

template <typename T>
void pool_max_bytes(const T* x, const PoolRectangle& r, T* y) {
  for (int64_t c = 0; c < r.channels; c += kChannels) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) T best[kChannels];
    for (int64_t k = 0; k < n; ++k) best[k] = x[c + k];
    for_each_pixel(r, [&](int64_t, int64_t, int64_t offset) {
      const T* pixel = x + offset + c;
      for (int64_t k = 0; k < n; ++k) best[k] = pixel[k] > best[k] ? pixel[k] : best[k];
    });
    for (int64_t k = 0; k < n; ++k) y[c + k] = best[k];
  }
}

template <typename T>
void pool_max_grad(const T* x, const T* dy, const PoolRectangle& r, Computed<T>* dx) {
  using Sum = Computed<T>;
  using Place = typename PlaceOf<Sum>::Type;
  for (int64_t c = 0; c < r.channels; c += kChannels) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum best[kChannels], buffer[kChannels];
    alignas(64) Place places[kChannels] = {};
    write(read(x + c, buffer, n), best, n);
    for_each_pixel(r, [&](int64_t i, int64_t j, int64_t offset) {
      const Sum* pixel = read(x + offset + c, buffer, n);
      const auto place = static_cast<Place>(i * r.cols + j);
      for (int64_t k = 0; k < n; ++k) {
        const bool first_nan = (pixel[k] != pixel[k]) & (best[k] == best[k]);
        const bool larger = (pixel[k] > best[k]) | first_nan;
        best[k] = larger ? pixel[k] : best[k];
        places[k] = larger ? place : places[k];
      }
    });
    const Sum* shares = read(dy + c, buffer, n);
    for_each_pixel(r, [&](int64_t i, int64_t j, int64_t offset) {
      Sum* pixel = dx + offset + c;
      const auto place = static_cast<Place>(i * r.cols + j);
      for (int64_t k = 0; k < n; ++k) {
        const Sum sum = pixel[k] + shares[k];
        pixel[k] = places[k] == place ? sum : pixel[k];
      }
    });
  }
}

template <typename T>
void pool_avg(const T* x, const PoolRectangle& r, Computed<T> count, T* y) {
  using Sum = Computed<T>;
  for (int64_t c = 0; c < r.channels; c += kChannels) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum sum[kChannels] = {}, buffer[kChannels];
    for_each_pixel(r, [&](int64_t, int64_t, int64_t offset) {
      const Sum* pixel = read(x + offset + c, buffer, n);
      for (int64_t k = 0; k < n; ++k) sum[k] += pixel[k];
    });
    for (int64_t k = 0; k < n; ++k) sum[k] /= count;
    write(sum, y + c, n);
  }
}

// to[k] = from[k] * share, or that added to it.
template <typename Sum>
void add_share(const Sum* from, Sum share, bool first, int64_t n, Sum* to) {
  if (first) {
    RIDGE_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) to[k] = from[k] * share;
  } else {
    RIDGE_INDEPENDENT
    for (int64_t k = 0; k < n; ++k) to[k] += from[k] * share;
  }
}

template <typename T>
void pool_avg_grad(const T* dy,
                   const PoolRectangle& r,
                   const Computed<T>* row_shares,
                   const Computed<T>* col_shares,
                   T* dx) {
  using Sum = Computed<T>;
  if (r.rows == 0 || r.cols == 0) {
    for (int64_t k = 0; k < r.channels; ++k) dx[k] = T{};
    return;
  }
  for (int64_t c = 0; c < r.channels; c += kChannels) {
    const int64_t n = block_width(r.channels, c);
    const auto add = [&](int64_t i, int64_t j, const Sum* pixel, Sum* to) {
      add_share(pixel, row_shares[i] * col_shares[j], i + j == 0, n, to);
    };
    if constexpr (kIsHalf<T>) {
      alignas(64) Sum sum[kChannels], buffer[kChannels];
      for_each_pixel(r, [&](int64_t i, int64_t j, int64_t offset) {
        add(i, j, read(dy + offset + c, buffer, n), sum);
      });
      write(sum, dx + c, n);
    } else {
      for_each_pixel(
          r, [&](int64_t i, int64_t j, int64_t offset) { add(i, j, dy + offset + c, dx + c); });
    }
  }
}

template <typename T>
constexpr PoolKernels<T> kKernels = {pool_max<T>, pool_max_grad<T>, pool_avg<T>, pool_avg_grad<T>};

}  // namespace

namespace RIDGE_ISA {
const AllPoolKernels pool_kernels = {kKernels<float>,
                                     kKernels<double>,
                                     kKernels<F16Bits>,
                                     kKernels<BF16Bits>,
                                     pool_max_bytes<int8_t>,
                                     pool_max_bytes<uint8_t>};
}

}  // namespace ridge::cpu
