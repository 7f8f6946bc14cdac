// Printed kernels by the device's approximations: how far their results are from those of double
// precision. The stand-ins err by as much as NVIDIA says that the instructions may.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/printed_nvrtc.h"
#include "tests/backend/cuda_kernels/row_graphs.h"
#include "tests/support/random_rows.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::print_approx_kernel;
using cuda::PrintedKernel;

PrintedKernel approx_of(const Node& node) {
  cuda::Printing printing = print_approx_kernel(node, kH200);
  if (!printing.kernel) throw std::runtime_error(printing.refusal);
  return std::move(*printing.kernel);
}

// ---- functions ----

struct Function {
  const char* name;
  Value (*of)(Value);
  double (*exact)(double);
  double units;  // allowed, each 2^-23 of `measure`
  // It takes x and the result.
  double (*measure)(double, double) = [](double, double y) { return y; };
};

double gelu_by_tanh(double x) {
  return x / (1 + std::exp(-1.5957691216057307117597842397375 * (x + 0.044715 * x * x * x)));
}
double silu_exactly(double x) { return x / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {"exp", [](Value x) { return exp(x); }, [](double x) { return std::exp(x); }, 3},
    {"tanh", [](Value x) { return tanh(x); }, [](double x) { return std::tanh(x); }, 4},
    {"sigmoid",
     [](Value x) { return sigmoid(x); },
     [](double x) { return 1 / (1 + std::exp(-x)); },
     5},
    {"silu", [](Value x) { return silu(x); }, silu_exactly, 5},
    {"gelu",
     [](Value x) { return gelu(x); },
     [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); },
     8,
     [](double x, double y) { return std::max(std::fabs(y), std::fabs(x) / 8); }},
    {"gelu by tanh",
     [](Value x) { return gelu(x, GeluForm::kTanh); },
     gelu_by_tanh,
     8,
     [](double x, double y) { return x > 0 ? y / 2 : std::max(std::fabs(y), std::fabs(x) / 8); }},
};

// At most the unit in the last place of a float of that size, and no less than half of it.
double unit_of(double size) { return std::max(std::fabs(size), 0x1p-126) * 0x1p-23; }

// Floats of every exponent, both signs and all kinds.
std::vector<float> arguments() {
  std::vector<float> all = {88.72283f, 88.72284f, -87.3f, -103.9f, -104.1f};
  for (const float x : {0.0f, 1e-45f, 1.17549435e-38f, 0.6f, 3.4028235e38f})
    all.insert(all.end(), {x, -x});
  const auto step = static_cast<uint64_t>(is_short_scale() ? 99991 : 9973);
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += step)
    if (const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits)); std::isfinite(x))
      all.push_back(x);
  // Most of those are huge or nothing.
  for (int i = -110000; i <= 110000; i += 7) all.push_back(static_cast<float>(i) * 1e-3f);
  return all;
}

Tensor run_on(PrintedOnHost& host, const PrintedKernel& kernel, const Tensor& x) {
  Tensor y(x.type());
  host.run(kernel, {x.data()}, {y.data()}, false);
  return y;
}

std::vector<PrintedKernel> build_functions(PrintedOnHost& host, const TensorType& type) {
  Graph graph("functions");
  std::vector<PrintedKernel> kernels;
  for (const Function& function : kFunctions) {
    kernels.push_back(approx_of(*function.of(input(graph, function.name, type)).node));
    host.add(kernels.back());
  }
  host.build();
  return kernels;
}

