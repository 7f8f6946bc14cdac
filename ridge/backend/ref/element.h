// How the reference kernels see elements: floats as double, integers and bools as int64_t. Inputs
// are converted when read and results rounded once when written, so that the loops in between know
// two types only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ridge/graph/op.h"

namespace ridge::ref {

/// The elements at `data` as V (double, or int64_t: exact for integers and bools).
template <typename V>
std::vector<V> read_elements(const void* data, const TensorType& type);

/// Stores `values` as `dtype`, each converted by the rules of base/dtype.h: floats rounded once,
/// integers modulo 2^bits.
template <typename V>
void write_elements(const std::vector<V>& values, void* data, DType dtype);

/// Calls `body` with TypeTag<double> for a float dtype and TypeTag<int64_t> for another, leaving
/// out what `T` does not accept as its first input.
template <typename T, typename F>
void dispatch_number(DType dtype, F&& body) {
  constexpr uint16_t kAccepted = T::kTraits.dtypes.bits;
  if constexpr ((kAccepted & kFloats.bits) != 0)
    if (is_float(dtype)) return body(TypeTag<double>{});
  if constexpr ((kAccepted & ~kFloats.bits) != 0)
    if (!is_float(dtype)) return body(TypeTag<int64_t>{});
  throw InternalError(fmt::format("[{}] no kernel for dtype {}", T::kTraits.name, name_of(dtype)));
}

// Arithmetic of both kinds; integers wrap modulo 2^64, hence also modulo fewer bits when written.
inline double plus(double a, double b) { return a + b; }
inline double minus(double a, double b) { return a - b; }
inline double times(double a, double b) { return a * b; }
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

inline bool is_nan(double a) { return std::isnan(a); }
inline bool is_nan(int64_t) { return false; }

/// True when `a` is larger than `b`, where a NaN is larger than any number.
template <typename V>
bool is_larger(V a, V b) {
  return a > b || (is_nan(a) && !is_nan(b));
}

}  // namespace ridge::ref
