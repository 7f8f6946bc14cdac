// Products of bf16 by the tiles of AMX against their definition, step by step.
#include "ridge/backend/cpu/gemm/gemm_amx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/gemm_problem.h"

namespace ridge::cpu {
namespace {

class GemmAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_isa(Isa::kAmx)) GTEST_SKIP() << "no AMX here: its kernels are not tested";
    set_isa(Isa::kAmx);
  }
  void TearDown() override {
    set_isa(isa_);
    set_num_threads(threads_);
  }
  const Isa isa_ = isa();
  const int threads_ = num_threads();
};

template <typename In, typename Out>
std::vector<Out> product_of(const GemmProblem<In>& problem, std::vector<Out> c) {
  std::vector<char> workspace(gemm_amx_workspace_bytes(problem.s, {}, false));
  gemm_amx(problem.s, {}, problem.a.data(), problem.b.data(), c.data(), false, workspace.data());
  return c;
}

template <typename In, typename Out = In>
std::vector<Out> product_of(const GemmProblem<In>& problem) {
  std::vector<Out> c;
  for (const In x : problem.c) c.push_back(static_cast<Out>(static_cast<float>(x)));
  return product_of(problem, std::move(c));
}

// Subnormal numbers are zero, before and after.
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

template <typename T>
float rounded(T x) {
  return flushed(static_cast<float>(BF16(static_cast<float>(x))));
}

// The definition of TDPBF16PS over tiles of 32 steps.
template <typename In>
float element_of(const GemmProblem<In>& problem, int64_t i, int64_t j) {
  const auto product = [&](int64_t p, float sum) {
    if (p >= problem.s.k) return flushed(std::fma(0.0f, 0.0f, sum));
    return flushed(std::fma(rounded(problem.left(i, p)), rounded(problem.right(p, j)), sum));
  };
  float sum = 0;
  for (int64_t first = 0; first < problem.s.k; first += 32) {
    float even = 0, odd = 0;
    for (int64_t p = first; p < first + 32; p += 2) {
      even = product(p, even);
      odd = product(p + 1, odd);
    }
    sum = flushed(sum + flushed(even + odd));
  }
  return sum;
}

template <typename In, typename Out>
void expect_definition(const GemmProblem<In>& problem) {
  const std::vector<Out> got = product_of<In, Out>(problem);
  for (int64_t i = 0; i < problem.s.m; ++i)
    for (int64_t j = 0; j < problem.s.n; ++j) {
      const auto wanted = static_cast<Out>(element_of(problem, i, j));
      const Out value = got[static_cast<size_t>(i * problem.s.ldc + j)];
      ASSERT_EQ(std::memcmp(&value, &wanted, sizeof(Out)), 0)
          << i << ", " << j << ": " << static_cast<float>(value) << ", not "
          << static_cast<float>(wanted) << ", of " << problem.s.m << "x" << problem.s.n << "x"
          << problem.s.k;
    }
}