TEST(PrintedApprox, FunctionsErrNoMoreThanTheySay) {
  const std::vector<float> floats = arguments();
  Tensor x({DType::kF32, {static_cast<int64_t>(floats.size())}});
  std::ranges::copy(floats, x.span<float>().begin());
  PrintedOnHost host;
  const std::vector<PrintedKernel> kernels = build_functions(host, x.type());
  for (size_t k = 0; k < kernels.size(); ++k) {
    const Function& function = kFunctions[k];
    SCOPED_TRACE(function.name);
    EXPECT_FALSE(kernels[k].same_bits);
    const Tensor y = run_on(host, kernels[k], x);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      const double from = static_cast<double>(floats[i]), want = function.exact(from);
      const auto got = static_cast<double>(y.span<float>()[i]);
      if (std::isinf(static_cast<float>(want))) {
        EXPECT_TRUE(std::isinf(got)) << from;
        continue;
      }
      // A result that is hardly normal may be zero.
      const double error = std::fabs(got - want) - 0x1p-118;
      const double units = error / unit_of(function.measure(from, want));
      if (!(units <= worst)) worst = units, at = i;
    }
    EXPECT_LE(worst, function.units) << "at " << floats[at] << ": " << y.span<float>()[at];
    EXPECT_GT(worst, 0.5) << "the stand-ins do not err";
    std::printf("%s: %.2f units\n", function.name, worst);
  }
}

TEST(PrintedApprox, FunctionsOfWhatIsNotFinite) {
  const float inf = INFINITY;
  Tensor x({DType::kF32, {3}});
  x.set(0, -inf), x.set(1, inf), x.set(2, NAN);
  const double wanted[][2] = {{0, inf}, {-1, 1}, {0, 1}, {-0.0, inf}, {-0.0, inf}, {-0.0, inf}};
  PrintedOnHost host;
  const std::vector<PrintedKernel> kernels = build_functions(host, x.type());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Tensor y = run_on(host, kernels[i], x);
    EXPECT_EQ(y.at(0), wanted[i][0]) << kFunctions[i].name;
    // One over 1 may be a little less.
    EXPECT_TRUE(y.at(1) == wanted[i][1] || std::fabs(y.at(1) - wanted[i][1]) < 1e-6)
        << kFunctions[i].name << ' ' << y.at(1);
    EXPECT_TRUE(std::isnan(y.at(2))) << kFunctions[i].name;
  }
}

// ---- loops ----

// The error that the tolerance table allows a reduction, plus that of each function that goes into
// it.
double allowed_of(const Graph& lone, DType dtype) {
  double allowed = tolerance(dtype, OpClass::kReduction);
  const Node& loop = *lone.outputs()[0].value.node;
  for (const auto& node : read_body(loop.op_as<Fused>()).graph.nodes())
    if (node->op->traits().op_class == OpClass::kTranscendental)
      allowed += tolerance(DType::kF32, OpClass::kTranscendental);
  return allowed;
}

// A loop may err twice as much as its ops, one by one on the CPU, err where a sum cancels: its
// order of sums is another.
void expect_near(const Graph& lone, const NamedTensors& operands, const NamedTensors& got) {
  const NamedTensors wanted = evaluate(lone, *make_backend("ref"), operands);
  double plain = 0;
  for (const auto& [name, want] : wanted) {
    const double allowed = allowed_of(lone, want.type().dtype);
    if (difference(got.at(name), want, allowed).empty()) continue;
    if (plain == 0) plain = plain_error(lone, operands, wanted, *make_backend("cpu"));
    EXPECT_EQ(difference(got.at(name), want, std::max(allowed, 2 * plain)), "");
  }
}

// Rows of all lengths: of a part of a piece, aligned and not, kept whole, in part, and beyond.
TEST(PrintedApprox, LossesAndSoftmaxAreNearTheReference) {
  Cases loops;
  size_t number = 0;
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {3, 2}, {70, 10}, {5, 65}, {66, 768}, {9, 2048}, {6, 2050}, {3, 7000}, {5, 7003}})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (!is_drawn(number++, 4)) continue;
      loops.add_loops(softmax_of(dtype, rows, columns), loops.size(), 2, print_approx_kernel);
      loops.add_loops(loss_of(dtype, rows, columns), loops.size(), 2, print_approx_kernel);
    }
  loops.add_loops(loss_of(DType::kF32, 5, 50257), loops.size(), 2, print_approx_kernel);
  loops.add_loops(softmax_of(DType::kBF16, 5, 50257), loops.size(), 2, print_approx_kernel);
  EXPECT_GE(loops.size(), is_short_scale() ? 14u : 50u);
  loops.expect(expect_near);
}

