// Lists of tensors that one launch computes, whose addresses are one parameter.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

/// The addresses of the tensors of a list: a parameter of a kernel, by value.
template <int N>
struct Addresses {
  void* at[N];
};

/// The tensor that unit `unit` is of: `firsts` has the first unit of each.
inline uint32_t tensor_of(uint32_t unit, const uint32_t* firsts, uint32_t tensors) {
  uint32_t low = 0, high = tensors;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (firsts[middle] <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// One stage of reductions: of each tensor, which `list` has before its result, one element for
/// each piece of its elements. `pieces`: of all tensors.
template <class Op, typename T, int N, typename Index>
inline void reduce_list(const Addresses<N>& list,
                        const uint32_t* firsts,
                        const Index* lengths,
                        uint32_t tensors,
                        uint32_t pieces) {
  const uint32_t lane = threadIdx.x % kGroup, groups = blockDim.x / kGroup;
  for (uint32_t first = blockIdx.x * groups; first < pieces; first += gridDim.x * groups) {
    const uint32_t unit = first + threadIdx.x / kGroup;
    const uint32_t tensor = tensor_of(unit, firsts, tensors);
    const int64_t piece = unit - firsts[tensor];
    const T* const x = static_cast<const T*>(list.at[2 * tensor]);
    const T result = reduce_piece<Op>(x, lengths[tensor], piece, unit < pieces);
    if (lane == 0 && unit < pieces) static_cast<T*>(list.at[2 * tensor + 1])[piece] = result;
  }
}

inline constexpr int64_t kSummedRows = 64;

/// One stage of sums of all rows of several x (rows, columns), each of which `list` has before its
/// y (ceil(rows / 64), columns): row after row.
template <typename T, int N>
inline void sum_rows(const Addresses<N>& list, int64_t rows, int64_t columns, T divisor) {
  const int64_t elements = (rows + kSummedRows - 1) / kSummedRows * columns;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < N / 2 * elements;
       i += stride) {
    const int64_t tensor = i / elements, at = i % elements;
    const int64_t column = at % columns, begin = at / columns * kSummedRows;
    const int64_t end = begin + kSummedRows < rows ? begin + kSummedRows : rows;
    const T* const x = static_cast<const T*>(list.at[2 * tensor]);
    T sum = T(0);
#pragma unroll 8
    for (int64_t row = begin; row < end; ++row) sum = sum + x[row * columns + column];
    static_cast<T*>(list.at[2 * tensor + 1])[at] = sum / divisor;
  }
}

}  // namespace ridge::cuda
