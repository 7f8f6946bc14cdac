// Four neighbours of a row, at column c: how a pass over its elements reads and writes them.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

/// Within the row, and aligned.
struct WholePack {
  template <typename T>
  static Pack<T, 4> load(const T* row, int32_t c) {
    return ridge::cuda::load<4>(row + c);
  }
  template <typename T>
  static void store(T* row, int32_t c, const Pack<T, 4>& x) {
    ridge::cuda::store<4>(row + c, x);
  }
  static bool has(int32_t) { return true; }
};

/// Within the row, wherever they lie.
struct UnalignedPack {
  template <typename T>
  static Pack<T, 4> load(const T* row, int32_t c) {
    Pack<T, 4> x;
#pragma unroll
    for (int k = 0; k < 4; ++k) x.at[k] = row[c + k];
    return x;
  }
  template <typename T>
  static void store(T* row, int32_t c, const Pack<T, 4>& x) {
#pragma unroll
    for (int k = 0; k < 4; ++k) row[c + k] = x.at[k];
  }
  static bool has(int32_t) { return true; }
};

/// Only some of them are the row's; what is loaded of others is zero.
struct EdgePack {
  int32_t columns;

  bool has(int32_t c) const { return c >= 0 && c < columns; }
  template <typename T>
  Pack<T, 4> load(const T* row, int32_t c) const {
    Pack<T, 4> x;
#pragma unroll
    for (int k = 0; k < 4; ++k) x.at[k] = has(c + k) ? row[c + k] : T{};
    return x;
  }
  template <typename T>
  void store(T* row, int32_t c, const Pack<T, 4>& x) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (has(c + k)) row[c + k] = x.at[k];
  }
};

}  // namespace ridge::cuda
