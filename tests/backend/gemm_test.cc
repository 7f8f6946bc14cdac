// The packed GEMM against plain loops, against its promises about bits, at the edges of mapped
// memory, and against oneDNN where it is installed.
#include "ridge/backend/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "tests/backend/gemm_problem.h"

#ifdef RIDGE_TEST_DNNL
#include <dnnl.h>
#endif

namespace ridge::cpu {
namespace {

// Leaves the process as it was, whatever a test sets.
class Gemm : public ::testing::Test {
 protected:
  void TearDown() override {
    set_isa(isa_);
    set_num_threads(threads_);
  }
  const Isa isa_ = isa();
  const int threads_ = num_threads();
};

template <typename T>
class GemmTyped : public Gemm {};
using Floats = ::testing::Types<float, double, F16, BF16>;
TYPED_TEST_SUITE(GemmTyped, Floats);

std::vector<Isa> isas_here() {
  std::vector<Isa> found;
  for (Isa isa : kAllIsas)
    if (has_isa(isa)) found.push_back(isa);
  return found;
}

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, long double, double>;

// Relative rounding error of T, and of the type that its products are summed in.
template <typename T>
double unit() {
  if (std::is_same_v<T, double>) return 0x1p-53;
  if (std::is_same_v<T, float>) return 0x1p-24;
  return std::is_same_v<T, F16> ? 0x1p-11 : 0x1p-8;
}
template <typename T>
double sum_unit() {
  return std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
}

GemmShape make_shape(
    int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, int64_t padding = 0) {
  return shape_with_layout(m, n, k, (transpose_a ? 1 : 0) | (transpose_b ? 2 : 0), padding);
}

template <typename T>
using Problem = GemmProblem<T>;

// Against plain loops in a wider type. The bound is the one for sums in any order
// (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1).
template <typename T>
void expect_close(const Problem<T>& problem, bool accumulate, const std::vector<T>& got) {
  constexpr double kLastStep = std::is_same_v<T, F16> ? 0x1p-24 : 0;  // step of subnormals
  const GemmShape& s = problem.s;
  std::vector<Wide<T>> left, right;  // op(A) by rows, op(B) by columns
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t p = 0; p < s.k; ++p) left.push_back(static_cast<Wide<T>>(problem.left(i, p)));
  for (int64_t j = 0; j < s.n; ++j)
    for (int64_t p = 0; p < s.k; ++p) right.push_back(static_cast<Wide<T>>(problem.right(p, j)));
  std::vector<bool> written(got.size());
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      const size_t at = static_cast<size_t>(i * s.ldc + j);
      Wide<T> sum = accumulate ? static_cast<Wide<T>>(problem.c[at]) : 0;
      Wide<T> magnitude = std::fabs(sum);
      for (int64_t p = 0; p < s.k; ++p) {
        const Wide<T> product =
            left[static_cast<size_t>(i * s.k + p)] * right[static_cast<size_t>(j * s.k + p)];
        sum += product;
        magnitude += std::fabs(product);
      }
      const double bound =
          static_cast<double>(s.k + 2) * sum_unit<T>() * static_cast<double>(magnitude) +
          1.01 * unit<T>() * static_cast<double>(std::fabs(sum)) + kLastStep;
      const double error = static_cast<double>(std::fabs(static_cast<Wide<T>>(got[at]) - sum));
      ASSERT_LE(error, bound) << "element " << i << ", " << j << " of " << s.m << "x" << s.n << "x"
                              << s.k;
      written[at] = true;
    }
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(written[i] || std::memcmp(&got[i], &problem.c[i], sizeof(T)) == 0)
        << "gap of C at " << i;
}

// Sizes that lie on and around the edges of tiles, panels, strips and chains.
int64_t random_size(Random& random, int64_t limit) {
  static constexpr int64_t kEdges[] = {1,   2,   3,   5,   6,   7,   8,   12,  13,  14,  15,  16,
                                       17,  28,  31,  32,  33,  63,  64,  65,  96,  127, 128, 129,
                                       191, 192, 193, 255, 256, 257, 300, 383, 384, 385, 767, 769};
  const int64_t size = random() % 3 ? kEdges[random() % std::size(kEdges)]
                                    : 1 + static_cast<int64_t>(random() % 300);
  return std::min(size, limit);
}

