// Random graphs: text, verifier, gradients, and the two backends against each other.
#include "tests/support/random_graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/run/backends.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr DType kFloatDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// 200 graphs, half of them f64, where gradients are checked by differences too.
DType dtype_of_case(int seed) { return seed % 2 == 0 ? DType::kF64 : kFloatDTypes[seed / 2 % 4]; }

TEST(RandomGraphs, PrintedGraphParsesToItself) {
  for (int seed = 0; seed < cases(200); ++seed) {
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.dtype = dtype_of_case(seed)});
    verify(b.graph());
    const std::string text = print(b.graph());
    const Graph parsed = parse_graph(text);
    verify(parsed);
    ASSERT_EQ(print(parsed), text) << "seed " << seed;
  }
}

TEST(RandomGraphs, EveryNodeOnCpuAgreesWithRef) {
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  const auto check = [&](int seed) {
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.dtype = dtype_of_case(seed)});
    ASSERT_EQ(node_differences(b.graph(), b.tensors(), *cpu, *ref), "") << "seed " << seed;
  };
  for (int seed = 0; seed < cases(200); ++seed) ASSERT_NO_FATAL_FAILURE(check(seed));
  // All gradients of one batch norm are equal here, so that their mean takes them away.
  ASSERT_NO_FATAL_FAILURE(check(290));
}

TEST(RandomGraphs, ParsedGraphOnCpuAgreesWithRefEndToEnd) {
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  for (int seed = 0; seed < cases(200); ++seed) {
    const DType dtype = dtype_of_case(seed);
    if (dtype != DType::kF64 && dtype != DType::kF32) continue;
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.dtype = dtype});
    const Graph parsed = parse_graph(print(b.graph()));
    const NamedTensors on_ref = evaluate(b.graph(), *ref, b.tensors());
    const NamedTensors on_cpu = evaluate(parsed, *cpu, b.tensors());
    for (const auto& [name, tensor] : on_ref) {
      // Values are a few units in size; a gradient may cancel to nothing on one side.
      Tensor unit(TensorType{DType::kF64, tensor.type().shape});
      for (int64_t i = 0; i < unit.elements(); ++i) unit.set(i, 1e-3);
      ASSERT_EQ(difference(on_cpu.at(name), tensor, dtype == DType::kF64 ? 1e-10 : 1e-3, &unit), "")
          << "seed " << seed << ", output " << name;
    }
  }
}

TEST(RandomGraphs, SameBitsForAnyNumberOfThreads) {
  const auto cpu = make_backend("cpu");
  const int threads = num_threads();
  for (int seed = 0; seed < cases(200); ++seed) {
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.dtype = dtype_of_case(seed)});
    set_num_threads(1);
    const NamedTensors one = evaluate(b.graph(), *cpu, b.tensors());
    for (int count : {2, 5}) {
      set_num_threads(count);
      ASSERT_EQ(bit_difference(one, evaluate(b.graph(), *cpu, b.tensors())), "")
          << "seed " << seed << ", " << count << " threads";
    }
  }
  set_num_threads(threads);
}

TEST(RandomGraphs, GradientsAgreeWithDifferences) {
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  int inputs = 0, zeros = 0;
  for (int seed = 0; seed < cases(200); seed += 2) {
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed), {.gradients = false});
    Graph loss_only = b.graph().clone();
    const GradientCheck check = check_gradients(loss_only, b.tensors(), *cpu, *ref, 3);
    ASSERT_EQ(check.problem, "") << "seed " << seed;
    inputs += check.inputs_checked;
    zeros += check.unresolved;  // inputs that reach no output
  }
  EXPECT_GT(inputs, cases(200));
  EXPECT_LT(zeros, inputs / 4);
}

}  // namespace
}  // namespace ridge::test
