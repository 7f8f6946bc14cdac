#include "ridge/base/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "ridge/base/hash.h"

namespace ridge {
namespace {

using Words = std::array<uint32_t, 4>;

Words block(Words c, uint32_t k0, uint32_t k1) {
  return std::to_array(philox4x32_10(c[0], c[1], c[2], c[3], k0, k1).word);
}

// Random123's kat_vectors, "philox4x32 10".
TEST(Philox, KnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(block({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The documented layout, spelled out: masks in saved checkpoints depend on it.
TEST(RandomStream, LayoutIsTheDocumentedOne) {
  // First output of SplitMix64 seeded with 0 is e220a8397b1dcdaf (Vigna's splitmix64.c): the
  // finaliser of 0x9e3779b97f4a7c15.
  ASSERT_EQ(rng_philox_key(0x9e3779b97f4a7c15u, 0), 0xe220a8397b1dcdafu);
  const RngKey key{.seed = 0x9e3779b97f4a7c15u, .step = 0x0000000500000007u, .site = 0xff};
  const uint64_t index = (uint64_t{3} << 34) + 4 * 9 + 2;  // block high 3, block low 9, word 2
  const Words words = block({9, 3, 7, 5}, 0x7b1dcdafu ^ 0xffu, 0xe220a839u);
  EXPECT_EQ(random_u32(key, index), words[2]);
  EXPECT_EQ(random_f32(key, index), static_cast<float>(words[2] >> 8) / 16777216.0f);
  const uint64_t pair = (uint64_t{3} << 33) + 2 * 9;
  EXPECT_EQ(random_f64(key, pair),
            std::ldexp(static_cast<double>(((uint64_t{words[1]} << 32) | words[0]) >> 11), -53));
  EXPECT_EQ(random_f64(key, pair + 1),
            std::ldexp(static_cast<double>(((uint64_t{words[3]} << 32) | words[2]) >> 11), -53));
}

TEST(RandomStream, EveryPartOfTheKeyMatters) {
  std::set<uint32_t> seen;
  const RngKey base{1, 2, 3};
  seen.insert(random_u32(base, 0));
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    seen.insert(random_u32({base.seed ^ flip, base.step, base.site}, 0));
    seen.insert(random_u32({base.seed, base.step ^ flip, base.site}, 0));
    seen.insert(random_u32({base.seed, base.step, base.site ^ flip}, 0));
    seen.insert(random_u32(base, flip));
  }
  EXPECT_EQ(seen.size(), 257u);  // 32-bit values: a chance repeat has probability 1e-5
}

TEST(RandomStream, UnitIntervalsAreHalfOpen) {
  EXPECT_EQ(unit_f32(0), 0.0f);
  EXPECT_EQ(unit_f32(0xffffffffu), 1.0f - 0x1p-24f);
  EXPECT_EQ(unit_f64(0, 0), 0.0);
  EXPECT_EQ(unit_f64(0xffffffffu, 0xffffffffu), 1.0 - 0x1p-53);
  EXPECT_EQ(unit_f64(0, 0x80000000u), 0.5);
}

TEST(RandomStream, UniformsFillTheirBins) {
  // Chi squared over 64 bins: mean 63, deviation 11.2; 130 is six deviations out.
  constexpr int kDraws = 64'000, kBins = 64;
  for (uint64_t step : {0, 1}) {
    std::vector<double> f32_bins(kBins), f64_bins(kBins);
    for (int i = 0; i < kDraws; ++i) {
      f32_bins[static_cast<size_t>(random_f32({42, step, hash64("dropout")}, i) * kBins)] += 1;
      f64_bins[static_cast<size_t>(random_f64({42, step, hash64("dropout")}, i) * kBins)] += 1;
    }
    for (const auto& bins : {f32_bins, f64_bins}) {
      double chi = 0;
      for (double n : bins) chi += (n - 1000) * (n - 1000) / 1000;
      EXPECT_LT(chi, 130);
      EXPECT_GT(chi, 20);
    }
  }
}

// Against libm, whose functions random_normal does without.
TEST(RandomStream, NormalIsBoxMullerOfItsBlock) {
  for (uint64_t i = 0; i < 20'000; i += 2) {
    const RngKey key{9, i, hash64("init")};
    // f64 uniforms 2b and 2b + 1 are made of block b, as normals 2b and 2b + 1 are.
    const double radius = std::sqrt(-2 * std::log(1 - random_f64(key, i)));
    const double angle = 2 * 3.14159265358979323846 * random_f64(key, i + 1);
    ASSERT_NEAR(random_normal(key, i), radius * std::cos(angle), 4e-15) << i;
    ASSERT_NEAR(random_normal(key, i + 1), radius * std::sin(angle), 4e-15) << i;
  }
}

TEST(RandomStream, NormalHasItsMoments) {
  constexpr int kDraws = 200'000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0, last = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random_normal({3, 0, 0}, i);
    sum += z, squares += z * z, cubes += z * z * z, fourths += z * z * z * z;
    neighbours += z * last;
    last = z;
  }
  // Five standard errors each: the variances of z^k are 1, 2, 15 and 96.
  const double error = 5 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(sum / kDraws, 0, error);
  EXPECT_NEAR(squares / kDraws, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(cubes / kDraws, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(fourths / kDraws, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(neighbours / kDraws, 0, error);
}

// The bits are part of what a seed means: they stay as they are.
TEST(RandomStream, NormalKeepsItsBits) {
  const RngKey key{2024, 1, hash64("encoder.conv1.weight")};
  uint64_t hash = kHashStart;
  for (uint64_t i = 0; i < 4096; ++i) {
    const double z = random_normal(key, i);
    hash = hash64({reinterpret_cast<const char*>(&z), sizeof z}, hash);
  }
  EXPECT_EQ(hash, 0xdcbb80baa0411b63u);
}

// Published vectors of 64-bit FNV-1a (Landon Curt Noll's test suite).
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash64("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(hash64("bar", hash64("foo")), hash64("foobar"));
  EXPECT_NE(hash64(std::string_view("\0", 1)), hash64(""));
  EXPECT_EQ(hash64("\xff"), 0xaf64724c8602eb6eu);  // bytes are unsigned
}

}  // namespace
}  // namespace ridge
