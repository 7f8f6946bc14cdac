// Printed matrix products and attention, run on the CPU thread by thread: the bits of the CPU
// backend, and in f64 attention, whose functions are another library's, the reference's numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/graph/ops/matmul.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/backend/cuda_kernels/contractions.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::PrintedKernel;

// ---- matrix products ----

struct Product {
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::kF32;
  DType round_to = DType::kF32;
};

CaseBuilder built(const Product& product, uint64_t seed = 3) {
  CaseBuilder b(product.dtype, seed);
  MatMul op;
  op.transpose_a = product.transpose_a;
  op.transpose_b = product.transpose_b;
  op.accumulate = accumulate_dtype(product.dtype);
  op.round_to = product.round_to;
  const Value left = b.input(product.a), right = b.input(product.b);
  b.finish({add_node(std::move(op), {left, right})});
  return b;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

TEST(PrintedMatMul, EachFormGivesTheBitsOfTheCpu) {
  Contractions all;
  for (const DType dtype : kDTypes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        // Odd sizes, and those that are read and written in vectors.
        all.add(built({ta ? Shape{45, 67} : Shape{67, 45},
                       tb ? Shape{70, 45} : Shape{45, 70},
                       ta,
                       tb,
                       dtype}));
        all.add(built({ta ? Shape{2, 40, 72} : Shape{2, 72, 40},
                       tb ? Shape{2, 88, 40} : Shape{2, 40, 88},
                       ta,
                       tb,
                       dtype}));
      }
  all.expect_bits_of_cpu();
}

TEST(PrintedMatMul, FactorsAreRounded) {
  Contractions all;
  for (const DType to : {DType::kBF16, DType::kF16}) {
    all.add(built({{67, 45}, {45, 70}, false, false, DType::kF32, to}));
    all.add(built({{3, 20, 131}, {3, 40, 131}, false, true, DType::kF32, to}));
    all.add(built({{24, 500}, {500, 16}, false, false, DType::kF32, to}));
  }
  all.expect_bits_of_cpu();
}

// Products of a row, of a column, of one of each, of one step; a batch.
TEST(PrintedMatMul, ThinAndSmall) {
  Contractions all;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    all.add(built({{1, 33}, {33, 300}, false, false, dtype}));
    all.add(built({{300, 33}, {33, 1}, false, false, dtype}));
    all.add(built({{300, 40}, {8, 40}, false, true, dtype}));
    all.add(built({{1, 1}, {1, 1}, false, false, dtype}));
    all.add(built({{17, 1}, {1, 19}, false, false, dtype}));
    all.add(built({{7, 3, 5, 6}, {7, 3, 6, 4}, false, false, dtype}));
  }
  all.expect_bits_of_cpu();
}

// A depth of several chains: each a block's own where there are few tiles, else one after another.
TEST(PrintedMatMul, DeepProductsAddUpTheirChains) {
  Contractions all;
  for (const DType dtype : kDTypes) {
    all.add(built({{70, 1001}, {1001, 66}, false, false, dtype}));
    all.add(built({{385, 20}, {385, 24}, true, false, dtype}));
  }
  EXPECT_EQ(all.kernel(0).launches.size(), 2u);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.add(built({{140, 33, 391}, {140, 391, 35}, false, false, dtype}));
    EXPECT_EQ(all.kernel(all.size() - 1).launches.size(), 1u);
  }
  all.expect_bits_of_cpu();
}

// The largest tiles, which a product of few blocks does not get.
TEST(PrintedMatMul, LargeTiles) {
  Contractions all;
  const auto is_large = [&](size_t i) { return all.kernel(i).launches[0].threads == 256; };
  all.add(built({{132, 65, 20}, {132, 20, 66}}));
  EXPECT_TRUE(is_large(0));
  all.add(built({{34, 24, 130}, {34, 24, 136}, true, false, DType::kBF16}));
  EXPECT_TRUE(is_large(1));
  if (is_full_scale()) {
    all.add(built({{132, 65, 396}, {132, 66, 396}, false, true}));
    EXPECT_TRUE(is_large(2));
  }
  all.expect_bits_of_cpu();
}

