// Applies a function to every element: 16-bit floats by blocks in f32, rounded once.
#pragma once

#include "ridge/backend/cpu/isa/forms.h"
#include "ridge/backend/cpu/isa/halves.h"

namespace ridge::cpu {
namespace {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// y[i] = Op::of(x[i]); Out is T, or Bool8 where Op::of gives a bool.
template <class Op, typename T, typename Out>
void map(const void* x, void* y, int64_t n) {
  const T* from = static_cast<const T*>(x);
  Out* to = static_cast<Out*>(y);
  if constexpr (kIsHalf<T>) {
    alignas(64) float block[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(from + begin, block, count);
      if constexpr (std::is_same_v<Out, T>) {
        for (int64_t i = 0; i < count; ++i) block[i] = Op::of(block[i]);
        narrow(block, to + begin, count);
      } else {
        for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<Out>(Op::of(block[i]));
      }
    }
  } else {
    RIDGE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(Op::of(from[i]));
  }
}

// y[i] = Op::of(a[i], b[i]).
template <class Op, typename T, typename Out>
void map2(const void* a, const void* b, void* y, int64_t n) {
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  Out* to = static_cast<Out*>(y);
  if constexpr (kIsHalf<T>) {
    alignas(64) float x[kBlock];
    alignas(64) float z[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(left + begin, x, count);
      widen(right + begin, z, count);
      if constexpr (std::is_same_v<Out, T>) {
        for (int64_t i = 0; i < count; ++i) x[i] = Op::of(x[i], z[i]);
        narrow(x, to + begin, count);
      } else {
        for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<Out>(Op::of(x[i], z[i]));
      }
    }
  } else {
    RIDGE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(Op::of(left[i], right[i]));
  }
}

/// True when kernels of the form take elements of T.
template <class Form, typename T>
constexpr bool takes() {
  if (Form::kTakes == Takes::kBools) return std::is_same_v<T, Bool8>;
  return kIsFloat<T> || (Form::kTakes == Takes::kNumbers && kIsInteger<T>);
}

}  // namespace
}  // namespace ridge::cpu
