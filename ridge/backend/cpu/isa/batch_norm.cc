// Batch norm and its gradient, each in three steps: sums of chunks of rows, their combination, and
// the result. Reads from memory what it needs twice; the activation costs no pass.
#include "ridge/backend/cpu/isa/batch_norm_kernels.h"
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/norm_activations.h"

namespace ridge::cpu {
namespace {

constexpr int kRows = 4;  // taken together in the sums
// Rows that are summed in the computed dtype; over more of them, sums go on in f64.
constexpr int64_t kSummed = 64;

// A range of channels [begin, end).
struct Tile {
  Tile(const BatchNormData& d, int64_t index)
      : begin(index * kNormColumns), end(least(d.channels, begin + kNormColumns)) {}
  int64_t columns() const { return end - begin; }
  int64_t begin;
  int64_t end;
};

int64_t tile_count(const BatchNormData& d) {
  return (d.channels + kNormColumns - 1) / kNormColumns;
}

// One of the numbers that there is for each channel.
template <typename T>
Computed<T> of_channel(const BatchNormData& d, const void* from, int64_t c) {
  if constexpr (kIsHalf<T>)
    if (d.wide_channels) return static_cast<const float*>(from)[c];
  return wide(static_cast<const T*>(from)[c]);
}

template <typename T>
void set_channel(const BatchNormData& d, void* to, int64_t c, Computed<T> value) {
  if constexpr (kIsHalf<T>)
    if (d.wide_channels) {
      static_cast<float*>(to)[c] = value;
      return;
    }
  static_cast<T*>(to)[c] = rounded<T>(value);
}

// Some columns of some rows in the type of the sums: where they lie, or widened.
template <typename T>
class WideRows {
 public:
  using A = Computed<T>;
  const A* row(int k, const T* from, int64_t columns) {
    if constexpr (kIsHalf<T>) {
      widen(from, buffers_[k], columns);
      return buffers_[k];
    } else {
      return from;
    }
  }

 private:
  struct Nothing {};
  alignas(64) std::conditional_t<kIsHalf<T>, A[kRows][kNormColumns], Nothing> buffers_;
};

// ---- forward ----

// Adds the deviations of n <= kRows rows from `center` to `one`, their squares to `two`.
template <int n, typename A>
void add_deviations(const A* const* x, const A* center, int64_t columns, A* one, A* two) {
  const A *a = x[0], *b = x[n > 1], *c = x[n > 2 ? 2 : 0], *d = x[n > 2 ? 3 : 0];
  RIDGE_INDEPENDENT
  for (int64_t j = 0; j < columns; ++j) {
    const A m = center[j];
    const A e = a[j] - m;
    if constexpr (n == 1) {
      one[j] = one[j] + e;
      two[j] = fma_of(e, e, two[j]);
    } else {
      const A f = b[j] - m, g = c[j] - m, h = d[j] - m;
      one[j] = one[j] + ((e + f) + (g + h));
      two[j] = two[j] + (fma_of(e, e, f * f) + fma_of(g, g, h * h));
    }
  }
}

void prepare_forward(const BatchNormData&, int64_t, int64_t) {}

// The mean of the first few rows: near enough to the chunk's that squares of deviations from it
// lose nothing.
template <typename T>
void find_center(const T* x, int64_t stride, int64_t n, int64_t columns, Computed<T>* center) {
  using A = Computed<T>;
  constexpr int64_t kFew = 8;
  const int64_t rows = least(n, kFew);
  for (int64_t j = 0; j < columns; ++j) center[j] = wide(x[j]);
  for (int64_t r = 1; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) center[j] = center[j] + wide(x[r * stride + j]);
  for (int64_t j = 0; j < columns; ++j) center[j] = center[j] / static_cast<A>(rows);
}

// Mean and squared deviations of each column of one chunk.
template <typename T>
void collect_forward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) A center[kNormColumns];
  alignas(64) A one[kNormColumns];
  alignas(64) A two[kNormColumns];
  alignas(64) double ones[kNormColumns];
  alignas(64) double twos[kNormColumns];
  WideRows<T> wide_rows;
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index % tile_count(d));
    const int64_t chunk = index / tile_count(d), first = chunk * d.chunk;
    const int64_t n = least(d.chunk, d.rows - first), columns = tile.columns();
    const T* x = static_cast<const T*>(d.x) + first * d.channels + tile.begin;
    find_center(x, d.channels, n, columns, center);
    for (int64_t j = 0; j < columns; ++j) ones[j] = twos[j] = 0;
    for (int64_t r = 0; r < n;) {
      for (int64_t j = 0; j < columns; ++j) one[j] = two[j] = A(0);
      const int64_t stop = least(n, r + kSummed);
      for (; r + kRows <= stop; r += kRows) {
        const A* rows[kRows];
        for (int k = 0; k < kRows; ++k)
          rows[k] = wide_rows.row(k, x + (r + k) * d.channels, columns);
        add_deviations<kRows>(rows, center, columns, one, two);
      }
      for (; r < stop; ++r) {
        const A* row = wide_rows.row(0, x + r * d.channels, columns);
        add_deviations<1>(&row, center, columns, one, two);
      }
      for (int64_t j = 0; j < columns; ++j) {
        ones[j] += static_cast<double>(one[j]);
        twos[j] += static_cast<double>(two[j]);
      }
    }
    double* mean = d.chunk_first + chunk * d.channels + tile.begin;
    double* square = d.chunk_second + chunk * d.channels + tile.begin;
    const auto count = static_cast<double>(n);
    for (int64_t j = 0; j < columns; ++j) {
      const double missed = ones[j] / count;
      mean[j] = static_cast<double>(center[j]) + missed;
      square[j] = variance_of(twos[j] / count, missed) * count;
    }
  }
}

