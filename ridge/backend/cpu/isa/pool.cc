// Pooling of one window, over blocks of channels.
#include "ridge/backend/cpu/isa/half_kernels.h"
#include "ridge/backend/cpu/isa/pool_kernels.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlock = 128;  // channels at a time, in buffers on the stack

// n elements in the type of the sum: in place, or widened into the buffer.
const float* read(const float* from, float*, int64_t) { return from; }
const double* read(const double* from, double*, int64_t) { return from; }
const float* read(const F16Bits* from, float* buffer, int64_t n) {
  RIDGE_ISA::half_kernels.widen_f16(from, buffer, n);
  return buffer;
}
const float* read(const BF16Bits* from, float* buffer, int64_t n) {
  RIDGE_ISA::half_kernels.widen_bf16(from, buffer, n);
  return buffer;
}

template <typename T>
void write(const T* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}
void write(const float* from, F16Bits* to, int64_t n) {
  RIDGE_ISA::gemm_kernels.narrow_f16(from, to, n);
}
void write(const float* from, BF16Bits* to, int64_t n) {
  RIDGE_ISA::gemm_kernels.narrow_bf16(from, to, n);
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
  return channels - c < kBlock ? channels - c : kBlock;
}

// Calls visit(row, column, offset) for every pixel, rows first.
template <typename F>
void for_each_pixel(const PoolRectangle& r, F visit) {
  for (int64_t i = 0; i < r.rows; ++i)
    for (int64_t j = 0; j < r.cols; ++j) visit(i, j, i * r.row_stride + j * r.col_stride);
}

template <typename T>
void pool_max(const T* x, const PoolRectangle& r, T* y) {
  using Sum = typename PoolSum<T>::Type;
  for (int64_t c = 0; c < r.channels; c += kBlock) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum best[kBlock], buffer[kBlock];
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
void pool_max_grad(const T* x, const T* dy, const PoolRectangle& r, typename PoolSum<T>::Type* dx) {
  using Sum = typename PoolSum<T>::Type;
  using Place = typename PlaceOf<Sum>::Type;
  for (int64_t c = 0; c < r.channels; c += kBlock) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum best[kBlock], buffer[kBlock];
    alignas(64) Place places[kBlock] = {};
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
void pool_avg(const T* x, const PoolRectangle& r, typename PoolSum<T>::Type count, T* y) {
  using Sum = typename PoolSum<T>::Type;
  for (int64_t c = 0; c < r.channels; c += kBlock) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum sum[kBlock] = {}, buffer[kBlock];
    for_each_pixel(r, [&](int64_t, int64_t, int64_t offset) {
      const Sum* pixel = read(x + offset + c, buffer, n);
      for (int64_t k = 0; k < n; ++k) sum[k] += pixel[k];
    });
    for (int64_t k = 0; k < n; ++k) sum[k] /= count;
    write(sum, y + c, n);
  }
}

template <typename T>
void pool_avg_grad(const T* dy,
                   const PoolRectangle& r,
                   const typename PoolSum<T>::Type* row_counts,
                   const typename PoolSum<T>::Type* col_counts,
                   T* dx) {
  using Sum = typename PoolSum<T>::Type;
  for (int64_t c = 0; c < r.channels; c += kBlock) {
    const int64_t n = block_width(r.channels, c);
    alignas(64) Sum sum[kBlock] = {}, buffer[kBlock];
    for_each_pixel(r, [&](int64_t i, int64_t j, int64_t offset) {
      const Sum* pixel = read(dy + offset + c, buffer, n);
      const Sum count = row_counts[i] * col_counts[j];
      for (int64_t k = 0; k < n; ++k) sum[k] += pixel[k] / count;
    });
    write(sum, dx + c, n);
  }
}

template <typename T>
constexpr PoolKernels<T> kKernels = {pool_max<T>, pool_max_grad<T>, pool_avg<T>, pool_avg_grad<T>};

}  // namespace

namespace RIDGE_ISA {
const AllPoolKernels pool_kernels = {
    kKernels<float>, kKernels<double>, kKernels<F16Bits>, kKernels<BF16Bits>};
}

}  // namespace ridge::cpu