// Infinities, NaN, zeros of both signs, subnormal numbers.
TEST(PrintedMatMul, SpecialNumbers) {
  Contractions all;
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
    return *cuda::print_kernel(*matmul(x, y, true).node).kernel;
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

// ---- attention ----

// Odd sizes, and those that are read in vectors; blocks that are full and those that are not; more
// keys than queries and fewer; one column and several parts of them; masks that are repeated along
// each axis.
const AttentionCase kForms[] = {
    {2, 3, 5, 7, 4, 5},
    {1, 1, 1, 1, 1, 1},
    {2, 2, 9, 9, 8, 8, true},
    {1, 2, 6, 4, 4, 4, true},
    {1, 1, 70, 133, 12, 20},
    {1, 2, 130, 200, 16, 24, true},
    {1, 1, 200, 130, 8, 8, true},
    {1, 1, 33, 140, 40, 130},
    {1, 1, 66, 70, 70, 68, true},
    {2, 1, 65, 129, 8, 16, false, {2, 1, 65, 129}},
    {1, 3, 65, 150, 16, 17, true, {1, 3, 1, 150}},
    {2, 1, 20, 30, 8, 8, false, {1, 1, 20, 30}},
    {2, 3, 70, 70, 16, 16, true, {}, true},
    {1, 2, 19, 19, 5, 5, false, {1, 2, 19, 19}, true},
};

TEST(PrintedAttention, GivesTheBitsOfTheCpu) {
  Contractions all;
  size_t number = 0;
  for (const AttentionCase& form : kForms) {
    all.add(attention_of(form, DType::kF32));
    if (is_full_scale() || number % 3 == 0) all.add(attention_of(form, DType::kBF16));
    if (is_full_scale() || number++ % 3 == 1) all.add(attention_of(form, DType::kF16));
  }
  all.expect_bits_of_cpu();
}

TEST(PrintedAttention, TheGradientGivesTheBitsOfTheCpu) {
  Contractions all;
  size_t number = 0;
  for (const AttentionCase& form : kForms) {
    all.add(gradient_of(form, DType::kF32));
    if (is_full_scale() || number % 3 == 0) all.add(gradient_of(form, DType::kBF16));
    if (is_full_scale() || number++ % 3 == 1) all.add(gradient_of(form, DType::kF16));
  }
  // So many keys that the CPU adds up dq in parts.
  all.add(gradient_of({1, 1, 70, 1100, 8, 8}, DType::kF32));
  all.add(gradient_of({1, 1, 1100, 1100, 4, 4, true}, DType::kF32));
  all.expect_bits_of_cpu();
}

TEST(PrintedAttention, InF64ItIsNearTheReference) {
  Contractions all;
  for (const AttentionCase& form : kForms) {
    if (form.queries * form.keys > 10000 && !is_full_scale()) continue;
    all.add(attention_of(form, DType::kF64));
    all.add(gradient_of(form, DType::kF64));
  }
  all.expect_near_reference();
}

// Queries that see no key, or one in the second block, and scores that are not finite.
TEST(PrintedAttention, SpecialRows) {
  Contractions all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    constexpr int64_t kKeys = 200;
    CaseBuilder masked(dtype, 11);
    const Value q = masked.input({1, 1, 3, 8}), k = masked.input({1, 1, kKeys, 8}),
                v = masked.input({1, 1, kKeys, 5});
    std::vector<double> mask(3 * kKeys, 0.0);
    mask[kKeys + 150] = 1.0;
    const Value allowed = masked.given({DType::kBool, {1, 1, 3, kKeys}}, mask);
    const Value y = attention(q, k, v, {.mask = allowed});
    masked.finish({y, {y.node, 1}});
    all.add(std::move(masked));

    std::vector<double> one_finite(kKeys, -INFINITY), one_nan(kKeys, 1.0), none(kKeys, -INFINITY);
    one_finite[139] = 1.0;
    one_nan[20] = NAN;
    for (const auto& scores : {one_finite, one_nan, none}) {
      CaseBuilder b(dtype, 12);
      const Value one = b.given({dtype, {1, 1, 1, 1}}, {1.0});
      const Value keys = b.given({dtype, {1, 1, kKeys, 1}}, scores);
      const Value result = attention(one, keys, b.input({1, 1, kKeys, 3}));
      b.finish({result, {result.node, 1}});
      all.add(std::move(b));
    }
  }
  all.expect_bits_of_cpu();
}

// Scores in the hundreds: the maximum jumps from block to block.
TEST(PrintedAttention, LargeScores) {
  Contractions all;
  CaseBuilder b(DType::kF32, 10);
  const Value q = b.input({1, 1, 70, 24}, -10, 10), k = b.input({1, 1, 500, 24}, -10, 10),
              v = b.input({1, 1, 500, 20});
  const Value y = attention(q, k, v, {.scale = 1.0});
  b.finish({y, {y.node, 1}});
  all.add(std::move(b));
  all.expect_bits_of_cpu();
}

}  // namespace
}  // namespace ridge::test