// Rows that a warp holds in registers, where the functions of the CPU hold none.
TEST(PrintedApprox, SoftmaxOfRowsInRegistersIsNearTheReference) {
  Cases loops;
  size_t held = 0;
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 64}, {132, 768}, {12, 1024}, {4, 2048}})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const auto& graph_of : {softmax_of, softmax_gradient_of}) {
        const Graph graph = graph_of(dtype, rows, columns);
        held += held_kernels(graph.clone(), kH200, print_approx_kernel).size();
        EXPECT_TRUE(held_kernels(graph.clone(), kH200).empty());
        loops.add_loops(graph_of(dtype, rows, columns), loops.size(), 2, print_approx_kernel);
      }
  // Two rows of 2048 in f32 leave a thread no registers.
  EXPECT_EQ(held, 23u);
  loops.expect(expect_near);
}

// GELU with its bias, forward and backward, and its sums over all rows.
TEST(PrintedApprox, ActivationsAreNearTheReference) {
  Cases loops;
  size_t number = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{70, 64}, {130, 65}, {67, 3072}, {66, 3073}}) {
      if (!is_drawn(number++, 3)) continue;
      Graph graph("gelu");
      const Value x = input(graph, "x", {dtype, {rows, columns}});
      const Value bias = input(graph, "bias", {DType::kF32, {columns}});
      const Value dy = input(graph, "dy", {dtype, {rows, columns}});
      const Value wide = cast(x, DType::kF32) + broadcast(bias, {rows, columns});
      const Value y = cast(gelu(wide, GeluForm::kTanh), dtype);
      graph.add_output("y", y);
      const std::vector<Value> grads = vector_jacobian_product(
          std::vector<Value>{y}, std::vector<Value>{dy}, std::vector<Value>{x, bias});
      graph.add_output("dx", grads[0]);
      graph.add_output("dbias", grads[1]);
      loops.add_loops(std::move(graph), loops.size(), 2, print_approx_kernel);
    }
  EXPECT_GE(loops.size(), is_short_scale() ? 3u : 8u);
  loops.expect(expect_near);
}

// Masks, overflows and wrong numbers, each in a row of its own. Four rows of 768 or 2048 columns
// are held in registers.
TEST(PrintedApprox, RowsOfWhatIsNotFinite) {
  constexpr float kInf = INFINITY, kLowest = -3.4028235e38f;
  const std::function<float(int64_t c, int64_t last)> rows[] = {
      [](int64_t c, int64_t last) { return c == last ? 1.0f : -kInf; },
      [](int64_t, int64_t) { return -kInf; },
      [](int64_t, int64_t) { return kLowest; },
      [](int64_t c, int64_t) { return c == 3 ? kInf : 0.5f; },
      [](int64_t c, int64_t) { return c == 2 ? NAN : 0.5f; },
      [](int64_t c, int64_t) { return static_cast<float>(c) * 1e30f; },
      [](int64_t c, int64_t) { return c % 2 == 0 ? kLowest : 1e38f; },
      [](int64_t c, int64_t) { return 1e4f + static_cast<float>(c % 5); },
      [](int64_t c, int64_t) { return c < 4 ? -kInf : static_cast<float>(-c); }};
  Cases loops;
  for (const int64_t columns : {7, 300, 768, 2048, 5003}) {
    Graph graph = softmax_of(DType::kF32, 12, columns);
    run_pipeline(graph, *make_backend("cpu"), {.highest = SemanticClass::kReassociation});
    NamedTensors inputs;
    Tensor& x = inputs.emplace("0", Tensor({DType::kF32, {12, columns}})).first->second;
    for (int64_t i = 0; i < 12 * columns; ++i)
      x.set(i, rows[i / columns % 9](i % columns, columns - 1));
    const Node& loop = *graph.outputs()[0].value.node;
    ASSERT_TRUE(loops.add(loop, std::move(inputs), print_approx_kernel)) << loops.refusal();
  }
  loops.expect([](const Graph& lone, const NamedTensors& inputs, const NamedTensors& got) {
    const NamedTensors want = evaluate(lone, *make_backend("ref"), inputs);
    EXPECT_EQ(difference(got.at("0"), want.at("0"), 4e-6), "");
    const int64_t columns = got.at("0").type().shape[1];
    for (const int64_t row : {1, 4}) EXPECT_TRUE(std::isnan(got.at("0").at(row * columns)));
  });
}