TYPED_TEST(GemmTyped, AgreesWithPlainLoops) {
  for (Isa isa : isas_here()) {
    set_isa(isa);
    Random random(1);
    for (int round = 0; round < 48; ++round) {
      const GemmShape shape = make_shape(random_size(random, 300),
                                         random_size(random, 300),
                                         random_size(random, 800),
                                         round & 1,
                                         round & 2,
                                         round % 3 ? static_cast<int64_t>(random() % 9) : 0);
      const Problem<TypeParam> problem(shape, random);
      const bool accumulate = round & 4;
      expect_close(problem, accumulate, problem.result(accumulate));
      if (this->HasFatalFailure()) return;
    }
  }
}

// Large enough for several rounds of packing: more rows, columns and depth than a round takes.
TYPED_TEST(GemmTyped, AgreesWithPlainLoopsOverSeveralRounds) {
  Random random(2);
  for (const GemmShape& shape : {make_shape(2100, 70, 300, false, false, 1),
                                 make_shape(70, 2100, 300, false, true, 3),
                                 make_shape(600, 65, 2200, true, false),
                                 make_shape(2500, 11, 700, false, false)}) {
    const Problem<TypeParam> problem(shape, random);
    expect_close(problem, true, problem.result(true));
    if (this->HasFatalFailure()) return;
  }
}

// The promise for up to 384 steps, in other words: one chain of fma from zero, then one addition.
TYPED_TEST(GemmTyped, IsOneChainOfFmaWhereDepthIsSmall) {
  using Sum = std::conditional_t<std::is_same_v<TypeParam, double>, double, float>;
  Random random(3);
  for (Isa isa : isas_here()) {
    set_isa(isa);
    for (int round = 0; round < 24; ++round) {
      const GemmShape s = make_shape(random_size(random, 150),
                                     random_size(random, 150),
                                     random_size(random, 384),
                                     round & 1,
                                     round & 2);
      const Problem<TypeParam> problem(s, random);
      const bool accumulate = round & 4;
      std::vector<TypeParam> expected = problem.c;
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          Sum sum = 0;
          for (int64_t p = 0; p < s.k; ++p)
            sum = std::fma(
                static_cast<Sum>(problem.left(i, p)), static_cast<Sum>(problem.right(p, j)), sum);
          TypeParam& c = expected[static_cast<size_t>(i * s.ldc + j)];
          c = static_cast<TypeParam>(accumulate ? static_cast<Sum>(c) + sum : sum);
        }
      ASSERT_TRUE(same_bits(problem.result(accumulate), expected))
          << s.m << "x" << s.n << "x" << s.k << " on " << name_of(isa);
    }
  }
}

TYPED_TEST(GemmTyped, SameBitsForAnyThreadsAndInstructionSet) {
  Random random(4);
  for (const GemmShape& shape : {make_shape(1, 1, 1, false, false),
                                 make_shape(33, 77, 129, false, true),
                                 make_shape(128, 128, 300, true, false),
                                 make_shape(300, 200, 700, false, false, 5),
                                 make_shape(9, 700, 513, false, true),
                                 make_shape(700, 9, 513, true, true, 1)}) {
    const Problem<TypeParam> problem(shape, random);
    std::vector<std::vector<TypeParam>> results;
    for (Isa isa : isas_here())
      for (int threads : {1, 2, 5}) {
        set_isa(isa);
        set_num_threads(threads);
        results.push_back(problem.result(true));
      }
    for (const auto& result : results)
      ASSERT_TRUE(same_bits(result, results[0])) << shape.m << "x" << shape.n << "x" << shape.k;
  }
}

// The test above compares both instruction sets only where the machine has them.
TEST_F(Gemm, MachineHasBothInstructionSets) {
  if (!has_isa(Isa::kAvx512))
    GTEST_SKIP() << "no AVX-512 on this machine: its GEMM kernels are not tested";
  EXPECT_EQ(isas_here().size(), 2u);
}

