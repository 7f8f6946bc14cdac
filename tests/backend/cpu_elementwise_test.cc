// Elementwise kernels, casts and selection of the CPU backend, against arithmetic written out here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<DType> members(DTypeSet set) {
  std::vector<DType> all;
  for (DType dtype : kAllDTypes)
    if (set.has(dtype)) all.push_back(dtype);
  return all;
}

Tensor tensor_of(DType dtype, const std::vector<double>& values) {
  Tensor tensor({dtype, {static_cast<int64_t>(values.size())}});
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

template <typename F>
Tensor apply(F build, const std::vector<Tensor>& operands) {
  Graph graph("elementwise");
  NamedTensors inputs;
  std::vector<Value> values;
  for (const Tensor& operand : operands) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(input(graph, name, operand.type()));
    inputs.emplace(name, operand);
  }
  if constexpr (std::is_invocable_v<F, Value>)
    graph.add_output("y", build(values[0]));
  else
    graph.add_output("y", build(values[0], values[1]));
  return run_every_way(graph, inputs).at("y");
}

// Numbers that every number dtype holds but for the sign and the fractions, which are rounded away.
std::vector<double> operands(Random& random, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const double x = random.uniform(dtype == DType::kU8 || dtype == DType::kU16 ? 1 : -11, 11);
    values.push_back(is_float(dtype) ? x : std::nearbyint(x));
  }
  return values;
}

struct UnaryCase {
  const char* name;
  Value (*build)(Value);
  double (*exact)(double);
  DTypeSet dtypes;
};

const UnaryCase kUnary[] = {
    {"neg", neg, [](double x) { return -x; }, kNumbers},
    {"abs", abs, [](double x) { return std::fabs(x); }, kNumbers},
    {"sign", sign, [](double x) { return x > 0   ? 1.0
                                         : x < 0 ? -1.0
                                                 : x; }, kNumbers},
    {"exp", exp, std::exp, kFloats},
    {"sin", sin, std::sin, kFloats},
    {"cos", cos, std::cos, kFloats},
    {"tanh", tanh, std::tanh, kFloats},
    {"erf", erf, std::erf, kFloats},
    {"log",
     [](Value x) { return log(abs(x)); },
     [](double x) { return std::log(std::fabs(x)); },
     kFloats},
    {"sqrt",
     [](Value x) { return sqrt(abs(x)); },
     [](double x) { return std::sqrt(std::fabs(x)); },
     kFloats},
    {"rsqrt",
     [](Value x) { return rsqrt(abs(x)); },
     [](double x) { return 1 / std::sqrt(std::fabs(x)); },
     kFloats},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, kFloats},
    {"relu", relu, [](double x) { return x > 0 ? x : 0.0; }, kFloats},
    {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, kFloats},
    {"gelu",
     [](Value x) { return gelu(x); },
     [](double x) { return x * 0.5 * std::erfc(-x * std::sqrt(0.5)); },
     kFloats},
    {"gelu_tanh",
     [](Value x) { return gelu(x, GeluForm::kTanh); },
     [](double x) {
       return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
     },
     kFloats},
};

struct BinaryCase {
  const char* name;
  Value (*build)(Value, Value);
  double (*exact)(double, double);
  DTypeSet dtypes;
};

const BinaryCase kBinary[] = {
    {"add", add, [](double a, double b) { return a + b; }, kNumbers},
    {"sub", sub, [](double a, double b) { return a - b; }, kNumbers},
    {"mul", mul, [](double a, double b) { return a * b; }, kNumbers},
    {"div", div, [](double a, double b) { return a / b; }, kFloats},
    {"fmod", fmod, [](double a, double b) { return std::fmod(a, b); }, kFloats},
    {"pow",
     [](Value a, Value b) { return pow(abs(a), b); },
     [](double a, double b) { return std::pow(std::fabs(a), b); },
     kFloats},
    {"maximum", maximum, [](double a, double b) { return std::fmax(a, b); }, kNumbers},
    {"minimum", minimum, [](double a, double b) { return std::fmin(a, b); }, kNumbers},
    {"eq", eq, [](double a, double b) { return a == b ? 1.0 : 0.0; }, kNumbers},
    {"ne", ne, [](double a, double b) { return a != b ? 1.0 : 0.0; }, kNumbers},
    {"lt", lt, [](double a, double b) { return a < b ? 1.0 : 0.0; }, kNumbers},
    {"le", le, [](double a, double b) { return a <= b ? 1.0 : 0.0; }, kNumbers},
    {"gt", gt, [](double a, double b) { return a > b ? 1.0 : 0.0; }, kNumbers},
    {"ge", ge, [](double a, double b) { return a >= b ? 1.0 : 0.0; }, kNumbers},
    {"and", logical_and, [](double a, double b) { return a * b; }, kBools},
    {"or", logical_or, [](double a, double b) { return std::fmax(a, b); }, kBools},
};

