// Reductions of the CPU backend over any axes, against sums and maxima written out here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using Axes = std::vector<int64_t>;

// For each element, in row-major order, the position of its result.
std::vector<size_t> result_positions(const Shape& shape, const Axes& axes) {
  std::vector<size_t> positions;
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t flat = 0; flat < numel(shape); ++flat) {
    int64_t position = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
        position = position * shape[i] + index[i];
    positions.push_back(static_cast<size_t>(position));
    for (size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return positions;
}

Tensor run(Value (*build)(Value, Axes, bool), const Tensor& x, const Axes& axes) {
  Graph graph("reduce");
  graph.add_output("y", build(input(graph, "x", x.type()), axes, false));
  return run_every_way(graph, {{"x", x}}).at("y");
}

Tensor random_tensor(Random& random, DType dtype, const Shape& shape, double low, double high) {
  Tensor x({dtype, shape});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, random.uniform(low, high));
  return x;
}

// Relative error allowed in a sum, against the sum of magnitudes.
double allowed(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-15;
    case DType::kF32:
      return 3e-7;
    case DType::kF16:
      return 0x1p-11 + 3e-7;
    case DType::kBF16:
      return 0x1p-8 + 3e-7;
    default:
      return 0.0;
  }
}

void expect_sums_and_maxima(Random& random, DType dtype, const Shape& shape, const Axes& axes) {
  const bool has_sign = dtype != DType::kU8 && dtype != DType::kU16;
  // Few enough to stay within an i8 when summed, so that doubles give integer sums.
  const double high = is_float(dtype) ? 3.0 : 2.0;
  Tensor x = random_tensor(random, dtype, shape, has_sign ? -high : 0.0, high);
  const Tensor sum = run(reduce_sum, x, axes), max = run(reduce_max, x, axes);
  const auto positions = result_positions(shape, axes);
  const auto n = static_cast<size_t>(sum.elements());
  std::vector<double> sums(n, 0.0), magnitudes(n, 0.0), maxima(n, -INFINITY);
  for (size_t i = 0; i < positions.size(); ++i) {
    const double each = x.at(static_cast<int64_t>(i));
    sums[positions[i]] += each;
    magnitudes[positions[i]] += std::fabs(each);
    maxima[positions[i]] = std::fmax(maxima[positions[i]], each);
  }
  const std::string where = to_string(x.type()) + " over " + to_string(axes);
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int64_t>(i);
    if (is_float(dtype)) {
      ASSERT_LE(std::fabs(sum.at(at) - sums[i]), allowed(dtype) * magnitudes[i]) << where;
    } else {
      Tensor wrapped({dtype, {1}}), exact({DType::kI64, {1}});
      const auto bits = static_cast<int64_t>(sums[i]);
      std::memcpy(wrapped.data(), &bits, size_of(dtype));
      ASSERT_EQ(sum.at(at), wrapped.at(0)) << where;
    }
    ASSERT_EQ(max.at(at), maxima[i]) << where;
  }
  if (!is_float(dtype)) return;
  const Tensor mean = run(reduce_mean, x, axes);
  const double count = static_cast<double>(positions.size()) / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    ASSERT_LE(std::fabs(mean.at(static_cast<int64_t>(i)) - sums[i] / count),
              2 * allowed(dtype) * magnitudes[i] / count)
        << where;
}

