// Printed matrix products, run on the CPU thread by thread: the bits of the CPU backend.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/product_forms.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::PrintedKernel;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

TEST(PrintedMatMul, EachFormGivesTheBitsOfTheCpu) {
  Cases all;
  size_t number = 0;
  for (const DType dtype : kDTypes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        if (!is_drawn(number++, 3)) continue;
        // Odd sizes, and those that are read and written in vectors.
        all.add(product_case({ta ? Shape{45, 67} : Shape{67, 45},
                              tb ? Shape{70, 45} : Shape{45, 70},
                              ta,
                              tb,
                              dtype}));
        all.add(product_case({ta ? Shape{2, 40, 72} : Shape{2, 72, 40},
                              tb ? Shape{2, 88, 40} : Shape{2, 40, 88},
                              ta,
                              tb,
                              dtype}));
      }
  all.expect_bits_of_cpu();
}

TEST(PrintedMatMul, FactorsAreRounded) {
  Cases all;
  for (const DType to : {DType::kBF16, DType::kF16}) {
    all.add(product_case({{67, 45}, {45, 70}, false, false, DType::kF32, to}));
    all.add(product_case({{3, 20, 131}, {3, 40, 131}, false, true, DType::kF32, to}));
    all.add(product_case({{24, 500}, {500, 16}, false, false, DType::kF32, to}));
  }
  all.expect_bits_of_cpu();
}

// Products of a row, of a column, of one of each, of one step; a batch.
TEST(PrintedMatMul, ThinAndSmall) {
  Cases all;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    all.add(product_case({{1, 33}, {33, 300}, false, false, dtype}));
    all.add(product_case({{300, 33}, {33, 1}, false, false, dtype}));
    all.add(product_case({{300, 40}, {8, 40}, false, true, dtype}));
    all.add(product_case({{1, 1}, {1, 1}, false, false, dtype}));
    all.add(product_case({{17, 1}, {1, 19}, false, false, dtype}));
    all.add(product_case({{7, 3, 5, 6}, {7, 3, 6, 4}, false, false, dtype}));
  }
  all.expect_bits_of_cpu();
}

// A depth of several chains: each a block's own where there are few tiles, else one after another.
TEST(PrintedMatMul, DeepProductsAddUpTheirChains) {
  Cases all;
  for (const DType dtype : kDTypes) {
    all.add(product_case({{70, 1001}, {1001, 66}, false, false, dtype}));
    all.add(product_case({{385, 20}, {385, 24}, true, false, dtype}));
  }
  EXPECT_EQ(all.kernel(0).launches.size(), 2u);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.add(product_case({{140, 33, 391}, {140, 391, 35}, false, false, dtype}));
    EXPECT_EQ(all.kernel(all.size() - 1).launches.size(), 1u);
  }
  all.expect_bits_of_cpu();
}

// The largest tiles, which a product of few blocks does not get.
TEST(PrintedMatMul, LargeTiles) {
  Cases all;
  const auto is_large = [&](size_t i) { return all.kernel(i).launches[0].threads == 256; };
  all.add(product_case({{132, 65, 20}, {132, 20, 66}}));
  EXPECT_TRUE(is_large(0));
  all.add(product_case({{34, 24, 130}, {34, 24, 136}, true, false, DType::kBF16}));
  EXPECT_TRUE(is_large(1));
  if (is_full_scale()) {
    all.add(product_case({{132, 65, 396}, {132, 66, 396}, false, true}));
    EXPECT_TRUE(is_large(2));
  }
  all.expect_bits_of_cpu();
}

// Infinities, NaN, zeros of both signs, subnormal numbers.
TEST(PrintedMatMul, SpecialNumbers) {
  Cases all;
  constexpr double kSpecial[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 1e-40, -1e-45, 3e38, 65520.0};
  for (const DType dtype : kDTypes) {
    CaseBuilder b(dtype, 5);
    std::vector<double> left(37 * 41), right(41 * 39);
    for (auto* const values : {&left, &right})
      for (double& x : *values)
        x = b.random().chance(0.01)  ? kSpecial[b.random().integer(0, std::ssize(kSpecial) - 1)]
            : b.random().chance(0.3) ? 0.0
                                     : b.random().uniform(-2, 2);
    b.finish({matmul(b.given({dtype, {37, 41}}, left), b.given({dtype, {41, 39}}, right))});
    all.add(std::move(b));
  }
  all.expect_bits_of_cpu();
}

TEST(PrintedMatMul, TheWorkspaceIsBounded) {
  const auto printed = [](Shape a, Shape b) {
    Graph graph("sizes");
    const Value x = input(graph, "x", {DType::kF32, std::move(a)});
    const Value y = input(graph, "y", {DType::kF32, std::move(b)});
    return *cuda::print_kernel(*matmul(x, y, true).node, kH200).kernel;
  };
  // A gradient of weights: few tiles, a deep product.
  const PrintedKernel split = printed({16384, 256}, {16384, 256});
  EXPECT_EQ(split.launches.size(), 2u);
  EXPECT_EQ(split.workspace_bytes, 43u * 256 * 256 * 4);
  const PrintedKernel whole = printed({65536, 768}, {65536, 768});
  EXPECT_EQ(whole.launches.size(), 1u);
  EXPECT_EQ(whole.workspace_bytes, 0u);
  EXPECT_EQ(whole.launches[0].blocks, 144u);
}

}  // namespace
}  // namespace ridge::test
