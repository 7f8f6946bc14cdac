// The Mersenne Twister against that of the standard library.
#include "ridge/backend/cpu/mersenne_twister.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"

namespace ridge::cpu {
namespace {

// A generator in the state of `random`, which is printed as its words and the place of the next.
MersenneTwister twister_like(const std::mt19937& random) {
  std::stringstream text;
  text << random;
  MersenneTwister::Words words;
  for (uint32_t& word : words) text >> word;
  int64_t next = 0;
  text >> next;
  return MersenneTwister(words, next);
}

std::vector<uint8_t> drawn_by_library(std::mt19937& random, double p, size_t count) {
  std::vector<uint8_t> elements;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t upper = random(), lower = random();
    const uint64_t bits = (upper << 32 | lower) & ((uint64_t{1} << 53) - 1);
    elements.push_back(std::ldexp(static_cast<double>(bits), -53) < p);
  }
  return elements;
}

class EachIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!has_isa(GetParam())) GTEST_SKIP() << "not on this machine";
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(before_); }
  const Isa before_ = isa();
};
using MersenneTest = EachIsa;

TEST_P(MersenneTest, DrawsTheNumbersOfTheStandardLibrary) {
  std::mt19937 random(5);
  MersenneTwister twister = twister_like(random);
  std::mt19937 sizes(7);
  const double chances[] = {0.5, 0.9, 0.1, 0.0, 1.0, 0x1p-53, 1 - 0x1p-53, 1.0 / 3};
  for (int round = 0; round < 200; ++round) {
    // An odd number of words before leaves each pair's first word in every place of a state.
    if (round % 5 == 0) {
      random();
      twister = twister_like(random);
    }
    const double p = chances[static_cast<size_t>(round) % std::size(chances)];
    std::vector<uint8_t> elements(sizes() % 1000, 7);
    twister.draw_bernoulli(p, elements);
    ASSERT_EQ(elements, drawn_by_library(random, p, elements.size())) << "round " << round;
  }
  // Both go on alike.
  const MersenneTwister like = twister_like(random);
  EXPECT_EQ(twister.words(), like.words());
  EXPECT_EQ(twister.next(), like.next());
}

INSTANTIATE_TEST_SUITE_P(All,
                         MersenneTest,
                         testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace ridge::cpu