// A row of C does not depend on what is computed beside it, though other shapes take other paths.
TYPED_TEST(GemmTyped, RowsAndColumnsStandAlone) {
  Random random(5);
  const Problem<TypeParam> problem(make_shape(260, 210, 530, false, false), random);
  const GemmShape& s = problem.s;
  const std::vector<TypeParam> whole = problem.result(false);
  std::vector<char> workspace;
  for (auto [m, n] : {std::pair<int64_t, int64_t>{1, 210}, {260, 1}, {3, 5}, {90, 100}}) {
    GemmShape part = s;
    part.m = m;
    part.n = n;
    std::vector<TypeParam> c(static_cast<size_t>(size_c(part)));
    workspace.resize(gemm_workspace_bytes(part, dtype_of<TypeParam>()));
    gemm<TypeParam>(part, problem.a.data(), problem.b.data(), c.data(), false, workspace.data());
    for (int64_t i = 0; i < m; ++i)
      ASSERT_EQ(std::memcmp(&c[static_cast<size_t>(i * s.ldc)],
                            &whole[static_cast<size_t>(i * s.ldc)],
                            static_cast<size_t>(n) * sizeof(TypeParam)),
                0)
          << m << "x" << n << ", row " << i;
  }
}

TYPED_TEST(GemmTyped, BatchesAreTheirItems) {
  Random random(6);
  for (int64_t count : {1, 2, 7, 40}) {
    for (const GemmShape& s : {make_shape(17, 33, 40, false, true, 2),
                               make_shape(130, 140, 90, true, false),
                               make_shape(12, 5, 600, false, false)}) {
      if (count == 40 && s.m > 100) continue;
      const int64_t step_a = size_a(s) + 3;
      const int64_t step_c = size_c(s) + 1;
      const auto a = random_values<TypeParam>(count * step_a, random);
      const auto b = random_values<TypeParam>(size_b(s), random);  // shared: stride 0
      const auto c = random_values<TypeParam>(count * step_c, random);
      std::vector<char> workspace(gemm_workspace_bytes(s, dtype_of<TypeParam>(), count));
      std::vector<TypeParam> expected = c, got = c;
      gemm_batched<TypeParam>(
          s, {count, step_a, 0, step_c}, a.data(), b.data(), got.data(), true, workspace.data());
      workspace.resize(gemm_workspace_bytes(s, dtype_of<TypeParam>()));
      for (int64_t i = 0; i < count; ++i)
        gemm<TypeParam>(s,
                        a.data() + i * step_a,
                        b.data(),
                        expected.data() + i * step_c,
                        true,
                        workspace.data());
      ASSERT_TRUE(same_bits(got, expected)) << count << " of " << s.m << "x" << s.n << "x" << s.k;
    }
  }
}

TYPED_TEST(GemmTyped, TouchesNothingOutsideTheOperands) {
  Random random(7);
  for (Isa isa : isas_here()) {
    set_isa(isa);
    for (int round = 0; round < 96; ++round) {
      const bool large = round % 8 == 7;
      const GemmShape s = make_shape(random_size(random, large ? 300 : 70),
                                     random_size(random, large ? 300 : 70),
                                     random_size(random, large ? 800 : 70),
                                     round & 1,
                                     round & 2,
                                     round & 8 ? 3 : 0);
      const Problem<TypeParam> problem(s, random);
      Guarded<TypeParam> a(problem.a, round & 4);
      Guarded<TypeParam> b(problem.b, round & 4);
      Guarded<TypeParam> c(problem.c, round & 4);
      const size_t bytes = gemm_workspace_bytes(s, dtype_of<TypeParam>());
      Guarded<char> workspace(std::vector<char>(bytes), round & 4);
      gemm<TypeParam>(s, a.data(), b.data(), c.data(), true, workspace.data());
      ASSERT_TRUE(same_bits(c.values(), problem.result(true)));
    }
  }
}

// Few rows by a large op(B), or the transpose of that, have a path of their own. Their elements are
// those of the same product with more rows, and nothing outside the operands is touched.
TYPED_TEST(GemmTyped, FewRowsAreThoseOfTheWholeProduct) {
  Random random(12);
  for (Isa isa : isas_here()) {
    set_isa(isa);
    for (int layout = 0; layout < 4; ++layout) {
      const bool transpose_a = layout & 1, transpose_b = layout & 2;
      const Problem<TypeParam> problem(make_shape(20, 517, 530, transpose_a, transpose_b, layout),
                                       random);
      const std::vector<TypeParam> whole = problem.result(true);
      for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16}) {
        Problem<TypeParam> part = problem;
        part.s.m = rows;
        part.a.resize(static_cast<size_t>(size_a(part.s)));
        part.c.resize(static_cast<size_t>(size_c(part.s)));
        Guarded<TypeParam> a(part.a, layout < 2), b(part.b, layout < 2), c(part.c, layout < 2);
        std::vector<char> workspace(gemm_workspace_bytes(part.s, dtype_of<TypeParam>()));
        gemm<TypeParam>(part.s, a.data(), b.data(), c.data(), true, workspace.data());
        const std::vector<TypeParam> expected(whole.begin(), whole.begin() + size_c(part.s));
        ASSERT_TRUE(same_bits(c.values(), expected)) << rows << " rows, layout " << layout;
      }
    }
  }
}

