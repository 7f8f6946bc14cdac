// CPU pooling against loops written out here, and against the reference backend.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/pool.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

const DType kFloatDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

PoolFields random_pool(Random& random) {
  PoolFields pool;
  for (size_t d = 0; d < 2; ++d) {
    pool.kernel[d] = random.integer(1, 4);
    pool.window.stride[d] = random.integer(1, 4);
    pool.window.padding[d] = random.integer(0, pool.kernel[d] - 1);
    pool.window.padding[d + 2] = random.integer(0, pool.kernel[d] - 1);
  }
  return pool;
}

Value pool_gradient(Value x, Value dy, const PoolFields& pool) {
  MaxPool2dGrad op;
  op.pool = pool;
  return add_node(std::move(op), {x, dy});
}

Value avg_gradient(Value dy, const Shape& x, const PoolFields& pool, bool count_padding) {
  AvgPool2dGrad op;
  op.pool = pool;
  op.count_padding = count_padding;
  op.size = {x[1], x[2]};
  return add_node(std::move(op), {dy});
}

// One pixel: (n, h, w, c) -> its position in a tensor of that shape.
int64_t at(const Shape& shape, int64_t n, int64_t h, int64_t w, int64_t c) {
  return ((n * shape[1] + h) * shape[2] + w) * shape[3] + c;
}

TEST(CpuPool, AgreesWithReference) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const PoolFields pool = random_pool(random);
    // 130 channels are more than a block of the kernels, 3 less than a vector.
    const int64_t channels = std::vector<int64_t>{1, 3, 8, 33, 130}[size_t(random.integer(0, 4))];
    const Shape shape{random.integer(1, 3), random.integer(4, 9), random.integer(4, 9), channels};
    for (DType dtype : kFloatDTypes) {
      CaseBuilder c(dtype, seed);
      const Value x = c.separated(shape);
      const Value y = max_pool2d(x, pool);
      const Value dy = c.input(y.shape());
      const bool count_padding = random.chance(0.5);
      c.finish({y,
                pool_gradient(x, dy, pool),
                avg_pool2d(x, pool, count_padding),
                avg_gradient(dy, shape, pool, count_padding)});
      run_every_way(c);
      EXPECT_EQ(node_differences(c.graph(), c.tensors(), *cpu, *reference), "") << seed;
    }
  }
}

TEST(CpuPool, MaximaAndMeansByHand) {
  CaseBuilder c(DType::kF32, 1);
  const Value x = c.given({DType::kF32, {1, 3, 3, 1}}, {1, 2, 3, 4, 9, 6, 7, 8, 5});
  PoolFields pool{.kernel = {2, 2}, .window = {.padding = {1, 0, 0, 0}}};
  const Value dy = c.given({DType::kF32, {1, 3, 2, 1}}, {1, 2, 4, 8, 16, 32});
  c.finish({max_pool2d(x, pool),
            avg_pool2d(x, pool, true),
            avg_pool2d(x, pool, false),
            pool_gradient(x, dy, pool),
            avg_gradient(dy, x.shape(), pool, false)});
  const NamedTensors results = run_every_way(c);
  const std::map<std::string, std::vector<double>> want = {
      {"y0", {2, 3, 9, 9, 9, 9}},
      {"y1", {0.75, 1.25, 4, 5, 7, 7}},
      {"y2", {1.5, 2.5, 4, 5, 7, 7}},
      {"y3", {0, 1, 2, 0, 60, 0, 0, 0, 0}},
      // pixel (0, 0): 1/2 + 4/4; (0, 1): 1/2 + 2/2 + 4/4 + 8/4; ...
      {"y4", {1.5, 4.5, 3, 5, 15, 10, 4, 12, 8}}};
  for (const auto& [name, values] : want)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(results.at(name).at(int64_t(i)), values[i]) << name << " " << i;
}