// Chunk by chunk, in order (Chan, Golub and LeVeque, "Algorithms for computing the sample
// variance", 1983), in f64: mean[j] and square[j] of all rows.
void combine_chunks(const BatchNormData& d, const Tile& tile, double* mean, double* square) {
  const int64_t columns = tile.columns();
  for (int64_t j = 0; j < columns; ++j) {
    mean[j] = d.chunk_first[tile.begin + j];
    square[j] = d.chunk_second[tile.begin + j];
  }
  for (int64_t first = d.chunk; first < d.rows; first += d.chunk) {
    const int64_t n = least(d.chunk, d.rows - first);
    const double share = static_cast<double>(n) / static_cast<double>(first + n);
    const double weight = share * static_cast<double>(first);
    const double* means = d.chunk_first + first / d.chunk * d.channels + tile.begin;
    const double* squares = d.chunk_second + first / d.chunk * d.channels + tile.begin;
    for (int64_t j = 0; j < columns; ++j) {
      const double step = means[j] - mean[j];
      mean[j] += step * share;
      square[j] += squares[j] + step * step * weight;
    }
  }
}

// Tables: the mean, what a deviation from it is multiplied by, the shift.
template <typename T>
void combine_forward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) double mean[kNormColumns];
  alignas(64) double square[kNormColumns];
  A* table = static_cast<A*>(d.table);
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index);
    combine_chunks(d, tile, mean, square);
    for (int64_t c = tile.begin; c < tile.end; ++c) {
      const double center = mean[c - tile.begin];
      const double variance = square[c - tile.begin] / static_cast<double>(d.rows);
      set_channel<T>(d, d.mean, c, static_cast<A>(center));
      set_channel<T>(d, d.variance, c, static_cast<A>(variance));
      const auto gamma = static_cast<double>(of_channel<T>(d, d.gamma, c));
      const A high = static_cast<A>(center);
      const double scale = gamma / sqrt_of(variance + d.eps);
      const auto beta = static_cast<double>(of_channel<T>(d, d.beta, c));
      table[c] = high;
      table[d.channels + c] = static_cast<A>(scale);
      // The rounding error of the mean goes into the shift.
      table[2 * d.channels + c] =
          static_cast<A>(beta - (center - static_cast<double>(high)) * scale);
    }
  }
}

template <class Activation, typename A>
void normalize(const A* x, const A* table, int64_t channels, int64_t n, A* y) {
  const A* mean = table;
  const A* scale = mean + channels;
  const A* shift = scale + channels;
  RIDGE_INDEPENDENT
  for (int64_t c = 0; c < n; ++c) y[c] = Activation::of(fma_of(x[c] - mean[c], scale[c], shift[c]));
}

template <typename T, class Activation>
void write_forward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  const A* table = static_cast<const A*>(d.table);
  alignas(64) A block[kBlock];
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(d.x) + r * d.channels;
    T* y = static_cast<T*>(d.result) + r * d.channels;
    if constexpr (kIsHalf<T>) {
      for (int64_t c = 0; c < d.channels; c += kBlock) {
        const int64_t n = least(kBlock, d.channels - c);
        widen(x + c, block, n);
        normalize<Activation>(block, table + c, d.channels, n, block);
        narrow(block, y + c, n);
      }
    } else {
      normalize<Activation>(x, table, d.channels, d.channels, y);
    }
  }
}

