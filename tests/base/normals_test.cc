#include "ridge/base/normals.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "ridge/base/hash.h"

namespace ridge {
namespace {

std::vector<float> normals(const RngKey& key, size_t n) {
  std::vector<float> numbers(n);
  fill_normals(key, numbers);
  return numbers;
}

// Against libm in double.
TEST(Normals, PairIsBoxMullerOfItsWords) {
  std::vector<std::pair<uint32_t, uint32_t>> words = {{0, 0}, {0xffffffffu, 0xffffffffu}};
  for (uint64_t i = 0; i < 100'000; ++i)
    words.push_back({random_u32({.seed = 8}, 2 * i), random_u32({.seed = 8}, 2 * i + 1)});
  // Radii and angles at which the polynomials change.
  for (uint32_t eighth = 0; eighth < 8; ++eighth)
    for (const uint32_t beside : {0xffffffffu, 0u, 1u})
      words.push_back({0xb504f300u + beside * 256, (eighth << 29) + beside});
  for (const auto& [radius, angle] : words) {
    const double u = (static_cast<double>(radius >> 8) + 1) * 0x1p-24;
    const double r = std::sqrt(-2 * std::log(u)),
                 turn = 2 * 3.14159265358979323846 * angle * 0x1p-32;
    const NormalPair pair = normal_pair(radius, angle);
    ASSERT_NEAR(pair.first, r * std::cos(turn), 2e-6) << radius << " " << angle;
    ASSERT_NEAR(pair.second, r * std::sin(turn), 2e-6) << radius << " " << angle;
  }
}

// The vector code gives the bits of the same functions a number at a time, as this file compiles
// them.
TEST(Normals, NumbersAreThoseOfTheDocumentedBlocks) {
  const RngKey key{.seed = 5, .step = 77, .site = hash64("data")};
  const std::vector<float> numbers = normals(key, 10 * kNormalGroup + 3);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint64_t group = i / kNormalGroup, k = i % kNormalGroup / kNormalLanes;
    const uint64_t word = 4 * (group * kNormalLanes + i % kNormalLanes) + k / 2 * 2;
    const NormalPair pair = normal_pair(random_u32(key, word), random_u32(key, word + 1));
    ASSERT_EQ(std::bit_cast<uint32_t>(numbers[i]),
              std::bit_cast<uint32_t>(k % 2 == 0 ? pair.first : pair.second))
        << i;
  }
}

TEST(Normals, FewerNumbersAreTheFirstOfMore) {
  const std::vector<float> all = normals({.seed = 3}, 300);
  for (size_t n = 0; n <= all.size(); ++n) {
    std::vector<float> guarded(n + 1, -100.0f);
    fill_normals({.seed = 3}, {guarded.data(), n});
    ASSERT_TRUE(std::equal(all.begin(), all.begin() + static_cast<ptrdiff_t>(n), guarded.begin()));
    ASSERT_EQ(guarded[n], -100.0f);
  }
}

TEST(Normals, HaveTheirMoments) {
  constexpr size_t kDraws = 1'000'000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, neighbours = 0, last = 0;
  for (const double z : normals({.seed = 11}, kDraws)) {
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

}  // namespace
}  // namespace ridge
