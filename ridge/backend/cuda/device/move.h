// Moving elements through shared memory.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

/// Writes a square of `from` (rows, columns), the rows `row_stride` apart, as columns of `to`,
/// whose rows are `column_stride` apart; `down` and `across` say which square. For 256 threads.
template <typename T, int kSide>
inline void transpose_tile(const T* from,
                           int64_t row_stride,
                           T* to,
                           int64_t column_stride,
                           int64_t down,
                           int64_t rows,
                           int64_t across,
                           int64_t columns) {
  // Rows have one word more, so that neighbours in a column lie in different banks.
  constexpr int kSpare = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  constexpr int kAtOnce = 256 / kSide;
  __shared__ T tile[kSide][kSide + kSpare];
  const int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;
  const int64_t row = down * kSide, column = across * kSide;
#pragma unroll
  for (int k = 0; k < kSide; k += kAtOnce)
    if (row + y + k < rows && column + x < columns)
      tile[y + k][x] = from[(row + y + k) * row_stride + column + x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSide; k += kAtOnce)
    if (column + y + k < columns && row + x < rows)
      to[(column + y + k) * column_stride + row + x] = tile[x][y + k];
  __syncthreads();
}

}  // namespace ridge::cuda
