// The f32 functions of the CPU kernels against the long double functions of libm, over every 1021st
// bit pattern. All 2^32 patterns were run by hand once; the limits below are what that run found.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiniest = std::numeric_limits<float>::denorm_min();

Tensor vector_of(const std::vector<float>& values) {
  Tensor tensor({DType::kF32, {static_cast<int64_t>(values.size())}});
  std::memcpy(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

// f of those elements by the CPU backend, the same with every instruction set.
std::vector<float> results(Value (*f)(Value), const Tensor& x) {
  Graph graph("f");
  graph.add_output("y", f(input(graph, "x", x.type())));
  const NamedTensors all = run_every_way(graph, {{"x", x}});
  const auto y = all.at("y").span<float>();
  return {y.begin(), y.end()};
}

std::vector<float> results(Value (*f)(Value), const std::vector<float>& x) {
  return results(f, vector_of(x));
}

// Floats as integers in the same order: neighbours differ by 1.
int64_t place(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? -static_cast<int64_t>(bits & 0x7fffffff) : bits;
}

Tensor sample() {
  constexpr uint64_t kPatterns = uint64_t{1} << 32;
  const uint64_t step = kPatterns / static_cast<uint64_t>(cases(4206593)) | 1u;  // normally 1021
  std::vector<float> x;
  for (uint64_t bits = 0; bits < kPatterns; bits += step)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return vector_of(x);
}

struct Function {
  const char* name;
  Value (*build)(Value);
  long double (*exact)(long double);
  int64_t limit;  ///< Allowed distance from the correctly rounded value, in floats.
};

long double exact_sigmoid(long double x) { return 1.0L / (1.0L + expl(-x)); }
long double exact_silu(long double x) { return x * exact_sigmoid(x); }
long double exact_gelu(long double x) { return 0.5L * x * erfcl(-x / sqrtl(2.0L)); }
long double exact_tanh_gelu(long double x) {
  if (fabsl(x) > 1000) return x > 0 ? x : x * 0.0L;
  const long double u = sqrtl(2.0L / acosl(-1.0L)) * (x + 0.044715L * x * x * x);
  return x / (1.0L + expl(-2.0L * u));
}
Value erf_gelu(Value x) { return gelu(x, GeluForm::kErf); }
Value tanh_gelu(Value x) { return gelu(x, GeluForm::kTanh); }

const Function kFunctions[] = {
    {"exp", exp, expl, 1},
    {"log", log, logl, 1},
    {"sin", sin, sinl, 1},
    {"cos", cos, cosl, 1},
    {"tanh", tanh, tanhl, 2},
    {"erf", erf, erfl, 2},
    {"sigmoid", sigmoid, exact_sigmoid, 2},
    {"silu", silu, exact_silu, 2},
    {"gelu", erf_gelu, exact_gelu, 2},
    {"gelu_tanh", tanh_gelu, exact_tanh_gelu, 2},
};

void expect_near(const Function& f, const Tensor& x) {
  const std::vector<float> y = results(f.build, x);
  int64_t worst = 0, wrong_nan = 0;
  float at = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const float in = x.span<float>()[i];
    const float want = static_cast<float>(f.exact(in));
    if (std::isnan(want) || std::isnan(y[i])) {
      wrong_nan += std::isnan(want) != std::isnan(y[i]);
      continue;
    }
    const int64_t distance = std::abs(place(y[i]) - place(want));
    if (distance > worst) worst = distance, at = in;
  }
  EXPECT_EQ(wrong_nan, 0);
  EXPECT_LE(worst, f.limit) << "at " << at;
}

class MathTest : public ::testing::TestWithParam<Function> {};

TEST_P(MathTest, IsNearTheCorrectlyRoundedValueEverywhere) {
  static const Tensor x = sample();
  expect_near(GetParam(), x);
}

INSTANTIATE_TEST_SUITE_P(All, MathTest, ::testing::ValuesIn(kFunctions), [](const auto& each) {
  return std::string(each.param.name);
});

// Between -15 and -1/64 the tables of GELU leave it little room.
TEST(MathGelu, IsNearTheCorrectlyRoundedValueOfNegativeNumbers) {
  const uint32_t first = std::bit_cast<uint32_t>(-1.0f / 64), end = std::bit_cast<uint32_t>(-15.0f);
  const uint32_t step = (end - first) / static_cast<uint32_t>(cases(1000003)) | 1u;  // normally 81
  std::vector<float> x;
  for (uint32_t bits = first; bits < end; bits += step) x.push_back(std::bit_cast<float>(bits));
  expect_near({"gelu", erf_gelu, exact_gelu, 2}, vector_of(x));
}

// Equal as numbers, sign of zero included; NaN equals NaN.
void expect_values(Value (*f)(Value), const std::vector<float>& x, const std::vector<float>& want) {
  const std::vector<float> got = results(f, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool same = std::isnan(want[i])
                          ? std::isnan(got[i])
                          : std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]);
    EXPECT_TRUE(same) << "f(" << x[i] << ") = " << got[i] << ", not " << want[i];
  }
}

