// Products of bf16: by vdpbf16ps (GemmProducts::kPairs) against its definition, step by step, and
// operands rounded to bf16 and f16 without it (kRounded, kRoundedToF16).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "tests/backend/gemm_problem.h"

namespace ridge::cpu {
namespace {

class GemmBf16 : public ::testing::Test {
 protected:
  void TearDown() override {
    set_isa(isa_);
    set_num_threads(threads_);
  }
  const Isa isa_ = isa();
  const int threads_ = num_threads();
};

class GemmPairs : public GemmBf16 {
 protected:
  void SetUp() override {
    if (!has_bf16_pairs()) GTEST_SKIP() << "no AVX512-BF16 here: its kernels are not tested";
  }
};

GemmShape make_shape(int64_t m, int64_t n, int64_t k, int layout, int64_t padding = 0) {
  GemmShape shape = shape_with_layout(m, n, k, layout, padding);
  shape.products = GemmProducts::kPairs;
  return shape;
}

/// Its operands as they are multiplied: rounded to bf16.
template <typename T>
struct Problem : GemmProblem<T> {
  using GemmProblem<T>::GemmProblem;
  float left(int64_t i, int64_t p) const {
    return BF16(static_cast<float>(GemmProblem<T>::left(i, p)));
  }
  float right(int64_t p, int64_t j) const {
    return BF16(static_cast<float>(GemmProblem<T>::right(p, j)));
  }

  /// The operands as rows of k numbers: m of the left one, or n of the right one.
  std::vector<double> left_rows() const {
    std::vector<double> rows;
    for (int64_t i = 0; i < this->s.m; ++i)
      for (int64_t p = 0; p < this->s.k; ++p) rows.push_back(static_cast<double>(left(i, p)));
    return rows;
  }
  std::vector<double> right_rows() const {
    std::vector<double> rows;
    for (int64_t j = 0; j < this->s.n; ++j)
      for (int64_t p = 0; p < this->s.k; ++p) rows.push_back(static_cast<double>(right(p, j)));
    return rows;
  }
};

int64_t random_size(Random& random, int64_t limit) {
  static constexpr int64_t kEdges[] = {1,  2,  3,  13, 14, 15, 16,  17,  28,  31,  32,
                                       33, 63, 64, 65, 97, 98, 127, 129, 255, 300, 385};
  const int64_t size = random() % 3 ? kEdges[random() % std::size(kEdges)]
                                    : 1 + static_cast<int64_t>(random() % 300);
  return std::min(size, limit);
}

// vdpbf16ps: the odd product of each pair first; no number here is subnormal.
template <typename T>
void expect_chains_of_pairs() {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    const GemmShape s = make_shape(random_size(random, 150),
                                   random_size(random, 150),
                                   round % 5 == 0 ? 767 : random_size(random, 400),
                                   round & 3,
                                   round % 3);
    const Problem<T> problem(s, random);
    const bool accumulate = round & 4;
    std::vector<T> expected = problem.c;
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < s.k; p += 2) {
          if (p + 1 < s.k) sum = std::fma(problem.left(i, p + 1), problem.right(p + 1, j), sum);
          sum = std::fma(problem.left(i, p), problem.right(p, j), sum);
        }
        T& to = expected[static_cast<size_t>(i * s.ldc + j)];
        to = static_cast<T>(accumulate ? static_cast<float>(to) + sum : sum);
      }
    ASSERT_TRUE(same_bits(problem.result(accumulate), expected))
        << s.m << "x" << s.n << "x" << s.k << " layout " << (round & 3);
  }
}

TEST_F(GemmPairs, IsOneChainOfPairsWhereDepthIsSmall) {
  expect_chains_of_pairs<float>();
  expect_chains_of_pairs<BF16>();
}

template <typename T>
void expect_close_at_any_depth() {
  Random random(2);
  for (int round = 0; round < 8; ++round) {
    const GemmShape s =
        make_shape(round == 7 ? 700 : 45, round == 6 ? 700 : 50, 769 + 613 * round, round & 3);
    const Problem<T> problem(s, random);
    const std::vector<T> got = problem.result(true);
    // Rounded once each: it is the reference that takes most of the time.
    const std::vector<double> left = problem.left_rows(), right = problem.right_rows();
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        const double *a = left.data() + i * s.k, *b = right.data() + j * s.k;
        double sum = static_cast<double>(problem.old(i, j)), magnitude = std::fabs(sum);
        for (int64_t p = 0; p < s.k; ++p) {
          const double product = a[p] * b[p];
          sum += product;
          magnitude += std::fabs(product);
        }
        const double rounding = std::is_same_v<T, float> ? 0x1p-24 : 0x1.02p-8;
        ASSERT_LE(std::fabs(static_cast<double>(got[static_cast<size_t>(i * s.ldc + j)]) - sum),
                  static_cast<double>(s.k + 2) * 0x1p-24 * magnitude + rounding * std::fabs(sum))
            << i << ", " << j << " of " << s.m << "x" << s.n << "x" << s.k;
      }
  }
}