// ---- backward ----

// Columns of the tables of a norm: the activation's input is (x - mean) * scale + shift.
template <typename A>
struct Form {
  const A* mean;
  const A* scale;
  const A* shift;
};

// Tables: mean, scale and shift of the normal form; then of the result.
template <typename A>
Form<A> form_of(const BatchNormData& d, int64_t column) {
  const A* table = static_cast<const A*>(d.table) + column;
  return {table, table + d.channels, table + 2 * d.channels};
}

template <typename T>
void prepare_backward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  A* table = static_cast<A*>(d.table);
  const auto at = [&](const void* p, int64_t c) { return of_channel<T>(d, p, c); };
  for (int64_t c = begin; c < end; ++c) {
    const double variance = static_cast<double>(at(d.variance, c));
    table[c] = at(d.mean, c);
    table[d.channels + c] =
        static_cast<A>(static_cast<double>(at(d.gamma, c)) / sqrt_of(variance + d.eps));
    table[2 * d.channels + c] = at(d.beta, c);
  }
}

// Adds dz of n <= kRows rows to `one`, dz times the deviation of x to `two`.
template <class Activation, int n, typename A>
void add_products(
    const A* const* x, const A* const* dy, const Form<A>& form, int64_t columns, A* one, A* two) {
  constexpr int kB = n > 1 ? 1 : 0, kC = n > 1 ? 2 : 0, kD = n > 1 ? 3 : 0;
  const A *x0 = x[0], *x1 = x[kB], *x2 = x[kC], *x3 = x[kD];
  const A *y0 = dy[0], *y1 = dy[kB], *y2 = dy[kC], *y3 = dy[kD];
  const A *mean = form.mean, *scale = form.scale, *shift = form.shift;
  RIDGE_INDEPENDENT
  for (int64_t j = 0; j < columns; ++j) {
    const A m = mean[j], a = scale[j], b = shift[j];
    const auto dz = [&](A deviation, A gradient) {
      return Activation::lets_through(fma_of(deviation, a, b)) ? gradient : A(0);
    };
    const A e = x0[j] - m;
    const A p = dz(e, y0[j]);
    if constexpr (n == 1) {
      one[j] = one[j] + p;
      two[j] = fma_of(p, e, two[j]);
    } else {
      const A f = x1[j] - m, g = x2[j] - m, h = x3[j] - m;
      const A q = dz(f, y1[j]), r = dz(g, y2[j]), s = dz(h, y3[j]);
      one[j] = one[j] + ((p + q) + (r + s));
      two[j] = two[j] + (fma_of(p, e, q * f) + fma_of(r, g, s * h));
    }
  }
}

template <typename T, class Activation>
void collect_backward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) A one[kNormColumns];
  alignas(64) A two[kNormColumns];
  WideRows<T> wide_x, wide_dy;
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index % tile_count(d));
    const int64_t chunk = index / tile_count(d), first = chunk * d.chunk;
    const int64_t n = least(d.chunk, d.rows - first), columns = tile.columns();
    const T* x = static_cast<const T*>(d.x) + first * d.channels + tile.begin;
    const T* dy = static_cast<const T*>(d.dy) + first * d.channels + tile.begin;
    const Form<A> form = form_of<A>(d, tile.begin);
    for (int64_t j = 0; j < columns; ++j) one[j] = two[j] = A(0);
    const A *x_rows[kRows], *dy_rows[kRows];
    int64_t r = 0;
    for (; r + kRows <= n; r += kRows) {
      for (int k = 0; k < kRows; ++k) {
        x_rows[k] = wide_x.row(k, x + (r + k) * d.channels, columns);
        dy_rows[k] = wide_dy.row(k, dy + (r + k) * d.channels, columns);
      }
      add_products<Activation, kRows>(x_rows, dy_rows, form, columns, one, two);
    }
    for (; r < n; ++r) {
      x_rows[0] = wide_x.row(0, x + r * d.channels, columns);
      dy_rows[0] = wide_dy.row(0, dy + r * d.channels, columns);
      add_products<Activation, 1>(x_rows, dy_rows, form, columns, one, two);
    }
    for (int64_t j = 0; j < columns; ++j) {
      d.chunk_first[chunk * d.channels + tile.begin + j] = static_cast<double>(one[j]);
      d.chunk_second[chunk * d.channels + tile.begin + j] = static_cast<double>(two[j]);
    }
  }
}

