// Softmax, cross-entropy, norms and dropout of the CPU backend, against double arithmetic written
// out here.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/base/hash.h"
#include "ridge/base/philox.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

constexpr DType kFloatTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// Spacing of the numbers of a dtype, relative to their size, and what the kernel's own arithmetic
// may add to it.
double resolution(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-14;
    case DType::kF32:
      return 1e-6;
    case DType::kF16:
      return 0x1p-11 + 1e-6;
    default:
      return 0x1p-8 + 1e-6;
  }
}

Tensor random_tensor(Random& random, DType dtype, const Shape& shape, double low, double high) {
  Tensor x({dtype, shape});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, random.uniform(low, high));
  return x;
}

NamedTensors run(const std::vector<Tensor>& operands,
                 const std::function<std::vector<Value>(const std::vector<Value>&)>& build) {
  Graph graph("rows");
  NamedTensors inputs;
  std::vector<Value> values;
  for (const Tensor& operand : operands) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(input(graph, name, operand.type()));
    inputs.emplace(name, operand);
  }
  const std::vector<Value> results = build(values);
  for (size_t i = 0; i < results.size(); ++i) graph.add_output(fmt::format("y{}", i), results[i]);
  return run_every_way(graph, inputs);
}

// Within `relative` of the larger of |want| and `scale`; NaN equals NaN, infinities themselves.
void expect_near(
    const Tensor& got, int64_t i, double want, double relative, double scale, const char* what) {
  const double y = got.at(i);
  if (y == want || (std::isnan(y) && std::isnan(want))) return;
  ASSERT_LE(std::fabs(y - want), relative * std::fmax(std::fabs(want), scale))
      << what << ' ' << to_string(got.type()) << " element " << i << ": " << y << ", not " << want;
}

std::vector<double> row_of(const Tensor& x, int64_t row, int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(x.at(row * n + i));
  return values;
}

// log(sum(exp(x))) without overflow.
double log_sum_exp(const std::vector<double>& row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double x : row) sum += std::exp(x - max);
  return max + std::log(sum);
}

const std::vector<Shape> kRows = {{1, 1},
                                  {3, 2},
                                  {5, 15},
                                  {2, 16},
                                  {3, 17},
                                  {4, 63},
                                  {3, 64},
                                  {2, 65},
                                  {2, 1024},
                                  {3, 1025},
                                  {40, 700},
                                  {2, 5000}};

TEST(CpuRows, SoftmaxAndLogSoftmax) {
  Random random(21);
  for (DType dtype : kFloatTypes)
    for (const Shape& shape : kRows) {
      const Tensor x = random_tensor(random, dtype, shape, -20, 20);
      const NamedTensors y = run({x}, [](const std::vector<Value>& v) -> std::vector<Value> {
        return {softmax(v[0]), log_softmax(v[0])};
      });
      for (int64_t r = 0; r < shape[0]; ++r) {
        const double norm = log_sum_exp(row_of(x, r, shape[1]));
        for (int64_t i = r * shape[1]; i < (r + 1) * shape[1]; ++i) {
          const double want = x.at(i) - norm;
          // The exponent, up to 60, is rounded: its error is relative to its size.
          const double allowed = resolution(dtype) * (dtype == DType::kF32 ? 10 : 2);
          const double least = dtype == DType::kF16 ? 0x1p-14 : 1e-6;  // the smallest normal f16
          expect_near(y.at("y0"), i, std::exp(want), allowed, least, "softmax");
          expect_near(y.at("y1"), i, want, 2 * resolution(dtype), 10, "log_softmax");
        }
      }
    }
}

TEST(CpuRows, SoftmaxOfSpecialRows) {
  const double inf = INFINITY;
  const std::vector<std::vector<double>> rows = {
      {1e4, 1e4, -1e4}, {-inf, 0, -inf}, {-inf, -inf, -inf}, {inf, 0, 0}, {0, NAN, 0}};
  Tensor x({DType::kF32, {5, 3}});
  for (int64_t i = 0; i < 15; ++i)
    x.set(i, rows[static_cast<size_t>(i / 3)][static_cast<size_t>(i % 3)]);
  const NamedTensors y = run({x}, [](const std::vector<Value>& v) -> std::vector<Value> {
    return {softmax(v[0]), log_softmax(v[0])};
  });
  const double want[] = {0.5, 0.5, 0, 0, 1, 0};
  for (int64_t i = 0; i < 15; ++i) {
    const double expected = i < 6 ? want[i] : NAN;
    expect_near(y.at("y0"), i, expected, 1e-7, 1, "softmax");
  }
  EXPECT_EQ(y.at("y1").at(3), -inf);
  EXPECT_EQ(y.at("y1").at(4), 0);
}