// Columns longer than what is packed at a time.
TYPED_TEST(GemmTyped, FewRowsOfGreatDepthAreThoseOfTheWholeProduct) {
  Random random(14);
  const Problem<TypeParam> problem(make_shape(17, 131, 16500, false, true), random);
  const std::vector<TypeParam> whole = problem.result(true);
  for (int64_t rows : {1, 2, 4, 7, 16}) {
    Problem<TypeParam> part = problem;
    part.s.m = rows;
    part.c.resize(static_cast<size_t>(size_c(part.s)));
    const std::vector<TypeParam> expected(whole.begin(), whole.begin() + size_c(part.s));
    ASSERT_TRUE(same_bits(part.result(true), expected)) << rows << " rows";
  }
}

TYPED_TEST(GemmTyped, FewColumnsAreThoseOfTheWholeProduct) {
  Random random(13);
  for (bool transpose : {false, true}) {
    const Problem<TypeParam> problem(make_shape(517, 20, 530, transpose, transpose), random);
    const std::vector<TypeParam> whole = problem.result(false);
    for (int64_t columns : {1, 5, 16}) {
      Problem<TypeParam> part = problem;
      part.s.n = columns;
      const std::vector<TypeParam> got = part.result(false);
      for (int64_t i = 0; i < 517; ++i)
        ASSERT_EQ(std::memcmp(&got[static_cast<size_t>(i * 20)],
                              &whole[static_cast<size_t>(i * 20)],
                              static_cast<size_t>(columns) * sizeof(TypeParam)),
                  0)
            << columns << " columns, row " << i;
    }
  }
}

TYPED_TEST(GemmTyped, TakesUnalignedPointers) {
  Random random(8);
  const Problem<TypeParam> problem(make_shape(70, 130, 200, false, true), random);
  for (int64_t shift : {1, 3, 5}) {
    std::vector<TypeParam> a(static_cast<size_t>(shift)), b = a, c = a;
    a.insert(a.end(), problem.a.begin(), problem.a.end());
    b.insert(b.end(), problem.b.begin(), problem.b.end());
    c.insert(c.end(), problem.c.begin(), problem.c.end());
    std::vector<char> workspace(gemm_workspace_bytes(problem.s, dtype_of<TypeParam>()) + 1);
    gemm<TypeParam>(problem.s,
                    a.data() + shift,
                    b.data() + shift,
                    c.data() + shift,
                    false,
                    workspace.data() + 1);
    ASSERT_TRUE(same_bits({c.begin() + shift, c.end()}, problem.result(false)));
  }
}

// Infinities and NaN reach the elements that depend on them, by the rules of IEEE 754, and no
// others: padding must not multiply with them.
TYPED_TEST(GemmTyped, SpreadsNanAndInfinityOnlyWhereDue) {
  using T = TypeParam;
  const T inf = static_cast<T>(std::numeric_limits<float>::infinity());
  const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  Random random(9);
  for (Isa isa : isas_here()) {
    set_isa(isa);
    for (int round = 0; round < 16; ++round) {
      const GemmShape s = make_shape(random_size(random, 60),
                                     random_size(random, 60),
                                     random_size(random, 300),
                                     round & 1,
                                     round & 2);
      Problem<T> problem(s, random);
      problem.a[random() % problem.a.size()] = round & 4 ? nan : inf;
      problem.b[random() % problem.b.size()] = round & 8 ? nan : inf;
      problem.b[random() % problem.b.size()] = static_cast<T>(0.0f);
      const std::vector<T> got = problem.result(false);
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < s.k; ++p)
            sum +=
                static_cast<double>(problem.left(i, p)) * static_cast<double>(problem.right(p, j));
          const double value = static_cast<double>(got[static_cast<size_t>(i * s.ldc + j)]);
          ASSERT_EQ(std::isnan(value), std::isnan(sum)) << i << ", " << j;
          ASSERT_EQ(std::isinf(value), std::isinf(sum)) << i << ", " << j;
          ASSERT_TRUE(!std::isinf(sum) || value == sum) << i << ", " << j;
        }
    }
  }
}