// Tables: dz - mean(dz) - normal mean(dz normal), in terms of the deviation from the mean.
template <typename T>
void combine_backward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  alignas(64) double sums[kNormColumns];
  alignas(64) double products[kNormColumns];
  A* table = static_cast<A*>(d.table);
  const auto rows = static_cast<double>(d.rows);
  for (int64_t index = begin; index < end; ++index) {
    const Tile tile(d, index);
    for (int64_t j = 0; j < tile.columns(); ++j) sums[j] = products[j] = 0.0;
    for (int64_t first = 0; first < d.rows; first += d.chunk)
      for (int64_t j = 0; j < tile.columns(); ++j) {
        const int64_t at = first / d.chunk * d.channels + tile.begin + j;
        sums[j] += d.chunk_first[at];
        products[j] += d.chunk_second[at];
      }
    for (int64_t c = tile.begin; c < tile.end; ++c) {
      const double sum = sums[c - tile.begin], product = products[c - tile.begin];
      const auto variance = static_cast<double>(of_channel<T>(d, d.variance, c));
      const double deviation = 1.0 / sqrt_of(variance + d.eps);
      set_channel<T>(d, d.dgamma, c, static_cast<A>(product * deviation));
      set_channel<T>(d, d.dbeta, c, static_cast<A>(sum));
      table[3 * d.channels + c] = static_cast<A>(deviation * deviation * product / rows);
      table[4 * d.channels + c] = static_cast<A>(sum / rows);
    }
  }
}

template <class Activation, typename A>
void differentiate(const A* x, const A* dy, const A* table, int64_t channels, int64_t n, A* dx) {
  const A* mean = table;
  const A* scale = mean + channels;
  const A* shift = scale + channels;
  const A* slope = shift + channels;
  const A* base = slope + channels;
  RIDGE_INDEPENDENT
  for (int64_t c = 0; c < n; ++c) {
    const A deviation = x[c] - mean[c];
    const bool through = Activation::lets_through(fma_of(deviation, scale[c], shift[c]));
    const A dz = through ? dy[c] : A(0);
    dx[c] = fma_of(-deviation, slope[c], dz - base[c]) * scale[c];
  }
}

template <typename T, class Activation>
void write_backward(const BatchNormData& d, int64_t begin, int64_t end) {
  using A = Computed<T>;
  const A* table = static_cast<const A*>(d.table);
  alignas(64) A x_block[kBlock];
  alignas(64) A dy_block[kBlock];
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(d.x) + r * d.channels;
    const T* dy = static_cast<const T*>(d.dy) + r * d.channels;
    T* dx = static_cast<T*>(d.result) + r * d.channels;
    if constexpr (kIsHalf<T>) {
      for (int64_t c = 0; c < d.channels; c += kBlock) {
        const int64_t n = least(kBlock, d.channels - c);
        widen(x + c, x_block, n);
        widen(dy + c, dy_block, n);
        differentiate<Activation>(x_block, dy_block, table + c, d.channels, n, x_block);
        narrow(x_block, dx + c, n);
      }
    } else {
      differentiate<Activation>(x, dy, table, d.channels, d.channels, dx);
    }
  }
}

template <typename T, class Activation>
constexpr BatchNormSteps kForward = {
    prepare_forward, collect_forward<T>, combine_forward<T>, write_forward<T, Activation>};
template <typename T, class Activation>
constexpr BatchNormSteps kBackward = {prepare_backward<T>,
                                      collect_backward<T, Activation>,
                                      combine_backward<T>,
                                      write_backward<T, Activation>};

}  // namespace

// In the order of NormActivation.
#define RIDGE_ACTIVATIONS(STEPS, T) \
  {STEPS<T, NoActivation>, STEPS<T, ReluActivation>, STEPS<T, Relu6Activation>}

namespace RIDGE_ISA {
extern const BatchNormKernels batch_norm_kernels = {{RIDGE_ACTIVATIONS(kForward, double),
                                                     RIDGE_ACTIVATIONS(kForward, float),
                                                     RIDGE_ACTIVATIONS(kForward, F16Bits),
                                                     RIDGE_ACTIVATIONS(kForward, BF16Bits)},
                                                    {RIDGE_ACTIVATIONS(kBackward, double),
                                                     RIDGE_ACTIVATIONS(kBackward, float),
                                                     RIDGE_ACTIVATIONS(kBackward, F16Bits),
                                                     RIDGE_ACTIVATIONS(kBackward, BF16Bits)}};
}

#undef RIDGE_ACTIVATIONS

}  // namespace ridge::cpu