TEST_F(GemmPairs, AgreesWithPlainLoopsOverSeveralChains) {
  expect_close_at_any_depth<float>();
  expect_close_at_any_depth<BF16>();
}

TEST_F(GemmPairs, SameBitsForAnyThreadsAndAnyPart) {
  Random random(3);
  for (const GemmShape& s : {make_shape(300, 200, 701, 0, 5),
                             make_shape(128, 130, 1537, 1),
                             make_shape(9, 700, 900, 2),
                             make_shape(700, 9, 513, 3, 1)}) {
    const Problem<float> problem(s, random);
    set_num_threads(1);
    const std::vector<float> whole = problem.result(false);
    for (int threads : {2, 5}) {
      set_num_threads(threads);
      ASSERT_TRUE(same_bits(problem.result(false), whole)) << s.m << "x" << s.n << "x" << s.k;
    }
    for (auto [m, n] : {std::pair<int64_t, int64_t>{1, s.n}, {s.m, 1}, {3, 5}, {8, 9}}) {
      Problem<float> part = problem;
      part.s.m = m;
      part.s.n = n;
      const std::vector<float> got = part.result(false);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(std::memcmp(&got[static_cast<size_t>(i * s.ldc)],
                              &whole[static_cast<size_t>(i * s.ldc)],
                              static_cast<size_t>(n) * sizeof(float)),
                  0)
            << m << "x" << n << " of " << s.m << "x" << s.n << "x" << s.k;
    }
  }
}

// f32 operands give the sums of the same numbers kept as bf16; those are rounded at the end.
TEST_F(GemmPairs, F32OperandsAreThoseRoundedBefore) {
  Random random(4);
  for (int round = 0; round < 8; ++round) {
    const GemmShape s = make_shape(70, 90, round < 4 ? 333 : 1001, round & 3);
    const Problem<float> wide(s, random);
    Problem<BF16> narrow(s, random);
    for (size_t i = 0; i < wide.a.size(); ++i) narrow.a[i] = BF16(wide.a[i]);
    for (size_t i = 0; i < wide.b.size(); ++i) narrow.b[i] = BF16(wide.b[i]);
    std::vector<BF16> expected;
    for (float x : wide.result(false)) expected.emplace_back(x);
    ASSERT_TRUE(same_bits(narrow.result(false), expected)) << "k " << s.k;
  }
}

TEST_F(GemmPairs, BatchesAreTheirItems) {
  Random random(5);
  const GemmShape s = make_shape(37, 65, 41, 2);
  const int64_t count = 7;
  const auto a = random_values<float>(count * s.m * s.k, random);
  const auto b = random_values<float>(count * s.n * s.k, random);
  std::vector<float> got(static_cast<size_t>(count * s.m * s.n)), expected = got;
  gemm_batched<float>(
      s, {count, s.m * s.k, s.n * s.k, s.m * s.n}, a.data(), b.data(), got.data(), false, nullptr);
  for (int64_t i = 0; i < count; ++i)
    gemm<float>(s,
                a.data() + i * s.m * s.k,
                b.data() + i * s.n * s.k,
                expected.data() + i * s.m * s.n,
                false,
                nullptr);
  EXPECT_TRUE(same_bits(got, expected));
}

template <typename T>
void expect_no_touch_outside() {
  Random random(6);
  for (int round = 0; round < 64; ++round) {
    const GemmShape s = make_shape(random_size(random, 80),
                                   random_size(random, 80),
                                   random_size(random, 80),
                                   round & 3,
                                   round & 8 ? 3 : 0);
    const Problem<T> problem(s, random);
    Guarded<T> a(problem.a, round & 4), b(problem.b, round & 4), c(problem.c, round & 4);
    gemm<T>(s, a.data(), b.data(), c.data(), true, nullptr);
    ASSERT_TRUE(same_bits(c.values(), problem.result(true)));
  }
}

TEST_F(GemmPairs, TouchesNothingOutsideTheOperands) {
  expect_no_touch_outside<float>();
  expect_no_touch_outside<BF16>();
}

// Padding, of odd depth too, must not multiply with what is not finite.
TEST_F(GemmPairs, SpreadsNanAndInfinityOnlyWhereDue) {
  Random random(7);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (int round = 0; round < 16; ++round) {
    const GemmShape s = make_shape(31, 45, 1 + random_size(random, 90), round & 3);
    Problem<float> problem(s, random);
    problem.a[random() % problem.a.size()] = round & 4 ? nan : inf;
    problem.b[random() % problem.b.size()] = round & 8 ? nan : -inf;
    const std::vector<float> got = problem.result(false);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < s.k; ++p) sum += problem.left(i, p) * problem.right(p, j);
        const float value = got[static_cast<size_t>(i * s.ldc + j)];
        ASSERT_EQ(std::isnan(value), std::isnan(sum)) << i << ", " << j;
        ASSERT_EQ(std::isinf(value), std::isinf(sum)) << i << ", " << j;
      }
  }
}