TEST(MathEdges, Exp) {
  // 88.722839 is the largest argument whose result is finite, -103.97208 the smallest whose result
  // is not 0, and -87.33655 lies below the normal results.
  expect_values(
      exp,
      {0.0f, -0.0f, kInf, -kInf, kNan, kTiniest, 1000.0f, -1000.0f, 88.723f, -103.98f, -103.972f},
      {1.0f, 1.0f, kInf, 0.0f, kNan, 1.0f, kInf, 0.0f, kInf, 0.0f, kTiniest});
  EXPECT_LT(results(exp, std::vector<float>{88.7228f})[0], kInf);
}

TEST(MathEdges, Log) {
  expect_values(log,
                {0.0f, -0.0f, 1.0f, kInf, -kInf, kNan, -1.0f, -kTiniest},
                {-kInf, -kInf, 0.0f, kInf, kNan, kNan, kNan, kNan});
  EXPECT_FLOAT_EQ(results(log, std::vector<float>{kTiniest})[0], -103.27893f);  // -149 ln 2
}

TEST(MathEdges, OddFunctionsKeepZerosAndSubnormals) {
  const std::vector<float> x = {
      0.0f, -0.0f, kInf, -kInf, kNan, 1e30f, -1e30f, 1000 * kTiniest, -1000 * kTiniest};
  expect_values(
      tanh, x, {0.0f, -0.0f, 1.0f, -1.0f, kNan, 1.0f, -1.0f, 1000 * kTiniest, -1000 * kTiniest});
  expect_values(
      erf, x, {0.0f, -0.0f, 1.0f, -1.0f, kNan, 1.0f, -1.0f, 1128 * kTiniest, -1128 * kTiniest});
}

// Sines of numbers beyond 8e8 are the C library's.
TEST(MathEdges, SinesOfLargeNumbers) {
  std::vector<float> x = {0.0f, -0.0f, kInf, -kInf, kNan, kTiniest, -kTiniest};
  for (float each = 1e-30f; std::isfinite(each); each *= -4.25f) x.push_back(each);
  std::vector<float> sines, cosines;
  for (float each : x) {
    sines.push_back(static_cast<float>(sinl(each)));
    cosines.push_back(static_cast<float>(cosl(each)));
  }
  expect_values(sin, x, sines);
  expect_values(cos, x, cosines);
}

TEST(MathEdges, RootsAndActivations) {
  expect_values(
      sqrt, {0.0f, -0.0f, kInf, -1.0f, kNan, 6.25f}, {0.0f, -0.0f, kInf, kNan, kNan, 2.5f});
  expect_values(
      rsqrt, {0.0f, -0.0f, kInf, -1.0f, kNan, 6.25f}, {kInf, -kInf, 0.0f, kNan, kNan, 0.4f});
  expect_values(
      sigmoid, {0.0f, kInf, -kInf, kNan, 200.0f, -200.0f}, {0.5f, 1.0f, 0.0f, kNan, 1.0f, 0.0f});
  expect_values(relu,
                {1.5f, 0.0f, -2.0f, kInf, -kInf, kNan, kTiniest, -kTiniest},
                {1.5f, 0.0f, 0.0f, kInf, 0.0f, kNan, kTiniest, 0.0f});
  for (const auto f : {silu, erf_gelu, tanh_gelu})
    expect_values(f,
                  {kInf, -kInf, kNan, 1e30f, -1e30f, 0.0f, -0.0f},
                  {kInf, kNan, kNan, 1e30f, -0.0f, 0.0f, -0.0f});
}

// The gradients are built of plain ops, whose errors do not shrink where a gradient nears zero:
// they are within 1e-6 of the exact ones, which are between -0.13 and 1.13.
void expect_gradient(Value (*f)(Value), long double (*exact)(long double)) {
  std::vector<float> at;
  for (int i = -16000; i <= 16000; ++i) at.push_back(static_cast<float>(i) * 1e-3f);
  const Tensor x = vector_of(at);
  Graph graph("gradient");
  const Value in = input(graph, "x", x.type()), y = f(in);
  const Value dy = constant_like(in, 1.0);
  graph.add_output("dx",
                   vector_jacobian_product(
                       std::vector<Value>{y}, std::vector<Value>{dy}, std::vector<Value>{in})[0]);
  const NamedTensors all = run_every_way(graph, {{"x", x}});
  long double worst = 0;
  for (size_t i = 0; i < at.size(); ++i)
    worst = fmaxl(worst, fabsl(all.at("dx").span<float>()[i] - exact(at[i])));
  EXPECT_LE(worst, 1e-6L);
}

long double normal_density(long double x) { return expl(-x * x / 2) / sqrtl(2 * acosl(-1.0L)); }

TEST(MathGradients, AreNearTheExactOnes) {
  expect_gradient(sigmoid, [](long double x) {
    const long double y = exact_sigmoid(x);
    return y * (1 - y);
  });
  expect_gradient(silu, [](long double x) {
    const long double y = exact_sigmoid(x);
    return y + x * y * (1 - y);
  });
  expect_gradient(erf_gelu, [](long double x) {
    return 0.5L * erfcl(-x / sqrtl(2.0L)) + x * normal_density(x);
  });
  expect_gradient(tanh_gelu, [](long double x) {
    const long double factor = sqrtl(2.0L / acosl(-1.0L));
    const long double y = exact_sigmoid(2 * factor * (x + 0.044715L * x * x * x));
    return y + x * y * (1 - y) * 2 * factor * (1 + 3 * 0.044715L * x * x);
  });
}

}  // namespace
}  // namespace ridge::test
