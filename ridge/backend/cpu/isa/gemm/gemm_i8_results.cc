// The results of products of bytes: loops that the compiler makes vectors of.
#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu::RIDGE_ISA {
namespace {

// Both wrap around, as sums do.
int32_t minus(int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(y));
}
int32_t times(int32_t x, int32_t y) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) * static_cast<uint32_t>(y));
}

void subtract(int32_t* __restrict sums, int32_t factor, const int32_t* by, int64_t count) {
  for (int64_t j = 0; j < count; ++j) sums[j] = minus(sums[j], times(factor, by[j]));
}

// A row of results. x * 1 and x + -0 are x, whatever x is.
struct Row {
  const int32_t* __restrict sums;
  const int32_t* __restrict terms;
  const float* __restrict scales;
  float scale;
  const float* __restrict bias;
  int32_t zero, low, high;

  int32_t sum(int64_t j) const { return minus(sums[j], terms[j]); }
  float scaled(int64_t j) const {
    const float x = static_cast<float>(sum(j)) * scales[j] * scale;
    return x + (bias == nullptr ? -0.0f : bias[j]);
  }
};

inline void write_one(const Row& row, int64_t j, float& to) { to = row.scaled(j); }
inline void write_one(const Row& row, int64_t j, int32_t& to) { to = row.sum(j); }
// The limits are integers, so they may come before the rounding.
template <typename T>
void write_one(const Row& row, int64_t j, T& to) {
  const float least = static_cast<float>(row.low - row.zero);
  const float most = static_cast<float>(row.high - row.zero);
  const float x = row.scaled(j);
  float y = x > least ? x : least;
  y = y < most ? y : most;
  const int32_t rounded = static_cast<int32_t>(__builtin_rintf(y)) + row.zero;
  to = static_cast<T>(x == x ? rounded : 0);  // 0 for NaN
}

template <typename T>
void write_row(const Row& x, T* __restrict to, int64_t count) {
  const Row row = x;
  for (int64_t j = 0; j < count; ++j) write_one(row, j, to[j]);
}

template <typename T>
void write(const GemmI8Results& r) {
  constexpr int64_t kStrip = kI8Panels * kI8Lanes;
  constexpr int64_t kAhead = 8;  // rows whose lines are fetched
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < r.rows; ++i) {
    int32_t* const sums = r.sums + i * r.sums_row;
    if (r.row_zeros != nullptr) subtract(sums, r.row_zeros[i], r.column_sums, r.columns);
    if (r.row_terms != nullptr) subtract(sums, r.row_terms[i], r.column_zeros, r.columns);
    const float scale = r.row_scales == nullptr ? 1.0f : r.row_scales[i];
    const Row row{sums, r.column_terms, r.column_scales, scale, r.bias, r.zero, r.low, r.high};
    T* const to = static_cast<T*>(r.to) + i * r.to_row;
    for (int64_t j = 0; i + kAhead < r.rows && j < r.columns; j += kLine)
      __builtin_prefetch(to + kAhead * r.to_row + j, 1);
    // A number of columns that the compiler knows makes no loop of it.
    r.columns == kStrip ? write_row(row, to, kStrip) : write_row(row, to, r.columns);
  }
}

}  // namespace

const GemmI8ResultKernels gemm_i8_result_kernels = {
    write<int32_t>, write<float>, write<int8_t>, write<uint8_t>};

}  // namespace ridge::cpu::RIDGE_ISA