double exact_loss(const std::vector<double>& row, int64_t target, double smoothing) {
  const double norm = log_sum_exp(row);
  double loss = 0;
  const auto classes = static_cast<double>(row.size());
  for (size_t c = 0; c < row.size(); ++c) {
    const double weight =
        smoothing / classes + (static_cast<int64_t>(c) == target ? 1 - smoothing : 0);
    if (weight != 0) loss -= weight * (row[c] - norm);
  }
  return loss;
}

TEST(CpuRows, CrossEntropy) {
  Random random(22);
  for (DType dtype : kFloatTypes)
    for (DType index : {DType::kI64, DType::kI32})
      for (double smoothing : {0.0, 0.1, 1.0})
        for (const Shape& shape : kRows) {
          const Tensor x = random_tensor(random, dtype, shape, -8, 8);
          Tensor targets({index, {shape[0]}});
          // Class 0 is ignored: a class number may be.
          for (int64_t r = 0; r < shape[0]; ++r)
            targets.set(r, static_cast<double>(random.integer(0, shape[1] - 1)));
          const NamedTensors y =
              run({x, targets}, [&](const std::vector<Value>& v) -> std::vector<Value> {
                return {
                    cross_entropy(v[0], v[1], {.ignore_index = 0, .label_smoothing = smoothing})};
              });
          for (int64_t r = 0; r < shape[0]; ++r) {
            const auto target = static_cast<int64_t>(targets.at(r));
            const double want =
                target == 0 ? 0 : exact_loss(row_of(x, r, shape[1]), target, smoothing);
            expect_near(y.at("y0"), r, want, resolution(dtype), 1, "cross_entropy");
          }
        }
}

TEST(CpuRows, CrossEntropyOfMaskedClasses) {
  // Without smoothing a class of probability 0 does not turn the loss into NaN.
  Tensor x({DType::kF32, {2, 3}}), targets({DType::kI64, {2}});
  for (int64_t i = 0; i < 6; ++i) x.set(i, i % 3 == 1 ? -INFINITY : 0.0);
  targets.set(0, 0);
  targets.set(1, 1);
  const NamedTensors y = run({x, targets}, [](const std::vector<Value>& v) -> std::vector<Value> {
    return {cross_entropy(v[0], v[1])};
  });
  EXPECT_FLOAT_EQ(static_cast<float>(y.at("y0").at(0)), std::log(2.0f));
  EXPECT_EQ(y.at("y0").at(1), INFINITY);
}

TEST(CpuRows, CrossEntropyNamesAWrongTarget) {
  for (double wrong : {-1.0, 4.0, 1e9}) {
    Tensor x({DType::kF32, {6, 700, 4}}), targets({DType::kI32, {6, 700}});
    targets.set(5 * 700 + 9, wrong);
    targets.set(5 * 700 + 690, wrong);
    const CpuSettings restore;
    for (int threads : {1, 5}) {
      set_num_threads(threads);
      Graph graph("wrong");
      graph.add_output(
          "y", cross_entropy(input(graph, "x", x.type()), input(graph, "t", targets.type())));
      try {
        const auto backend = make_cpu_backend();
        evaluate(graph, *backend, {{"x", x}, {"t", targets}});
        ADD_FAILURE() << "no error";
      } catch (const UserError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find(fmt::format("target {} at [5,9]", static_cast<int64_t>(wrong))),
                  std::string::npos)
            << message;
      }
    }
  }
}

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  for (double each : x) m.mean += each / static_cast<double>(x.size());
  for (double each : x)
    m.variance += (each - m.mean) * (each - m.mean) / static_cast<double>(x.size());
  return m;
}

// `offset` is the mean in units of the standard deviation: E[x^2] - E[x]^2 would lose all digits.
void check_row_norms(Random& random, DType dtype, const Shape& shape, double offset) {
  const double eps = 1e-5;
  const int64_t n = shape[1];
  const Tensor x = random_tensor(random, dtype, shape, offset - 2, offset + 2);
  const Tensor gamma = random_tensor(random, dtype, {n}, 0.5, 1.5);
  const Tensor beta = random_tensor(random, dtype, {n}, -1, 1);
  const NamedTensors y =
      run({x, gamma, beta}, [&](const std::vector<Value>& v) -> std::vector<Value> {
        return {layer_norm(v[0], v[1], v[2], eps), rms_norm(v[0], v[1], eps)};
      });
  for (int64_t r = 0; r < shape[0]; ++r) {
    const std::vector<double> row = row_of(x, r, n);
    const Moments m = moments(row);
    const double root = std::sqrt(m.variance + m.mean * m.mean + eps);
    for (int64_t c = 0; c < n; ++c) {
      const double each = row[static_cast<size_t>(c)];
      const double layer = (each - m.mean) / std::sqrt(m.variance + eps) * gamma.at(c) + beta.at(c);
      expect_near(y.at("y0"), r * n + c, layer, 3 * resolution(dtype), 1, "layer_norm");
      expect_near(
          y.at("y1"), r * n + c, each / root * gamma.at(c), 3 * resolution(dtype), 1, "rms_norm");
    }
  }
}