// Relative error allowed against double arithmetic that is rounded once: 0 for exact ops.
double allowed(DType dtype, const char* name) {
  const bool exact = std::string_view("neg abs sign sqrt relu").find(name) != std::string::npos;
  if (exact || !is_float(dtype)) return 0.0;
  // The exponent of a tail is rounded: its error grows with its size, here up to 100.
  const bool tail = std::string_view(name).starts_with("gelu");
  if (tail && dtype == DType::kF64) return 1e-13;
  if (tail && dtype == DType::kF32) return 3e-5;
  return dtype == DType::kF64   ? 1e-15
         : dtype == DType::kF32 ? 2e-6
         : dtype == DType::kF16 ? 0x1p-10
                                : 0x1p-7;
}

void expect_near(const Tensor& got, const Tensor& want, double relative, const char* name) {
  // Subnormal numbers are as far apart as the least normal ones.
  const double least = got.type().dtype == DType::kF16 ? 0x1p-14 : 1e-39;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const bool is_same = got.at(i) == want.at(i);  // infinities, too
    const double error = is_same ? 0.0 : std::fabs(got.at(i) - want.at(i));
    ASSERT_LE(error, relative * std::max(std::fabs(want.at(i)), least))
        << name << " element " << i << " of " << to_string(got.type()) << " is " << got.at(i)
        << ", not " << want.at(i);
  }
}

// Every length that ends at another place of a vector, and one that several threads share; fewer
// for dtypes whose loops are others' over again.
std::vector<int64_t> lengths(DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF16) return {1, 13, 31, 64, 2500};
  std::vector<int64_t> n = {40000};
  for (int64_t i = 1; i <= 67; i += cases(10) < 10 ? 11 : 1) n.push_back(i);
  return n;
}

TEST(CpuElementwise, OneInput) {
  Random random(1);
  for (const UnaryCase& c : kUnary)
    for (DType dtype : members(c.dtypes))
      for (int64_t n : lengths(dtype)) {
        const Tensor x = tensor_of(dtype, operands(random, n, dtype));
        std::vector<double> want;
        for (int64_t i = 0; i < n; ++i) want.push_back(c.exact(x.at(i)));
        Tensor exact = tensor_of(dtype, want);
        // -x of an unsigned number wraps.
        if (std::string_view("neg") == c.name && (dtype == DType::kU8 || dtype == DType::kU16))
          for (int64_t i = 0; i < n; ++i)
            exact.set(i, std::ldexp(1.0, dtype == DType::kU8 ? 8 : 16) - x.at(i));
        expect_near(apply(c.build, {x}), exact, allowed(dtype, c.name), c.name);
      }
}

TEST(CpuElementwise, TwoInputs) {
  Random random(2);
  for (const BinaryCase& c : kBinary)
    for (DType dtype : members(c.dtypes))
      for (int64_t n : lengths(dtype)) {
        std::vector<double> a = operands(random, n, dtype), b = operands(random, n, dtype);
        if (dtype == DType::kBool)
          for (size_t i = 0; i < a.size(); ++i)
            a[i] = random.chance(0.5), b[i] = random.chance(0.5);
        const Tensor x = tensor_of(dtype, a), y = tensor_of(dtype, b);
        const Tensor got = apply(c.build, {x, y});
        Tensor want(got.type());
        for (int64_t i = 0; i < n; ++i) {
          double exact = c.exact(x.at(i), y.at(i));
          if (dtype == DType::kU8 || dtype == DType::kU16)
            exact -= std::floor(exact / std::ldexp(1.0, dtype == DType::kU8 ? 8 : 16)) *
                     std::ldexp(1.0, dtype == DType::kU8 ? 8 : 16);
          want.set(i, exact);
        }
        expect_near(
            got, want, c.name == std::string_view("pow") ? allowed(dtype, c.name) : 0.0, c.name);
      }
}

