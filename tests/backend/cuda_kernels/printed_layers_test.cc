// Kernels of the ops that layers are made of: norms, softmax, losses.
#include <gtest/gtest.h>

#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cases.h"

namespace ridge::test {
namespace {

constexpr DType kFloatDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

// Rows of one piece and of several, for each dtype.
TEST(PrintedLayers, SoftmaxAndLossesOfRows) {
  Cases bits, near;
  uint64_t seed = 0;
  for (const DType dtype : kFloatDTypes)
    for (const Shape& shape :
         {Shape{1}, Shape{37, 10}, Shape{5, 1024}, Shape{2, 2, 1027}, Shape{3, 5000}}) {
      Graph graph("rows");
      const Value x = input(graph, "x", {dtype, shape});
      const Value targets = input(graph, "t", {DType::kI64, Shape(shape.begin(), shape.end() - 1)});
      const Value y = softmax(x);
      const bool is_wide = dtype == DType::kF64;
      ASSERT_TRUE((is_wide ? near : bits).add(*y.node, ++seed, Fill::kTame)) << bits.refusal();
      ASSERT_TRUE(near.add(*log_softmax(x).node, seed, Fill::kTame)) << near.refusal();
      const int64_t limit = shape.back();
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        const Value loss =
            cross_entropy(x, targets, {.ignore_index = 0, .label_smoothing = smoothing});
        ASSERT_TRUE(near.add(*loss.node, seed, Fill::kTame, limit)) << near.refusal();
      }
    }
  bits.expect_bits_of_cpu();
  near.expect_results();
}

// A number that is not finite stays in its row, as on the CPU.
TEST(PrintedLayers, SoftmaxOfSpecialNumbers) {
  Cases all;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{200, 7}, Shape{4, 1500}}) {
      Graph graph("rows");
      const Value x = input(graph, "x", {dtype, shape});
      ASSERT_TRUE(all.add(*softmax(x).node, 3, Fill::kSpecial)) << all.refusal();
    }
  all.expect_bits_of_cpu();
}

TEST(PrintedLayers, NormsOfRows) {
  Cases all;
  uint64_t seed = 0;
  for (const DType dtype : kFloatDTypes)
    for (const Shape& shape : {Shape{1, 1},
                               Shape{37, 10},
                               Shape{18, 768},
                               Shape{3, 4096},
                               Shape{3, 4099},
                               Shape{2, 9000}})
      for (const Fill how : {Fill::kTame, Fill::kSpecial}) {
        Graph graph("norms");
        const Value x = input(graph, "x", {dtype, shape});
        const Value gamma = input(graph, "gamma", {dtype, {shape.back()}});
        const Value beta = input(graph, "beta", {dtype, {shape.back()}});
        ASSERT_TRUE(all.add(*layer_norm(x, gamma, beta).node, ++seed, how)) << all.refusal();
        ASSERT_TRUE(all.add(*rms_norm(x, gamma).node, seed, how)) << all.refusal();
      }
  all.expect_bits_of_cpu();
}

}  // namespace
}  // namespace ridge::test