TEST(CpuPool, NaNIsTheLargestAndTheFirstOneGetsTheGradient) {
  for (DType dtype : kFloatDTypes) {
    CaseBuilder c(dtype, 1);
    const double nan = std::nan(""), inf = INFINITY;
    const int64_t channels = 37;
    std::vector<double> values;
    const double column[] = {inf, nan, 1, nan, -inf, 3};
    for (double value : column)
      for (int64_t k = 0; k < channels; ++k) values.push_back(k == 5 ? 2.0 : value);
    const Value x = c.given({dtype, {1, 3, 2, channels}}, values);
    const PoolFields pool{.kernel = {2, 2}, .window = {}};
    const Value dy = c.given({dtype, {1, 2, 1, channels}}, std::vector<double>(2 * channels, 1.0));
    c.finish({max_pool2d(x, pool), pool_gradient(x, dy, pool)});
    const NamedTensors results = run_every_way(c);
    for (int64_t k = 0; k < channels; ++k) {
      const double expected_dx[] = {0, 1, 0, 1, 0, 0}, ties_dx[] = {1, 0, 1, 0, 0, 0};
      for (int64_t i = 0; i < 2; ++i) {
        const double y = results.at("y0").at(i * channels + k);
        EXPECT_TRUE(k == 5 ? y == 2.0 : std::isnan(y));
      }
      for (int64_t i = 0; i < 6; ++i)
        EXPECT_EQ(results.at("y1").at(i * channels + k), k == 5 ? ties_dx[i] : expected_dx[i]);
    }
  }
}

// <avg(x), dy> = <x, avg_grad(dy)> for both ways of counting: exact in small whole numbers.
TEST(CpuPool, AverageAndItsGradientAreTransposes) {
  for (bool count_padding : {false, true}) {
    CaseBuilder c(DType::kF64, 3);
    const Shape shape{2, 7, 6, 20};
    const PoolFields pool{.kernel = {3, 2}, .window = {.stride = {2, 1}, .padding = {1, 1, 2, 0}}};
    const Value x = c.input(shape);
    const Value y = avg_pool2d(x, pool, count_padding);
    const Value dy = c.input(y.shape());
    c.finish({y, avg_gradient(dy, shape, pool, count_padding)});
    const NamedTensors results = run_every_way(c);
    double left = 0, right = 0;
    const Tensor &tx = c.tensors().at("x0"), &tdy = c.tensors().at("x1");
    for (int64_t i = 0; i < tdy.elements(); ++i) left += results.at("y0").at(i) * tdy.at(i);
    for (int64_t i = 0; i < tx.elements(); ++i) right += results.at("y1").at(i) * tx.at(i);
    EXPECT_NEAR(left, right, 1e-12 * std::fabs(left) + 1e-12);
  }
}

// More images than the workspace of 16-bit gradients holds at a time.
TEST(CpuPool, SumsHalvesInFloatOverSeveralGroups) {
  CaseBuilder c(DType::kF16, 3);
  const Shape shape{2, 128, 128, 130};
  const PoolFields pool{.kernel = {3, 3}, .window = {.padding = {1, 1, 1, 1}}};
  const Value x = c.input(shape);
  const Value dy = c.input(shape);
  c.finish({pool_gradient(x, dy, pool)});
  const NamedTensors results = run_every_way(c);
  // Every dy arrives somewhere: sums by channel agree up to the rounding of the results.
  const Tensor &from = c.tensors().at("x1"), &to = results.at("y0");
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t k = 0; k < shape[3]; k += 43) {
      double sent = 0, received = 0, size = 0;
      for (int64_t h = 0; h < shape[1]; ++h)
        for (int64_t w = 0; w < shape[2]; ++w) {
          sent += from.at(at(shape, n, h, w, k));
          received += to.at(at(shape, n, h, w, k));
          size += std::fabs(to.at(at(shape, n, h, w, k)));
        }
      EXPECT_NEAR(sent, received, size * 0x1p-11);
    }
}

}  // namespace
}  // namespace ridge::test