TEST(CpuElementwise, SpecialFloats) {
  for (DType dtype : members(kFloats)) {
    const std::vector<double> a = {kNan, 1, kNan, kInf, -kInf, 2, -1, kInf};
    const std::vector<double> b = {1, kNan, kNan, kInf, kInf, 3, -1, -kInf};
    const auto expect = [&](Value (*build)(Value, Value), const std::vector<double>& want) {
      const Tensor got = apply(build, {tensor_of(dtype, a), tensor_of(dtype, b)});
      for (size_t i = 0; i < want.size(); ++i) {
        const double each = got.at(static_cast<int64_t>(i));
        EXPECT_TRUE(each == want[i] || (std::isnan(each) && std::isnan(want[i])))
            << i << ": " << each << ", not " << want[i];
      }
    };
    expect(maximum, {kNan, kNan, kNan, kInf, kInf, 3, -1, kInf});
    expect(minimum, {kNan, kNan, kNan, kInf, -kInf, 2, -1, -kInf});
    expect(add, {kNan, kNan, kNan, kInf, kNan, 5, -2, kNan});
    expect(sub, {kNan, kNan, kNan, kNan, -kInf, -1, 0, kInf});
    expect(eq, {0, 0, 0, 1, 0, 0, 1, 0});
    expect(ne, {1, 1, 1, 0, 1, 1, 0, 1});
    expect(lt, {0, 0, 0, 0, 1, 1, 0, 0});
    expect(le, {0, 0, 0, 1, 1, 1, 1, 0});
    expect(gt, {0, 0, 0, 0, 0, 0, 0, 1});
    expect(ge, {0, 0, 0, 1, 0, 0, 1, 1});

    const Tensor finite = apply(is_finite, {tensor_of(dtype, {0, kInf, -kInf, kNan, -7})});
    EXPECT_EQ(std::vector<bool>(finite.span<bool>().begin(), finite.span<bool>().end()),
              (std::vector<bool>{true, false, false, false, true}));
    EXPECT_TRUE(std::isnan(apply(sign, {tensor_of(dtype, {kNan})}).at(0)));
    EXPECT_TRUE(std::isnan(apply(abs, {tensor_of(dtype, {kNan})}).at(0)));
  }
}

// The smallest number above zero.
double smallest(DType dtype) {
  return dtype == DType::kF64   ? 0x1p-1074
         : dtype == DType::kF32 ? 0x1p-149
         : dtype == DType::kF16 ? 0x1p-24
                                : 0x1p-133;
}

TEST(CpuElementwise, SignedZerosAndSubnormalNumbers) {
  for (DType dtype : members(kFloats)) {
    const double tiny = smallest(dtype);
    const Tensor x = tensor_of(dtype, {0.0, -0.0, tiny, -tiny});
    const auto expect = [&](Value (*build)(Value), const std::vector<double>& want) {
      EXPECT_TRUE(apply(build, {x}).same_bits(tensor_of(dtype, want))) << to_string(x.type());
    };
    expect(neg, {-0.0, 0.0, -tiny, tiny});
    expect(abs, {0.0, 0.0, tiny, tiny});
    expect(sign, {0.0, 0.0, 1.0, -1.0});
    expect(relu, {0.0, 0.0, tiny, 0.0});
    EXPECT_TRUE(apply(is_finite, {x}).same_bits(tensor_of(DType::kBool, {1, 1, 1, 1})));

    // Zeros of either sign are equal, and of equal numbers the first is taken.
    const Tensor a = tensor_of(dtype, {0.0, -0.0, tiny, -tiny});
    const Tensor b = tensor_of(dtype, {-0.0, 0.0, 0.0, -0.0});
    EXPECT_TRUE(apply(eq, {a, b}).same_bits(tensor_of(DType::kBool, {1, 1, 0, 0})));
    EXPECT_TRUE(apply(lt, {a, b}).same_bits(tensor_of(DType::kBool, {0, 0, 0, 1})));
    EXPECT_TRUE(apply(maximum, {a, b}).same_bits(tensor_of(dtype, {0.0, -0.0, tiny, -0.0})));
    EXPECT_TRUE(apply(minimum, {a, b}).same_bits(tensor_of(dtype, {0.0, -0.0, 0.0, -tiny})));
    EXPECT_TRUE(apply(add, {a, b}).same_bits(tensor_of(dtype, {0.0, 0.0, tiny, -tiny})));
    EXPECT_TRUE(apply(mul, {a, b}).same_bits(tensor_of(dtype, {-0.0, -0.0, 0.0, 0.0})));
  }
}