// Integers whose sums are exact in f32 but not in 16 bits: rounding before the end would show.
template <typename Half>
void expect_rounded_once() {
  Random random(10);
  const GemmShape s = make_shape(20, 30, 1000, false, false);
  Problem<Half> problem(s, random);
  for (auto* values : {&problem.a, &problem.b, &problem.c})
    for (Half& x : *values) x = Half(static_cast<float>(static_cast<int>(random() % 9) - 3));
  const std::vector<Half> got = problem.result(true);
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      const size_t at = static_cast<size_t>(i * s.ldc + j);
      double sum = static_cast<double>(problem.c[at]);
      for (int64_t p = 0; p < s.k; ++p)
        sum += static_cast<double>(problem.left(i, p)) * static_cast<double>(problem.right(p, j));
      ASSERT_EQ(got[at].bits, convert<Half>(sum).bits) << sum;
    }
}

TEST_F(Gemm, RoundsSixteenBitResultsOnce) {
  expect_rounded_once<F16>();
  expect_rounded_once<BF16>();
}

// Every 16-bit value, the midpoints between neighbours, and what lies next to both.
TEST_F(Gemm, NarrowsAsTheScalarConversionsDo) {
  std::vector<float> values;
  for (uint32_t high = 0; high <= 0xffff; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u})
      values.push_back(std::bit_cast<float>((high << 16) | low));
  const int64_t count = static_cast<int64_t>(values.size()) - 3;  // ends inside a vector
  for (Isa isa : isas_here()) {
    set_isa(isa);
    const GemmKernels& kernels = for_isa(avx2::gemm_kernels, avx512::gemm_kernels);
    std::vector<uint16_t> f16(values.size(), 7), bf16(values.size(), 7);
    kernels.narrow_f16(values.data(), reinterpret_cast<F16Bits*>(f16.data()), count);
    kernels.narrow_bf16(values.data(), reinterpret_cast<BF16Bits*>(bf16.data()), count);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool written = i < static_cast<size_t>(count);
      ASSERT_EQ(f16[i], written ? F16(values[i]).bits : 7) << values[i];
      ASSERT_EQ(bf16[i], written ? BF16(values[i]).bits : 7) << values[i];
    }
  }
}

TEST_F(Gemm, RefusesBadShapes) {
  float x[4] = {};
  const GemmShape good = make_shape(2, 2, 1, false, false);
  GemmShape bad = good;
  bad.m = 0;
  EXPECT_THROW(gemm(bad, x, x, x, false, nullptr), InternalError);
  bad = good;
  bad.ldc = 1;
  EXPECT_THROW(gemm_workspace_bytes(bad, DType::kF32), InternalError);
  bad = good;
  bad.transpose_a = true;  // a row of A is now m long
  EXPECT_THROW(gemm_workspace_bytes(bad, DType::kF32), InternalError);
  EXPECT_NO_THROW(gemm_workspace_bytes(good, DType::kF32));
}

#ifdef RIDGE_TEST_DNNL
TEST_F(Gemm, AgreesWithOneDnn) {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    const GemmShape s = make_shape(random_size(random, 300),
                                   random_size(random, 300),
                                   random_size(random, 800),
                                   round & 1,
                                   round & 2,
                                   round & 4 ? 5 : 0);
    const Problem<float> problem(s, random);
    std::vector<float> theirs = problem.c;
    ASSERT_EQ(dnnl_sgemm(s.transpose_a ? 'T' : 'N',
                         s.transpose_b ? 'T' : 'N',
                         s.m,
                         s.n,
                         s.k,
                         1.0f,
                         problem.a.data(),
                         s.lda,
                         problem.b.data(),
                         s.ldb,
                         1.0f,
                         theirs.data(),
                         s.ldc),
              dnnl_success);
    const std::vector<float> ours = problem.result(true);
    // Each may be off by k roundings of a sum that stays below k.
    const double bound = 2 * static_cast<double>((s.k + 2) * (s.k + 2)) * 0x1p-24;
    for (size_t i = 0; i < ours.size(); ++i)
      ASSERT_NEAR(ours[i], theirs[i], bound) << s.m << "x" << s.n << "x" << s.k;
  }
}
#endif

}  // namespace
}  // namespace ridge::cpu