Axes random_axes(Random& random, const Shape& shape) {
  Axes axes;
  while (axes.empty())
    for (size_t i = 0; i < shape.size(); ++i)
      if (random.chance(0.5)) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

TEST(CpuReduce, AnyAxesOfAnyDType) {
  Random random(11);
  for (DType dtype : kAllDTypes) {
    if (!kNumbers.has(dtype)) continue;
    for (int round = 0; round < cases(25); ++round) {
      Shape shape(static_cast<size_t>(random.integer(1, 6)));
      for (int64_t& size : shape) size = random.chance(0.2) ? 1 : random.integer(2, 5);
      expect_sums_and_maxima(random, dtype, shape, random_axes(random, shape));
    }
  }
}

TEST(CpuReduce, RowsAndColumnsOfEveryLength) {
  Random random(12);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32})
    for (int64_t n = 1; n <= 67; n += dtype == DType::kF32 ? 1 : 5) {
      expect_sums_and_maxima(random, dtype, {3, n}, {1});
      expect_sums_and_maxima(random, dtype, {n, 3}, {0});
      expect_sums_and_maxima(random, dtype, {9, n}, {0});
      expect_sums_and_maxima(random, dtype, {2, 11, n}, {1});
    }
}

// Long enough for several chunks, tiles and stages.
TEST(CpuReduce, LargeShapes) {
  Random random(13);
  const std::vector<std::pair<Shape, Axes>> shapes = {{{1 << 19}, {0}},
                                                      {{5, 30001}, {1}},
                                                      {{30001, 7}, {0}},
                                                      {{600, 1100}, {0}},
                                                      {{2, 300, 515}, {1}},
                                                      {{70, 40, 60}, {0, 2}},
                                                      {{17, 30, 11, 40}, {0, 2}},
                                                      {{300, 200}, {0, 1}}};
  const std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF64};
  for (size_t i = 0; i < static_cast<size_t>(std::min(cases(9), 3)); ++i)
    for (const auto& [shape, axes] : shapes) expect_sums_and_maxima(random, dtypes[i], shape, axes);
}

// Eight million equal numbers: the rounding errors of a plain f32 sum would all add up.
TEST(CpuReduce, LongSumsKeepTheirAccuracy) {
  const int64_t n = 1 << 23;
  Tensor x({DType::kF32, {n}});
  for (float& each : x.span<float>()) each = 0.1f;
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  EXPECT_NEAR(run(reduce_sum, x, {0}).at(0), exact, 1e-6 * exact);
  EXPECT_NEAR(run(reduce_mean, x, {0}).at(0), 0.1f, 1e-7);
  Tensor columns({DType::kF32, {n / 4, 4}});
  for (float& each : columns.span<float>()) each = 0.1f;
  EXPECT_NEAR(run(reduce_sum, columns, {0}).at(3), exact / 4, 1e-6 * exact / 4);
}

// Partial sums of f16 stay in f32: 20000 * 8 = 160000 is infinite in f16, but its mean is not.
TEST(CpuReduce, HalvesAreRoundedOnce) {
  Tensor x({DType::kF16, {20000}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, 8.0);
  EXPECT_EQ(run(reduce_sum, x, {0}).at(0), INFINITY);
  EXPECT_EQ(run(reduce_mean, x, {0}).at(0), 8.0);
}

TEST(CpuReduce, MaximaPropagateNanFromAnyPlace) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (const Shape& shape : {Shape{2, 37}, Shape{37, 2}, Shape{2, 9000}}) {
      const int64_t axis = shape[0] == 2 ? 1 : 0, n = shape[0] * shape[1];
      for (int64_t nan = 0; nan < n; nan += n > 100 ? 1789 : 1) {
        Tensor x({dtype, shape});
        for (int64_t i = 0; i < n; ++i) x.set(i, i % 3 == 0 ? INFINITY : -INFINITY);
        x.set(nan, NAN);
        const Tensor y = run(reduce_max, x, {axis});
        const int64_t hit = axis == 1 ? nan / shape[1] : nan % shape[1];
        EXPECT_TRUE(std::isnan(y.at(hit))) << to_string(x.type()) << " at " << nan;
        EXPECT_EQ(y.at(1 - hit), INFINITY);
      }
    }
  Tensor low({DType::kF32, {1, 5}});
  for (float& each : low.span<float>()) each = -INFINITY;
  EXPECT_EQ(run(reduce_max, low, {1}).at(0), -INFINITY);
}