template <typename T>
Tensor integers(const std::vector<T>& values) {
  Tensor tensor({dtype_of<T>(), {static_cast<int64_t>(values.size())}});
  std::memcpy(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

TEST(CpuElementwise, IntegersWrap) {
  const int64_t least64 = std::numeric_limits<int64_t>::min();
  const auto i64 = integers<int64_t>({least64, 1, INT64_MAX, int64_t{1} << 32});
  EXPECT_TRUE(apply(neg, {i64})
                  .same_bits(integers<int64_t>({least64, -1, -INT64_MAX, -(int64_t{1} << 32)})));
  EXPECT_TRUE(
      apply(abs, {i64}).same_bits(integers<int64_t>({least64, 1, INT64_MAX, int64_t{1} << 32})));
  EXPECT_TRUE(apply(mul, {i64, i64}).same_bits(integers<int64_t>({0, 1, 1, 0})));
  EXPECT_TRUE(apply(add, {i64, i64}).same_bits(integers<int64_t>({0, 2, -2, int64_t{1} << 33})));
  const auto i8 = integers<int8_t>({-128, 127, 100});
  EXPECT_TRUE(apply(neg, {i8}).same_bits(integers<int8_t>({-128, -127, -100})));
  EXPECT_TRUE(apply(add, {i8, i8}).same_bits(integers<int8_t>({0, -2, -56})));
  EXPECT_TRUE(apply(mul, {i8, i8}).same_bits(integers<int8_t>({0, 1, 16})));
  const auto u16 = integers<uint16_t>({65535, 0, 40000});
  EXPECT_TRUE(apply(mul, {u16, u16}).same_bits(integers<uint16_t>({1, 0, 4096})));
  EXPECT_TRUE(apply(neg, {u16}).same_bits(integers<uint16_t>({1, 0, 25536})));
  EXPECT_TRUE(apply(sub, {u16, integers<uint16_t>({0, 1, 40001})})
                  .same_bits(integers<uint16_t>({65535, 65535, 65535})));
}

TEST(CpuElementwise, LogicAndSelection) {
  Random random(3);
  for (DType dtype : kAllDTypes)
    for (int64_t n : {1, 15, 16, 31, 67, 20000}) {
      std::vector<double> chosen;
      for (int64_t i = 0; i < n; ++i) chosen.push_back(random.chance(0.5));
      const Tensor condition = tensor_of(DType::kBool, chosen);
      Tensor a = tensor_of(dtype, operands(random, n, dtype));
      const Tensor b = tensor_of(dtype, operands(random, n, dtype));
      Graph graph("where");
      graph.add_output("y",
                       where(input(graph, "c", condition.type()),
                             input(graph, "a", a.type()),
                             input(graph, "b", b.type())));
      const Tensor got = run_every_way(graph, {{"c", condition}, {"a", a}, {"b", b}}).at("y");
      for (int64_t i = 0; i < n; ++i)
        if (chosen[static_cast<size_t>(i)] == 0.0) a.set(i, b.at(i));
      EXPECT_TRUE(got.same_bits(a)) << name_of(dtype) << " of " << n;
    }
  const Tensor flags = tensor_of(DType::kBool, {0, 1, 0, 1, 1});
  EXPECT_TRUE(apply(logical_not, {flags}).same_bits(tensor_of(DType::kBool, {1, 0, 1, 0, 0})));
}

// Whole range of each type: its ends, what lies between representable numbers, and random bits.
Tensor all_kinds(DType dtype) {
  Random random(4);
  Tensor x({dtype, {3000}});
  const std::vector<double> special = {0,
                                       -0.0,
                                       0.5,
                                       -0.5,
                                       1.5,
                                       2.5,
                                       255,
                                       256,
                                       -128.5,
                                       -129,
                                       32767.5,
                                       65504,
                                       65519.99,
                                       65520,
                                       65535.5,
                                       65536,
                                       2147483647.0,
                                       2147483648.0,
                                       -2147483648.0,
                                       -2147483649.0,
                                       9.2e18,
                                       9.3e18,
                                       -9.3e18,
                                       1e30,
                                       -1e30,
                                       1e300,
                                       -1e300,
                                       1e-40,
                                       1e-45,
                                       6e-8,
                                       2.9e-8,
                                       1e-300,
                                       kInf,
                                       -kInf,
                                       kNan,
                                       1.0 + 0x1p-8,
                                       1.0 + 0x1p-8 + 0x1p-40,
                                       1.0 + 3 * 0x1p-8,
                                       1.0 + 0x1p-11,
                                       1.0 + 0x1p-11 + 0x1p-50,
                                       16777217,
                                       16777219,
                                       9007199254740993.0,
                                       4611686018427387904.0 + 1024,
                                       2049,
                                       2051,
                                       4098};
  int64_t i = 0;
  for (double value : special) x.set(i++, value);
  if (dtype == DType::kI64) {
    // Just above and below a tie of a 16-bit float, far beyond what a double can tell apart.
    for (int shift = 12; shift < 62; ++shift)
      for (int64_t nudge : {-1, 0, 1}) {
        x.span<int64_t>()[static_cast<size_t>(i++)] =
            (int64_t{0x101} << shift) + (int64_t{1} << (shift - 1)) * 2 + nudge;
        x.span<int64_t>()[static_cast<size_t>(i++)] = -((int64_t{0x201} << (shift - 10)) + nudge);
      }
  }
  auto* bytes = static_cast<unsigned char*>(x.data());
  const size_t size = size_of(dtype);
  for (size_t byte = static_cast<size_t>(i) * size; byte < x.bytes(); ++byte)
    bytes[byte] = dtype == DType::kBool ? random.chance(0.5)
                                        : static_cast<unsigned char>(random.integer(0, 255));
  return x;
}

// By the conversions of base/dtype.h, which have a test of their own.
Tensor converted(const Tensor& x, DType to) {
  Tensor y({to, x.type().shape});
  dispatch(x.type().dtype, [&]<typename From>(TypeTag<From>) {
    dispatch(to, [&]<typename To>(TypeTag<To>) {
      for (int64_t i = 0; i < x.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        y.span<To>()[at] = convert<To>(x.span<From>()[at]);
      }
    });
  });
  return y;
}

TEST(CpuElementwise, CastsOfEveryPair) {
  for (DType from : kAllDTypes) {
    const Tensor x = all_kinds(from);
    for (DType to : kAllDTypes) {
      Graph graph("cast");
      Cast op;
      op.to = to;
      graph.add_output("y", add_node(std::move(op), {input(graph, "x", x.type())}));
      const NamedTensors got = run_every_way(graph, {{"x", x}});
      EXPECT_EQ(bit_difference(got, {{"y", converted(x, to)}}), "")
          << name_of(from) << " to " << name_of(to);
    }
  }
}

// A result may take the place of an input.
TEST(CpuElementwise, InPlace) {
  Random random(5);
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  for (DType dtype : members(kFloats)) {
    const Tensor a = tensor_of(dtype, operands(random, 5003, dtype));
    const Tensor b = tensor_of(dtype, operands(random, 5003, dtype));
    const Tensor want = apply(mul, {a, b});
    Graph graph("in place");
    const Value y = mul(input(graph, "a", a.type()), input(graph, "b", b.type()));
    const auto kernel = backend->instantiate(*y.node, 0);
    for (int which : {0, 1}) {
      Tensor place = which == 0 ? a : b;
      const void* inputs[] = {which == 0 ? place.data() : a.data(),
                              which == 1 ? place.data() : b.data()};
      void* outputs[] = {place.data()};
      kernel->launch(*stream, {.inputs = inputs, .outputs = outputs});
      stream->synchronize();
      EXPECT_TRUE(place.same_bits(want)) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace ridge::test
