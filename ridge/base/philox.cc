#include "ridge/base/philox.h"

#include <bit>
#include <cmath>

namespace ridge {
namespace {

// ln(x) for x in (0, 1], to about 2 ulp, with adds, multiplications and one division only: libm
// may differ by machine and version. x = m * 2^e with m in [sqrt(1/2), sqrt(2)) and
// ln(m) = 2 atanh(f), f = (m - 1) / (m + 1), |f| < 0.172.
double portable_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++exponent;
  }
  const double f = (m - 1.0) / (m + 1.0);
  const double square = f * f;
  double sum = 0;
  for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return exponent * 0x1.62e42fefa39efp-1 + 2.0 * (f + f * sum);
}

// cos and sin of 2 pi u for u in [0, 1), to about 1e-16: u is split exactly into an eighth of a
// turn and a rest of at most pi / 4, where the Taylor series are short.
void portable_cos_sin(double u, double& cosine, double& sine) {
  const int quarter = static_cast<int>(u * 4.0 + 0.5);  // 0 to 4
  const double x = (u - quarter * 0.25) * 0x1.921fb54442d18p+2;
  const double square = x * x;
  double c = 0, s = 0;
  for (int k = 18; k >= 2; k -= 2) c = (1.0 - c) * square / (k * (k - 1));
  for (int k = 19; k >= 3; k -= 2) s = (1.0 - s) * square / (k * (k - 1));
  c = 1.0 - c;
  s = x - x * s;
  switch (quarter & 3) {
    case 0:
      cosine = c, sine = s;
      break;
    case 1:
      cosine = -s, sine = c;
      break;
    case 2:
      cosine = -c, sine = -s;
      break;
    default:
      cosine = s, sine = -c;
      break;
  }
}

PhiloxWords block_of(const RngKey& key, uint64_t block) {
  return rng_block(rng_philox_key(key.seed, key.site), key.step, block);
}

}  // namespace

uint32_t random_u32(const RngKey& key, uint64_t index) {
  return block_of(key, index / 4).word[index % 4];
}

float random_f32(const RngKey& key, uint64_t index) { return unit_f32(random_u32(key, index)); }

double random_f64(const RngKey& key, uint64_t index) {
  const PhiloxWords words = block_of(key, index / 2);
  return index % 2 ? unit_f64(words.word[2], words.word[3])
                   : unit_f64(words.word[0], words.word[1]);
}

double random_normal(const RngKey& key, uint64_t index) {
  const PhiloxWords words = block_of(key, index / 2);
  // 1 - u lies in (0, 1]: the logarithm is finite, the radius at most 8.58.
  const double radius =
      std::sqrt(-2.0 * portable_log(1.0 - unit_f64(words.word[0], words.word[1])));
  double cosine, sine;
  portable_cos_sin(unit_f64(words.word[2], words.word[3]), cosine, sine);
  return radius * (index % 2 ? sine : cosine);
}

}  // namespace ridge
