// The type that sums of each type are kept in: f32 for the 16-bit floats; for integers int64_t,
// which wraps.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

template <typename T>
struct SumOf {
  using Type = int64_t;
};
template <>
struct SumOf<double> {
  using Type = double;
};
template <>
struct SumOf<float> {
  using Type = float;
};
template <>
struct SumOf<F16> {
  using Type = float;
};
template <>
struct SumOf<BF16> {
  using Type = float;
};
template <typename T>
using Sum = typename SumOf<T>::Type;

template <typename T>
inline Sum<T> wide_of(T x) {
  return static_cast<Sum<T>>(value_of(x));
}

inline void narrow(double& to, double x) { to = x; }
inline void narrow(float& to, float x) { to = x; }
inline void narrow(F16& to, float x) { set(to, x); }
inline void narrow(BF16& to, float x) { set(to, x); }
template <typename T>
inline void narrow(T& to, int64_t x) {
  to = static_cast<T>(x);
}

inline double sum_of(double a, double b) { return a + b; }
inline float sum_of(float a, float b) { return a + b; }
inline int64_t sum_of(int64_t a, int64_t b) { return wrapped_add(a, b); }

// ---- integers, as device/kernel.h has Plus and Larger for floats; any order gives the same ----

struct WrappedPlus {
  template <typename T>
  static T neutral() {
    return T(0);
  }
  template <typename T>
  static T lanes(T a, T b) {
    return wrapped_add(a, b);
  }
  template <typename T>
  static T fold(T a, T b) {
    return wrapped_add(a, b);
  }
};

struct LargerInteger {
  template <typename T>
  static T neutral() {
    return static_cast<T>(uint64_t{1} << 63);
  }
  template <typename T>
  static T lanes(T a, T b) {
    return a > b ? a : b;
  }
  template <typename T>
  static T fold(T a, T b) {
    return a > b ? a : b;
  }
};

}  // namespace ridge::cuda