TEST(CpuReduce, IntegerSumsWrap) {
  Tensor x({DType::kI8, {2, 100}});
  for (int8_t& each : x.span<int8_t>()) each = 127;
  EXPECT_EQ(run(reduce_sum, x, {1}).at(0), -100);  // 12700 = 50 * 256 - 100
  Tensor large({DType::kI64, {3, 2}});
  for (int64_t& each : large.span<int64_t>()) each = INT64_MAX;
  EXPECT_EQ(run(reduce_sum, large, {0}).span<int64_t>()[1], INT64_MAX - 2);
}

Tensor run_argmax(const Tensor& x, int64_t axis) {
  Graph graph("argmax");
  graph.add_output("y", argmax(input(graph, "x", x.type()), axis));
  return run_every_way(graph, {{"x", x}}).at("y");
}

// More rows than sums of 16 bits hold, of the least and the largest bytes, too; and axes that lie
// apart.
TEST(CpuReduce, SumsOfBytesAreExact) {
  Random random(21);
  const std::vector<std::pair<Shape, Axes>> shapes = {{{3, 900}, {1}},
                                                      {{2, 40, 20, 3}, {1, 2}},
                                                      {{270, 530}, {0}},
                                                      {{2, 7, 7, 65}, {1, 2}},
                                                      {{5, 300, 1}, {1}},
                                                      {{4, 127}, {0, 1}},
                                                      {{3, 5, 100, 2, 7}, {0, 2, 3}}};
  for (const DType dtype : {DType::kI8, DType::kU8}) {
    const double least = dtype == DType::kI8 ? -128 : 0, most = least + 255;
    for (const auto& [shape, axes] : shapes)
      for (const auto& [low, high] : {std::pair(least, most), {least, least}, {most, most}}) {
        const Tensor x = random_tensor(random, dtype, shape, low, high);
        const Tensor sum = run(reduce_sum_i8, x, axes);
        const auto positions = result_positions(shape, axes);
        std::vector<double> sums(static_cast<size_t>(sum.elements()), 0.0);
        for (size_t i = 0; i < positions.size(); ++i)
          sums[positions[i]] += x.at(static_cast<int64_t>(i));
        for (size_t i = 0; i < sums.size(); ++i)
          ASSERT_EQ(sum.at(static_cast<int64_t>(i)), sums[i])
              << to_string(x.type()) << " over " << to_string(axes);
      }
  }
}

TEST(CpuReduce, ArgMaxTakesTheFirstOfEquals) {
  Random random(14);
  for (DType dtype : kAllDTypes) {
    if (!kNumbers.has(dtype)) continue;
    for (const Shape& shape : {Shape{67}, Shape{5, 9}, Shape{9, 5}, Shape{3, 8, 21}, Shape{4, 600}})
      for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
        // Few different values: most rows hold their largest more than once.
        Tensor x = random_tensor(random, dtype, shape, 0.0, 4.0);
        for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::floor(x.at(i)));
        if (is_float(dtype))
          for (int64_t i = 0; i < x.elements(); ++i)
            if (random.chance(0.05)) x.set(i, random.chance(0.5) ? NAN : INFINITY);
        const Tensor y = run_argmax(x, axis);
        const auto positions = result_positions(shape, {axis});
        std::vector<int64_t> best(static_cast<size_t>(y.elements()), -1), seen(best.size(), 0);
        std::vector<double> largest(best.size());
        for (size_t i = 0; i < positions.size(); ++i) {
          const size_t to = positions[i];
          const double each = x.at(static_cast<int64_t>(i));
          const bool larger =
              best[to] < 0 || each > largest[to] || (std::isnan(each) && !std::isnan(largest[to]));
          if (larger) best[to] = seen[to], largest[to] = each;
          ++seen[to];
        }
        for (size_t i = 0; i < best.size(); ++i)
          ASSERT_EQ(y.span<int64_t>()[i], best[i])
              << to_string(x.type()) << " axis " << axis << " result " << i;
      }
  }
}

}  // namespace
}  // namespace ridge::test
