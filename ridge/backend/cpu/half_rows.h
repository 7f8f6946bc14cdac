// Rows of any float dtype read and written in the dtype that kernels compute in: f64 for f64, f32
// for all others.
#pragma once

#include <cstring>
#include <type_traits>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/backend/cpu/isa/half_kernels.h"
#include "ridge/base/dtype.h"

namespace ridge::cpu {

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

/// T is computed in this type: f32 for 16-bit floats, else T.
template <typename T>
using ComputeType = std::conditional_t<is_half<T>, float, T>;

inline const HalfKernels& half_kernels() {
  return for_isa(avx2::half_kernels, avx512::half_kernels);
}

/// to = from, n elements, widened where T is 16-bit. No overlap.
template <typename T>
void widen_row(const T* from, ComputeType<T>* to, int64_t n) {
  if constexpr (std::is_same_v<T, F16>)
    half_kernels().widen_f16(reinterpret_cast<const F16Bits*>(from), to, n);
  else if constexpr (std::is_same_v<T, BF16>)
    half_kernels().widen_bf16(reinterpret_cast<const BF16Bits*>(from), to, n);
  else
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}

/// to = from, n elements, rounded to nearest even where T is 16-bit. No overlap.
template <typename T>
void narrow_row(const ComputeType<T>* from, T* to, int64_t n) {
  const GemmKernels& kernels = for_isa(avx2::gemm_kernels, avx512::gemm_kernels);
  if constexpr (std::is_same_v<T, F16>)
    kernels.narrow_f16(from, reinterpret_cast<F16Bits*>(to), n);
  else if constexpr (std::is_same_v<T, BF16>)
    kernels.narrow_bf16(from, reinterpret_cast<BF16Bits*>(to), n);
  else
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}

/// to += from, n elements; integers wrap.
template <typename T>
void add_row(const T* from, ComputeType<T>* to, int64_t n) {
  if constexpr (std::is_same_v<T, F16>) {
    half_kernels().add_f16(reinterpret_cast<const F16Bits*>(from), to, n);
  } else if constexpr (std::is_same_v<T, BF16>) {
    half_kernels().add_bf16(reinterpret_cast<const BF16Bits*>(from), to, n);
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    for (int64_t i = 0; i < n; ++i)
      to[i] = static_cast<T>(static_cast<U>(static_cast<U>(to[i]) + static_cast<U>(from[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  }
}

}  // namespace ridge::cpu
