// Standard normal numbers in f32 by the hundred million a second: for data that are made up. Models
// are initialised by random_normal (philox.h), which has the digits of f64.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "ridge/base/philox.h"

namespace ridge {

/// Numbers of a group, which are made of its blocks side by side: number `64 g + 16 k + lane` of a
/// stream is made of block `16 g + lane`; k = 0 and 1 of its first two words, 2 and 3 of its last.
inline constexpr int64_t kNormalGroup = 64, kNormalLanes = 16;

struct NormalPair {
  float first, second;
};

/// Box and Muller in f32: `radius` gives the radius by its upper 24 bits (at most 5.77), `angle`
/// the angle by all. Adds and multiplications alone: the same bits on every machine.
static inline NormalPair normal_pair(uint32_t radius, uint32_t angle) {
  // -ln(v / 2^24), v from 1 to 2^24, is (24 - e) ln 2 - ln(1 + f) with 1 + f in [sqrt(1/2),
  // sqrt(2)). The polynomials of this function are Cephes' (logf.c, sinf.c).
  const float v = static_cast<float>(static_cast<int32_t>(radius >> 8) + 1);
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(e) << 23)) - 1.0f;
  const float f2 = f * f;
  float log = 7.0376836292e-2f;
  log = log * f - 1.1514610310e-1f;
  log = log * f + 1.1676998740e-1f;
  log = log * f - 1.2420140846e-1f;
  log = log * f + 1.4249322787e-1f;
  log = log * f - 1.6668057665e-1f;
  log = log * f + 2.0000714765e-1f;
  log = log * f - 2.4999993993e-1f;
  log = log * f + 3.3333331174e-1f;
  log = f + (log * f * f2 - 0.5f * f2);
  // std::sqrt may set errno, which keeps a loop from being vector code: the root is t / sqrt(t), by
  // three steps of Newton's from a guess that is off by at most 3.5 %.
  const float t = 2.0f * (static_cast<float>(24 - e) * 0.693147181f - log);
  float inverse = std::bit_cast<float>(0x5f375a86u - (std::bit_cast<uint32_t>(t) >> 1));
  for (int i = 0; i < 3; ++i) inverse *= 1.5f - 0.5f * t * inverse * inverse;
  const float r = t * inverse;
  // The angle is a quarter of a turn and a rest x of at most an eighth.
  const uint32_t quarter = (angle + 0x20000000u) >> 30;
  const float x =
      static_cast<float>(static_cast<int32_t>(angle - (quarter << 30))) * 0x1.921fb6p-30f;
  const float x2 = x * x;
  const float sine =
      x + x * x2 * ((-1.9515295891e-4f * x2 + 8.3321608736e-3f) * x2 - 1.6666654611e-1f);
  const float cosine =
      x2 * x2 *
          ((2.443315711809948e-5f * x2 - 1.388731625493765e-3f) * x2 + 4.166664568298827e-2f) -
      0.5f * x2 + 1.0f;
  // Odd quarters swap the two; the sign bits are those of the quarter.
  const uint32_t s = std::bit_cast<uint32_t>(sine), c = std::bit_cast<uint32_t>(cosine);
  const uint32_t swap = (s ^ c) & (0u - (quarter & 1));
  const uint32_t cosine_sign = (quarter + 1) << 30 & 0x80000000u,
                 sine_sign = quarter << 30 & 0x80000000u;
  return {r * std::bit_cast<float>(c ^ swap ^ cosine_sign),
          r * std::bit_cast<float>(s ^ swap ^ sine_sign)};
}

/// The first numbers of the stream. A function of the stream and the place alone.
void fill_normals(const RngKey& key, std::span<float> numbers);

}  // namespace ridge