// ---- rounded operands, and f32 arithmetic ----

template <typename Half>
void expect_rounded_operands(GemmProducts products) {
  Random random(8);
  for (Isa isa : kAllIsas) {
    if (!has_isa(isa)) continue;
    set_isa(isa);
    for (int round = 0; round < 24; ++round) {
      GemmShape s = make_shape(
          random_size(random, 90), random_size(random, 90), random_size(random, 500), round & 3, 1);
      s.products = products;
      Problem<float> rounding(s, random);
      // The special values of f16: its largest number and the first that is infinite, its subnormal
      // numbers, and numbers that round to zero.
      const float special[] = {std::nanf(""), 65519.0f, 65520.0f, -1e6f, 3e-8f, 5.9e-6f, 1e-9f};
      for (size_t i = 0; i < std::min(std::size(special), rounding.a.size()); ++i)
        rounding.a[rounding.a.size() - 1 - i] = special[i];
      Problem<float> rounded = rounding;
      rounded.s.products = GemmProducts::kOwn;
      for (auto* values : {&rounded.a, &rounded.b})
        for (float& x : *values) x = Half(x);
      const std::vector<float> got = rounding.result(true), want = rounded.result(true);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(std::memcmp(&got[i], &want[i], sizeof(float)) == 0 ||
                    (std::isnan(got[i]) && std::isnan(want[i])))
            << i << " of " << s.m << "x" << s.n << "x" << s.k << " on " << name_of(isa);
    }
  }
}

TEST_F(GemmBf16, RoundedOperandsAreThoseRoundedBefore) {
  expect_rounded_operands<BF16>(GemmProducts::kRounded);
  expect_rounded_operands<F16>(GemmProducts::kRoundedToF16);
}

// 65519.99 is nearer to 65504 than to 65536, which f16 lacks.
TEST_F(GemmBf16, F16OverflowsToInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  for (Isa isa : kAllIsas) {
    if (!has_isa(isa)) continue;
    set_isa(isa);
    for (int layout = 0; layout < 4; ++layout) {
      GemmShape s = make_shape(1, 20, 1, layout);
      s.products = GemmProducts::kRoundedToF16;
      const float one = 1;
      std::vector<float> b(20, 1.0f), c(20);
      b[0] = 65519.99f, b[1] = 65520.0f, b[2] = -3e38f, b[3] = 0x1p-24f, b[4] = 0x1p-25f;
      b[5] = 1.0f + 0x1p-11f, b[6] = 1.0f + 0x1.8p-10f;
      gemm<float>(s, &one, b.data(), c.data(), false, nullptr);
      const std::vector<float> want = {65504, inf, -inf, 0x1p-24f, 0, 1, 1.0f + 0x1p-9f, 1, 1, 1};
      for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(c[i], want[i]) << i << ' ' << name_of(isa);
    }
  }
}

// Any number of threads, and either instruction set.
TEST_F(GemmBf16, F16HasTheSameBitsEverywhere) {
  Random random(9);
  for (int round = 0; round < 6; ++round) {
    GemmShape s = make_shape(130 + 9 * round, 97, 300 + 200 * round, round & 3, round % 2);
    s.products = GemmProducts::kRoundedToF16;
    const Problem<float> problem(s, random);
    set_isa(Isa::kAvx2);
    set_num_threads(1);
    const std::vector<float> want = problem.result(true);
    for (Isa isa : kAllIsas) {
      if (!has_isa(isa)) continue;
      set_isa(isa);
      for (int threads : {1, 2, 5}) {
        set_num_threads(threads);
        EXPECT_TRUE(same_bits(problem.result(true), want)) << name_of(isa) << " " << threads;
      }
    }
  }
}

TEST_F(GemmBf16, RefusesProductsThatItDoesNotHave) {
  double x[4] = {};
  GemmShape s{.m = 2, .n = 2, .k = 1, .lda = 1, .ldb = 2, .ldc = 2};
  s.products = GemmProducts::kRounded;
  EXPECT_THROW(gemm(s, x, x, x, false, nullptr), InternalError);
  s.products = GemmProducts::kRoundedToF16;
  EXPECT_THROW(gemm(s, x, x, x, false, nullptr), InternalError);
  set_isa(Isa::kAvx2);
  float y[4] = {};
  s.products = GemmProducts::kPairs;
  EXPECT_THROW(gemm(s, y, y, y, false, nullptr), InternalError);
}

}  // namespace
}  // namespace ridge::cpu