int64_t random_size(Random& random, int64_t limit) {
  static constexpr int64_t kEdges[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  const int64_t size = random() % 3 ? kEdges[random() % std::size(kEdges)]
                                    : 1 + static_cast<int64_t>(random() % 150);
  return std::min(size, limit);
}

TEST_F(GemmAmx, AddsUpTileByTile) {
  Random random(1);
  for (int round = 0; round < 36; ++round) {
    const bool deep = round % 8 == 0;
    const int64_t most = deep ? 40 : 140;
    const int64_t m = random_size(random, most), n = random_size(random, most);
    const int64_t k = deep ? 1057 : random_size(random, 140);
    const GemmShape s = shape_with_layout(m, n, k, round & 3, round % 3);
    expect_definition<float, float>({s, random});
    expect_definition<BF16, BF16>({s, random});
    expect_definition<BF16, float>({s, random});
  }
}

// The products of large numbers by small ones, and numbers about the least normal one.
TEST_F(GemmAmx, TakesSubnormalNumbersForZero) {
  Random random(2);
  GemmProblem<float> problem(shape_with_layout(20, 24, 40, 0), random);
  const float least = std::numeric_limits<float>::min();
  const float edges[] = {least,
                         -least,
                         std::nextafter(least, 0.0f),
                         least * 0.998f,
                         least * 0.99f,
                         least / 2,
                         least * 1.5f,
                         1e30f,
                         -1e-30f,
                         0.0f,
                         -0.0f};
  for (float& x : problem.a) x = edges[random() % std::size(edges)];
  for (float& x : problem.b) x = edges[random() % std::size(edges)];
  expect_definition<float, float>(problem);
}

TEST_F(GemmAmx, SameBitsForAnyThreadsAndAnyPart) {
  Random random(3);
  for (const GemmShape& s : {shape_with_layout(300, 600, 701, 0, 5),
                             shape_with_layout(128, 700, 1537, 1),
                             shape_with_layout(9, 1500, 900, 2),
                             shape_with_layout(700, 9, 513, 3, 1)}) {
    const GemmProblem<float> problem(s, random);
    set_num_threads(1);
    const std::vector<float> whole = product_of(problem);
    for (int threads : {2, 5}) {
      set_num_threads(threads);
      ASSERT_TRUE(same_bits(product_of(problem), whole)) << s.m << "x" << s.n << "x" << s.k;
    }
    for (auto [m, n] : {std::pair<int64_t, int64_t>{1, s.n}, {s.m, 1}, {3, 5}, {8, 9}}) {
      GemmProblem<float> part = problem;
      part.s.m = m;
      part.s.n = n;
      const std::vector<float> got = product_of(part);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(std::memcmp(&got[static_cast<size_t>(i * s.ldc)],
                              &whole[static_cast<size_t>(i * s.ldc)],
                              static_cast<size_t>(n) * sizeof(float)),
                  0)
            << m << "x" << n << " of " << s.m << "x" << s.n << "x" << s.k;
    }
  }
}

// Rows and columns of a product as deep as this one are packed piece by piece.
TEST_F(GemmAmx, PiecesAreTheirWhole) {
  Random random(4);
  const GemmProblem<BF16> problem(shape_with_layout(290, 300, 40'000, 2), random);
  const std::vector<float> got = product_of<BF16, float>(problem);
  for (auto [i, j] : {std::pair<int64_t, int64_t>{0, 0},
                      {255, 255},
                      {256, 255},
                      {255, 256},
                      {289, 299},
                      {100, 270},
                      {270, 100}})
    EXPECT_EQ(got[static_cast<size_t>(i * 300 + j)], element_of(problem, i, j)) << i << ", " << j;
}

TEST_F(GemmAmx, GoesOnFromTheOldResult) {
  Random random(9);
  const GemmProblem<BF16> all(shape_with_layout(40, 50, 192, 1), random);
  GemmProblem<BF16> first = all, second = all;
  first.s.k = second.s.k = 96;
  second.a.erase(second.a.begin(), second.a.begin() + 96 * all.s.lda);
  second.b.erase(second.b.begin(), second.b.begin() + 96 * all.s.ldb);
  std::vector<float> sums = product_of<BF16, float>(first);
  std::vector<char> workspace(gemm_amx_workspace_bytes(second.s, {}, false));
  gemm_amx(second.s, {}, second.a.data(), second.b.data(), sums.data(), true, workspace.data());
  EXPECT_TRUE(same_bits(sums, product_of<BF16, float>(all)));
  std::vector<BF16> narrow = all.c;
  EXPECT_THROW(gemm_amx(all.s, {}, all.a.data(), all.b.data(), narrow.data(), true, nullptr),
               InternalError);
}

TEST_F(GemmAmx, BatchesAreTheirItems) {
  Random random(5);
  for (const int64_t size : {40, 330}) {
    const GemmShape s = shape_with_layout(size, 65, size, 2);
    for (const int64_t stride_b : {s.n * s.k, int64_t{0}}) {
      const GemmBatch batch{5, s.m * s.k, stride_b, s.m * s.n};
      const auto a = random_values<float>(batch.count * s.m * s.k, random);
      const auto b = random_values<float>(batch.count * s.n * s.k, random);
      std::vector<float> got(static_cast<size_t>(batch.count * s.m * s.n)), expected = got;
      std::vector<char> workspace(std::max(gemm_amx_workspace_bytes(s, batch, false),
                                           gemm_amx_workspace_bytes(s, {}, false)));
      gemm_amx(s, batch, a.data(), b.data(), got.data(), false, workspace.data());
      for (int64_t i = 0; i < batch.count; ++i)
        gemm_amx(s,
                 {},
                 a.data() + i * s.m * s.k,
                 b.data() + i * stride_b,
                 expected.data() + i * s.m * s.n,
                 false,
                 workspace.data());
      EXPECT_TRUE(same_bits(got, expected)) << size;
    }
  }
}

TEST_F(GemmAmx, FinishesEachElementOnce) {
  Random random(6);
  for (const GemmShape& s :
       {shape_with_layout(50, 60, 70, 0), shape_with_layout(300, 1000, 400, 0)}) {
    const GemmProblem<float> problem(s, random);
    std::vector<float> c(problem.c.size());
    std::vector<int> times(c.size());
    std::vector<char> workspace(gemm_amx_workspace_bytes(s, {}, false));
    const std::vector<float> wanted = product_of(problem);
    bool is_final = true;
    const auto count = [&](const GemmBlock& block) {
      for (int64_t i = block.row; i < block.row + block.rows; ++i)
        for (int64_t j = block.column; j < block.column + block.columns; ++j) {
          const auto at = static_cast<size_t>(i * s.ldc + j);
          ++times[at];
          is_final = is_final && c[at] == wanted[at];
        }
    };
    const FinishBlock finish(count);
    set_num_threads(1);
    gemm_amx(s, {}, problem.a.data(), problem.b.data(), c.data(), false, workspace.data(), &finish);
    EXPECT_TRUE(is_final);
    EXPECT_EQ(times, std::vector<int>(times.size(), 1));
  }
}

template <typename T>
void expect_no_touch_outside() {
  Random random(7);
  for (int round = 0; round < 64; ++round) {
    const GemmShape s = shape_with_layout(random_size(random, 80),
                                          random_size(random, 80),
                                          random_size(random, 80),
                                          round & 3,
                                          round & 8 ? 3 : 0);
    const GemmProblem<T> problem(s, random);
    Guarded<T> a(problem.a, round & 4), b(problem.b, round & 4), c(problem.c, round & 4);
    std::vector<char> workspace(gemm_amx_workspace_bytes(s, {}, false));
    gemm_amx(s, {}, a.data(), b.data(), c.data(), false, workspace.data());
    ASSERT_TRUE(same_bits(c.values(), product_of(problem)));
  }
}

TEST_F(GemmAmx, TouchesNothingOutsideTheOperands) {
  expect_no_touch_outside<float>();
  expect_no_touch_outside<BF16>();
}

// An operand that lies packed gives the bits of one that is packed at each call; `pack` is ops,
// which a backend runs.
TEST_F(GemmAmx, PackedOperandsGiveTheSameBits) {
  Random random(8);
  const auto backend = make_cpu_backend();
  for (int round = 0; round < 12; ++round) {
    const GemmShape s = shape_with_layout(random_size(random, 140),
                                          random_size(random, 140),
                                          round == 0 ? 3000 : random_size(random, 140),
                                          round & 2);
    GemmProblem<float> problem(s, random);
    problem.b[0] = std::numeric_limits<float>::min() * 0.999f;
    Graph graph("pack");
    const Shape shape = s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n};
    const Value b = input(graph, "b", {DType::kF32, shape});
    graph.add_output("packed", amx_operand(1, s).pack(b));
    Tensor tensor({DType::kF32, shape});
    std::memcpy(tensor.data(), problem.b.data(), problem.b.size() * sizeof(float));
    const NamedTensors packed = evaluate(graph, *backend, {{"b", tensor}});
    std::vector<float> got = problem.c;
    std::vector<char> workspace(gemm_amx_workspace_bytes(s, {}, true));
    gemm_amx_packed(s, problem.a.data(), packed.at("packed").data(), got.data(), workspace.data());
    EXPECT_TRUE(same_bits(got, product_of(problem))) << s.m << "x" << s.n << "x" << s.k;
  }
}

TEST(GemmAmxAlone, NeedsTheTiles) {
  if (!has_isa(Isa::kAvx2)) return;
  const Isa before = isa();
  set_isa(Isa::kAvx2);
  EXPECT_THROW(gemm_amx_workspace_bytes(shape_with_layout(1, 1, 1, 0), {}, false), InternalError);
  set_isa(before);
}

}  // namespace
}  // namespace ridge::cpu
