// The device's approximations for simt.h, which includes this: what device/approx.h asks for on a
// CPU. They err by as much as NVIDIA's "Parallel Thread Execution ISA" lets them, up or down by a
// hash of the argument: what is near enough here is so on every GPU that keeps to that.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace simt {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// `exact`, rounded and moved by so many units in the last place; what is subnormal is zero.
inline float off_by(double exact, uint32_t units, float argument) {
  float y = static_cast<float>(exact);
  if (std::isnan(y) || std::isinf(y)) return y;
  if (std::fabs(y) < std::numeric_limits<float>::min()) return std::copysign(0.0f, y);
  const bool is_up = (bits_of(argument) * 2654435761u >> 31) != 0;
  for (uint32_t i = 0; i < units; ++i) {
    const float next = std::nextafterf(y, is_up ? INFINITY : -INFINITY);
    if (std::isinf(next) || std::fabs(next) < std::numeric_limits<float>::min()) break;
    y = next;
  }
  return y;
}

inline float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

/// ex2.approx.ftz.f32: of zero it is 1.
inline float approx_exp2(float x) {
  x = flushed(x);
  return x == 0.0f ? 1.0f : off_by(std::exp2(static_cast<double>(x)), 2, x);
}

/// rcp.approx.ftz.f32.
inline float approx_reciprocal(float x) {
  return off_by(1.0 / static_cast<double>(flushed(x)), 1, x);
}

}  // namespace simt