TEST(PrintedApprox, RandomRowsAreNearTheReference) {
  Cases loops;
  const int graphs = cases(40);
  for (int seed = 0; seed < graphs; ++seed) {
    RandomRows rows(DType::kF32, static_cast<uint64_t>(seed));
    loops.add_loops(rows.build().graph().clone(), loops.size(), 2, print_approx_kernel);
  }
  EXPECT_GE(loops.size(), 4u);
  loops.expect(expect_near);
}

// ---- which nodes have one ----

TEST(PrintedApprox, OnlyOfNodesThatCallAFunction) {
  Graph graph("which");
  const Value x = input(graph, "x", {DType::kF32, {300, 40}});
  const Value wide = input(graph, "wide", {DType::kF64, {40}});
  const auto why = [](Value value) { return print_approx_kernel(*value.node, kH200).refusal; };
  EXPECT_EQ(why(exp(x)), "");
  EXPECT_EQ(why(x + x), "is add, which calls no function that the device approximates");
  EXPECT_EQ(why(log(x)), "is log, which calls no function that the device approximates");
  EXPECT_EQ(why(exp(wide)), "is exp, which calls no function that the device approximates");
  // A function of a row costs nothing.
  Graph rows("rows");
  const Value y = input(rows, "y", {DType::kF32, {300, 40}});
  rows.add_output("z", y * broadcast(exp(reduce_sum(y, {1}, true)), {300, 40}));
  run_pipeline(rows, *make_backend("cpu"), {});
  for (const auto& node : rows.nodes())
    if (node->is<Fused>()) {
      EXPECT_EQ(print_approx_kernel(*node, kH200).refusal,
                "calls no function that the device approximates");
    }
}

// ---- NVIDIA's compiler ----

// Instructions that are MUFU.EX2: the lowest 12 bits say MUFU, six bits from the 74th on which
// function.
size_t count_exponentials(const std::string& cubin) {
  return count_instructions(cubin, [](uint64_t low, uint64_t high) {
    return (low & 0xfff) == 0x308 && (high >> 10 & 0x3f) == 2;
  });
}

TEST(PrintedApprox, CompilesToTheDevicesExponentialWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Cases loops;
  std::vector<PrintedKernel> approx, exact;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    loops.add_loops(loss_of(dtype, 64, 50257), 1, 2, print_approx_kernel);
    loops.add_loops(softmax_of(dtype, 64, 1024), 1, 2, print_approx_kernel);
  }
  ASSERT_EQ(loops.size(), 4u);
  for (size_t i = 0; i < loops.size(); ++i) {
    approx.push_back(loops.kernel(i));
    const Node& node = *loops.graph(i).outputs()[0].value.node;
    exact.push_back(*cuda::print_kernel(node, kH200).kernel);
  }
  expect_compile(approx, [](const PrintedKernel&, const std::string& cubin, const KernelUse&) {
    EXPECT_GT(count_exponentials(cubin), 0u);
  });
  // The other kernels call none: the count is of these instructions.
  expect_compile(exact, [](const PrintedKernel&, const std::string& cubin, const KernelUse&) {
    EXPECT_EQ(count_exponentials(cubin), 0u);
  });
}

}  // namespace
}  // namespace ridge::test
