// Batch norm in three steps: statistics of chunks of rows while they lie in the cache, their
// combination, and the normal form. Reads x from memory twice.
#include "ridge/backend/cpu/isa/columns.h"
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/norm_kernels.h"

namespace ridge::cpu {
namespace {

// A range of channels [begin, end).
struct Tile {
  Tile(const BatchNormData& d, int64_t index)
      : begin(index * kNormColumns), end(least(d.channels, begin + kNormColumns)) {}
  int64_t begin;
  int64_t end;
};

int64_t tile_count(const BatchNormData& d) {
  return (d.channels + kNormColumns - 1) / kNormColumns;
}

// Adds the deviations of `columns` columns of n rows from `shift` to `one`, their squares to `two`.
template <typename T, typename A>
void add_deviations(
    const T* x, int64_t stride, int64_t n, int64_t columns, const A* shift, A* one, A* two) {
  for (int64_t j = 0; j < columns; j += kLanes) {
    const int count = static_cast<int>(least(kLanes, columns - j));
    const auto center = Lanes<A>::load(shift + j);
    auto first = Lanes<A>::load(one + j);
    auto second = Lanes<A>::load(two + j);
    const auto deviation = [&](int64_t r) {
      return lanes_at<A>(x + r * stride, j, count, A(0)) - center;
    };
    const auto square = [](const Lanes<A>& d) { return d * d; };
    int64_t r = 0;
    for (; r + 4 <= n; r += 4) {
      const auto a = deviation(r), b = deviation(r + 1), c = deviation(r + 2), d = deviation(r + 3);
      first = first + ((a + b) + (c + d));
      second = second + ((square(a) + square(b)) + (square(c) + square(d)));
    }
    for (; r < n; ++r) {
      const auto a = deviation(r);
      first = first + a;
      second = second + square(a);
    }
    first.store(one + j);
    second.store(two + j);
  }
}

// Mean and squared deviations of each column of one chunk. The rows are read three times, from the
// cache.
template <typename T>
void chunk_statistics(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) A sum[kNormColumns];
  alignas(64) A one[kNormColumns];
  alignas(64) A two[kNormColumns];
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index % tile_count(d));
    const int64_t chunk = index / tile_count(d), first = chunk * d.chunk;
    const int64_t n = least(d.chunk, d.rows - first), columns = tile.end - tile.begin;
    const T* x = static_cast<const T*>(d.x) + first * d.channels + tile.begin;
    reduce_columns<Plus>(x, d.channels, n, columns, sum);
    for (int64_t j = 0; j < kNormColumns; ++j) {
      sum[j] = j < columns ? sum[j] / static_cast<A>(n) : A(0);
      one[j] = two[j] = A(0);
    }
    add_deviations(x, d.channels, n, columns, sum, one, two);
    double* mean = d.chunk_means + chunk * d.channels + tile.begin;
    double* square = d.chunk_squares + chunk * d.channels + tile.begin;
    const auto count = static_cast<double>(n);
    for (int64_t j = 0; j < columns; ++j) {
      const double missed = static_cast<double>(one[j]) / count;
      mean[j] = static_cast<double>(sum[j]) + missed;
      square[j] = variance_of(static_cast<double>(two[j]) / count, missed) * count;
    }
  }
}

// Chunk by chunk, in order (Chan, Golub and LeVeque, "Algorithms for computing the sample
// variance", 1983), in f64: mean[j] and square[j] of all rows.
void combine_chunks(
    const BatchNormData& d, int64_t begin, int64_t columns, double* mean, double* square) {
  for (int64_t j = 0; j < columns; ++j) {
    mean[j] = d.chunk_means[begin + j];
    square[j] = d.chunk_squares[begin + j];
  }
  for (int64_t first = d.chunk; first < d.rows; first += d.chunk) {
    const int64_t n = least(d.chunk, d.rows - first);
    const double share = static_cast<double>(n) / static_cast<double>(first + n);
    const double weight = share * static_cast<double>(first);
    const double* means = d.chunk_means + first / d.chunk * d.channels + begin;
    const double* squares = d.chunk_squares + first / d.chunk * d.channels + begin;
    for (int64_t j = 0; j < columns; ++j) {
      const double step = means[j] - mean[j];
      mean[j] += step * share;
      square[j] += squares[j] + step * step * weight;
    }
  }
}

template <typename T>
void statistics(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) double mean[kNormColumns];
  alignas(64) double square[kNormColumns];
  A* scaling = static_cast<A*>(d.scaling);
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index);
    combine_chunks(d, tile.begin, tile.end - tile.begin, mean, square);
    for (int64_t c = tile.begin; c < tile.end; ++c) {
      const double center = mean[c - tile.begin];
      const double variance = square[c - tile.begin] / static_cast<double>(d.rows);
      static_cast<T*>(d.mean)[c] = rounded<T>(static_cast<A>(center));
      static_cast<T*>(d.variance)[c] = rounded<T>(static_cast<A>(variance));
      const auto gamma = static_cast<double>(wide(static_cast<const T*>(d.gamma)[c]));
      const A high = static_cast<A>(center);
      scaling[c] = high;
      scaling[d.channels + c] = static_cast<A>(center - static_cast<double>(high));
      scaling[2 * d.channels + c] = static_cast<A>(gamma / sqrt_of(variance + d.eps));
      scaling[3 * d.channels + c] = wide(static_cast<const T*>(d.beta)[c]);
    }
  }
}

template <typename A>
void normalize_columns(const A* x, const A* scaling, int64_t channels, int64_t n, A* y) {
  const A* high = scaling;
  const A* low = high + channels;
  const A* scale = low + channels;
  const A* shift = scale + channels;
  RIDGE_INDEPENDENT
  for (int64_t c = 0; c < n; ++c) y[c] = fma_of(x[c] - high[c] - low[c], scale[c], shift[c]);
}

template <typename T>
void normalize(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  const A* scaling = static_cast<const A*>(d.scaling);
  alignas(64) A block[kBlock];
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(d.x) + r * d.channels;
    T* y = static_cast<T*>(d.y) + r * d.channels;
    if constexpr (kIsHalf<T>) {
      for (int64_t c = 0; c < d.channels; c += kBlock) {
        const int64_t n = least(kBlock, d.channels - c);
        widen(x + c, block, n);
        normalize_columns(block, scaling + c, d.channels, n, block);
        narrow(block, y + c, n);
      }
    } else {
      normalize_columns(x, scaling, d.channels, d.channels, y);
    }
  }
}

}  // namespace

namespace RIDGE_ISA {
extern const BatchNormKernels batch_norm_kernels = {
    {chunk_statistics<double>,
     chunk_statistics<float>,
     chunk_statistics<F16Bits>,
     chunk_statistics<BF16Bits>},
    {statistics<double>, statistics<float>, statistics<F16Bits>, statistics<BF16Bits>},
    {normalize<double>, normalize<float>, normalize<F16Bits>, normalize<BF16Bits>}};
}

}  // namespace ridge::cpu