TEST(CpuRows, LayerAndRmsNorm) {
  Random random(23);
  for (DType dtype : kFloatTypes)
    for (const Shape& shape : kRows) check_row_norms(random, dtype, shape, 0.25);
  for (const Shape& shape : kRows) {
    if (shape[1] == 1) continue;  // variance 0 of a large number is all rounding
    check_row_norms(random, DType::kF32, shape, 1000);
  }
}

void check_batch_norm(Random& random, DType dtype, const Shape& shape, double offset) {
  const double eps = 1e-3;
  const int64_t channels = shape.back();
  const Tensor x = random_tensor(random, dtype, shape, offset - 2, offset + 2);
  const Tensor gamma = random_tensor(random, dtype, {channels}, 0.5, 1.5);
  const Tensor beta = random_tensor(random, dtype, {channels}, -1, 1);
  const NamedTensors y =
      run({x, gamma, beta}, [&](const std::vector<Value>& v) -> std::vector<Value> {
        const BatchNormResult result = batch_norm(v[0], v[1], v[2], eps);
        return {result.y, result.mean, result.variance};
      });
  const double near = 3 * resolution(dtype);
  for (int64_t c = 0; c < channels; ++c) {
    std::vector<double> column;
    for (int64_t i = c; i < x.elements(); i += channels) column.push_back(x.at(i));
    const Moments m = moments(column);
    expect_near(y.at("y1"), c, m.mean, resolution(dtype), 1, "mean");
    expect_near(y.at("y2"), c, m.variance, near, 1e-3, "variance");
    for (size_t r = 0; r < column.size(); ++r) {
      const double want =
          (column[r] - m.mean) / std::sqrt(m.variance + eps) * gamma.at(c) + beta.at(c);
      expect_near(y.at("y0"), static_cast<int64_t>(r) * channels + c, want, near, 1, "batch_norm");
    }
  }
}

TEST(CpuRows, BatchNorm) {
  Random random(24);
  const std::vector<Shape> shapes = {
      {2, 1}, {7, 3}, {64, 5}, {65, 16}, {3, 4, 17}, {200, 70}, {1300, 33}, {130, 600}, {5, 1100}};
  for (DType dtype : kFloatTypes)
    for (const Shape& shape : shapes) check_batch_norm(random, dtype, shape, 0.25);
  for (const Shape& shape : shapes) check_batch_norm(random, DType::kF32, shape, 1000);
}

// The mask is that of the numbers' definition, whatever part of the batch is computed.
TEST(CpuRows, DropoutKeepsByTheGlobalIndex) {
  Random random(25);
  for (DType dtype : kFloatTypes)
    for (double p : {0.0, 0.1, 0.5, 0.999})
      for (const auto& [shape, samples, first] : {std::tuple<Shape, int64_t, int64_t>{{67}, 1, 0},
                                                  {{3, 7}, 3, 5},
                                                  {{2, 5003}, 2, int64_t{1} << 40},
                                                  {{40000}, 1, 3}}) {
        const Tensor x = random_tensor(random, dtype, shape, 1, 2);
        Tensor rng({DType::kI64, {3}});
        const RngKey key{.seed = 0x9e3779b97f4a7c15u, .step = 12, .site = hash64("a.dropout")};
        rng.span<int64_t>()[0] = static_cast<int64_t>(key.seed);
        rng.span<int64_t>()[1] = 12;
        rng.span<int64_t>()[2] = first;
        const NamedTensors y =
            run({x, rng}, [&](const std::vector<Value>& v) -> std::vector<Value> {
              Dropout op;
              op.p = p;
              op.key = "a.dropout";
              op.samples = samples;
              return {add_node(std::move(op), {v[0], v[1]})};
            });
        const uint64_t begin =
            static_cast<uint64_t>(first) * static_cast<uint64_t>(x.elements() / samples);
        Tensor want(x.type());
        const double scale = 1 / (1 - p);
        const auto scaled = [&](double each) {
          if (dtype == DType::kF64) return each * scale;
          return static_cast<double>(static_cast<float>(each) * static_cast<float>(scale));
        };
        for (int64_t i = 0; i < x.elements(); ++i) {
          const float u = random_f32(key, begin + static_cast<uint64_t>(i));
          want.set(i, static_cast<double>(u) >= p ? scaled(x.at(i)) : 0.0);
        }
        EXPECT_TRUE(y.at("y0").same_bits(want)) << to_string(x.type()) << " p " << p;
      }
}

}  // namespace
}  // namespace ridge::test
