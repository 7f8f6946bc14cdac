// The reference backend against small cases worked out by hand: what happens with NaN, ties, edges,
// wrapping integers and wrong data.
#include <limits>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/ref_case.h"

namespace ridge::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kTwo53 = 9007199254740992.0;  // above it a double skips whole numbers

// ---- elementwise ----

TEST(RefElementwise, NanSpreadsThroughMaximumAndMinimum) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    RefCase c;
    const Value a = c.list(dtype, {1, kNaN, 1, -kInf, 3}), b = c.list(dtype, {kNaN, 1, 2, 5, -3});
    const auto results = c.run_all({maximum(a, b), minimum(a, b)});
    EXPECT_TRUE(same_numbers(results[0], {kNaN, kNaN, 2, 5, 3}));
    EXPECT_TRUE(same_numbers(results[1], {kNaN, kNaN, 1, -kInf, -3}));
  }
}

// Values of the functions by hand or from tables (Abramowitz and Stegun, 4.2, 7.1).
TEST(RefElementwise, Functions) {
  RefCase c;
  const Value x = c.list(DType::kF64, {0.25, 1, 4});
  const auto results = c.run_all({exp(x), log(x), tanh(x), erf(x), sqrt(x), rsqrt(x), 1.0 / x});
  EXPECT_TRUE(same_numbers(results[0], {1.284025417, 2.718281828, 54.598150033}, 1e-9));
  EXPECT_TRUE(same_numbers(results[1], {-1.386294361, 0, 1.386294361}, 1e-9));
  EXPECT_TRUE(same_numbers(results[2], {0.244918662, 0.761594156, 0.999329300}, 1e-9));
  EXPECT_TRUE(same_numbers(results[3], {0.276326390, 0.842700793, 0.999999985}, 1e-9));
  EXPECT_TRUE(same_numbers(results[4], {0.5, 1, 2}));
  EXPECT_TRUE(same_numbers(results[5], {2, 1, 0.5}));
  EXPECT_TRUE(same_numbers(results[6], {4, 1, 0.25}));
}

TEST(RefElementwise, ComparisonsOfFloatsAndIntegers) {
  for (DType dtype : {DType::kF32, DType::kU16}) {
    RefCase c;
    const Value a = c.list(dtype, {1, 2, 3}), b = c.list(dtype, {2, 2, 2});
    const auto results = c.run_all({lt(a, b), le(a, b), gt(a, b), ge(a, b), eq(a, b), ne(a, b)});
    EXPECT_TRUE(same_numbers(results[0], {1, 0, 0}));
    EXPECT_TRUE(same_numbers(results[1], {1, 1, 0}));
    EXPECT_TRUE(same_numbers(results[2], {0, 0, 1}));
    EXPECT_TRUE(same_numbers(results[3], {0, 1, 1}));
    EXPECT_TRUE(same_numbers(results[4], {0, 1, 0}));
    EXPECT_TRUE(same_numbers(results[5], {1, 0, 1}));
  }
}

TEST(RefElementwise, NanInSignReluAndComparisons) {
  RefCase c;
  const Value x = c.list(DType::kF32, {kNaN, -2.5, 0, 7, -kInf});
  const auto results = c.run_all({sign(x), relu(x), eq(x, x), ne(x, x), ge(x, x), is_finite(x)});
  EXPECT_TRUE(same_numbers(results[0], {kNaN, -1, 0, 1, -1}));
  EXPECT_TRUE(same_numbers(results[1], {kNaN, 0, 0, 7, 0}));
  EXPECT_TRUE(same_numbers(results[2], {0, 1, 1, 1, 1}));
  EXPECT_TRUE(same_numbers(results[3], {1, 0, 0, 0, 0}));
  EXPECT_TRUE(same_numbers(results[4], {0, 1, 1, 1, 1}));
  EXPECT_TRUE(same_numbers(results[5], {0, 1, 1, 1, 0}));
}

TEST(RefElementwise, IntegersWrap) {
  RefCase c;
  const Value i8 = c.list(DType::kI8, {127, -128, -100}), u8 = c.list(DType::kU8, {200, 1, 0});
  const Value u16 = c.list(DType::kU16, {0, 65535}),
              i32 = c.list(DType::kI32, {65536, -2147483648.0});
  const Value i64 = c.list(DType::kI64, {0x1p62, -0x1p63});
  const auto results = c.run_all({i8 + i8,
                                  neg(i8),
                                  abs(i8),
                                  u8 + u8,
                                  neg(u8),
                                  u16 - 1.0,
                                  i32 * i32,
                                  abs(i32),
                                  i64 + i64,
                                  neg(i64),
                                  i64 * i64});
  EXPECT_TRUE(same_numbers(results[0], {-2, 0, 56}));
  EXPECT_TRUE(same_numbers(results[1], {-127, -128, 100}));
  EXPECT_TRUE(same_numbers(results[2], {127, -128, 100}));
  EXPECT_TRUE(same_numbers(results[3], {144, 2, 0}));
  EXPECT_TRUE(same_numbers(results[4], {56, 255, 0}));
  EXPECT_TRUE(same_numbers(results[5], {65535, 65534}));
  EXPECT_TRUE(same_numbers(results[6], {0, 0}));
  EXPECT_TRUE(same_numbers(results[7], {65536, -2147483648.0}));
  EXPECT_TRUE(same_numbers(results[8], {-0x1p63, 0}));
  EXPECT_TRUE(same_numbers(results[9], {-0x1p62, -0x1p63}));
  EXPECT_TRUE(same_numbers(results[10], {0, 0}));
}

// 2^53 and 2^53 + 1 are one number to a double.
TEST(RefElementwise, LargeIntegersStayExact) {
  RefCase c;
  const Value a = c.list(DType::kI64, {kTwo53, 5}), b = a + c.list(DType::kI64, {1, 0});
  const Value both = concat({a, b}, 0);
  const auto results = c.run_all({eq(a, b),
                                  maximum(a, b) - a,
                                  where(lt(a, b), b, a) - a,
                                  argmax(both, 0),
                                  reduce_max(both, {0}) - kTwo53,
                                  reduce_sum(slice(both, 0, 0, 3, 2)) - kTwo53 - kTwo53});
  EXPECT_TRUE(same_numbers(results[0], {0, 1}));
  EXPECT_TRUE(same_numbers(results[1], {1, 0}));
  EXPECT_TRUE(same_numbers(results[2], {1, 0}));
  EXPECT_TRUE(same_numbers(results[3], {2}));
  EXPECT_TRUE(same_numbers(results[4], {1}));
  EXPECT_TRUE(same_numbers(results[5], {1}));
}

TEST(RefElementwise, CastFollowsTheRulesOfDtypes) {
  RefCase c;
  const Value x = c.list(DType::kF64, {kNaN, -1.9, 300.7, kInf, 0.5});
  const Value wide = c.list(DType::kI32, {-1, 256, 70000, 3, 0});
  const auto results = c.run_all({cast(x, DType::kU8),
                                  cast(x, DType::kI8),
                                  cast(x, DType::kBool),
                                  cast(wide, DType::kU8),
                                  cast(wide, DType::kI16),
                                  cast(wide, DType::kF16),
                                  cast(cast(wide, DType::kBool), DType::kBF16)});
  EXPECT_TRUE(same_numbers(results[0], {0, 0, 255, 255, 0}));
  EXPECT_TRUE(same_numbers(results[1], {0, -1, 127, 127, 0}));
  EXPECT_TRUE(same_numbers(results[2], {1, 1, 1, 1, 1}));
  EXPECT_TRUE(same_numbers(results[3], {255, 0, 112, 3, 0}));
  EXPECT_TRUE(same_numbers(results[4], {-1, 256, 4464, 3, 0}));
  EXPECT_TRUE(same_numbers(results[5], {-1, 256, kInf, 3, 0}));
  EXPECT_TRUE(same_numbers(results[6], {1, 1, 1, 1, 0}));
}

TEST(RefElementwise, RoundsOnce) {
  RefCase c;
  // A hair above the middle of 1 and the next f16 (bf16); by way of f32 it would be the middle, and
  // round down to even.
  const Value above = c.list(DType::kF64, {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40});
  const Value f16 = c.list(DType::kF16, {2048, 2048}), odd = c.list(DType::kF16, {1, 3});
  const auto results = c.run_all({cast(above, DType::kF16), cast(above, DType::kBF16), f16 + odd});
  EXPECT_TRUE(same_numbers(results[0], {1 + 0x1p-10, 1 + 0x1p-8}));
  EXPECT_TRUE(same_numbers(results[1], {1, 1 + 0x1p-7}));
  EXPECT_TRUE(same_numbers(results[2], {2048, 2052}));
}

TEST(RefElementwise, Logic) {
  RefCase c;
  const Value a = c.list(DType::kBool, {0, 0, 1, 1}), b = c.list(DType::kBool, {0, 1, 0, 1});
  const auto results = c.run_all({logical_and(a, b), logical_or(a, b), logical_not(a)});
  EXPECT_TRUE(same_numbers(results[0], {0, 0, 0, 1}));
  EXPECT_TRUE(same_numbers(results[1], {0, 1, 1, 1}));
  EXPECT_TRUE(same_numbers(results[2], {1, 1, 0, 0}));
}

// ---- constants, shapes ----

TEST(RefSource, SplatListAndRamp) {
  RefCase c;
  Graph& g = c.graph();
  const auto results = c.run_all({constant(g, {DType::kF16, {3}}, 0.1),
                                  constant(g, {DType::kU8, {2, 2}}, {1, 2, 3, 255}),
                                  constant(g, {DType::kBool, {2}}, 1.0),
                                  iota(g, {DType::kI8, {2, 3}}, 1),
                                  iota(g, {DType::kBF16, {2, 3}}, 0)});
  EXPECT_TRUE(same_numbers(results[0], Numbers(3, 0.0999755859375)));
  EXPECT_TRUE(same_numbers(results[1], {1, 2, 3, 255}));
  EXPECT_TRUE(same_numbers(results[2], {1, 1}));
  EXPECT_TRUE(same_numbers(results[3], {0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(same_numbers(results[4], {0, 0, 0, 1, 1, 1}));
}

TEST(RefShape, TransposeSliceBroadcastConcat) {
  RefCase c;
  const Value x = c.given({DType::kI16, {2, 3, 2}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Value column = c.given({DType::kF64, {2, 1}}, {1, 2});
  const auto results = c.run_all({transpose(x, {2, 0, 1}),
                                  slice(x, {0, 0, 1}, {2, 3, 2}, {1, 2, 1}),
                                  broadcast(column, {2, 2, 3}),
                                  concat({x, slice(x, 1, 2, 3), x}, 1),
                                  reshape(x, {3, 4})});
  EXPECT_TRUE(same_numbers(results[0], {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_TRUE(same_numbers(results[1], {1, 5, 7, 11}));
  EXPECT_TRUE(same_numbers(results[2], {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_TRUE(same_numbers(results[3], {0, 1, 2, 3, 4,  5,  4,  5,  0, 1, 2, 3, 4,  5,
                                        6, 7, 8, 9, 10, 11, 10, 11, 6, 7, 8, 9, 10, 11}));
  EXPECT_TRUE(same_numbers(results[4], {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(RefShape, PadLowHighAndBetween) {
  RefCase c;
  const Value x = c.given({DType::kF32, {2, 2}}, {1, 2, 3, 4});
  const Value bytes = c.list(DType::kU8, {7, 9});
  const auto results = c.run_all({pad(x, {0, 1}, {1, 0}, {0, 2}, -1.0), pad(bytes, {1}, {1}, 5.0)});
  EXPECT_TRUE(same_numbers(results[0], {-1, 1, -1, -1, 2, -1, 3, -1, -1, 4, -1, -1, -1, -1, -1}));
  EXPECT_TRUE(same_numbers(results[1], {5, 7, 9, 5}));
}

// ---- reductions, products ----

TEST(RefReduce, AxesAndKeptDimensions) {
  RefCase c;
  const Value x = c.given({DType::kF32, {2, 2, 3}}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto results = c.run_all(
      {reduce_sum(x, {0, 2}), reduce_mean(x, {1}, true), reduce_max(x, {-1}), reduce_sum(x)});
  EXPECT_TRUE(same_numbers(results[0], {30, 48}));
  EXPECT_TRUE(same_numbers(results[1], {2.5, 3.5, 4.5, 8.5, 9.5, 10.5}));
  EXPECT_TRUE(same_numbers(results[2], {3, 6, 9, 12}));
  EXPECT_TRUE(same_numbers(results[3], {78}));
}

TEST(RefReduce, SumsInDoubleAndRoundsOnce) {
  RefCase c;
  const auto results = c.run_all({reduce_sum(c.list(DType::kF16, {60000, 60000, -60000})),
                                  reduce_sum(c.list(DType::kF32, {1e8, 1, 1, 1, -1e8})),
                                  reduce_mean(c.list(DType::kBF16, {256, 1, 1, 2})),
                                  reduce_sum(c.list(DType::kU8, {200, 100})),
                                  reduce_sum(c.list(DType::kI32, {2147483647, 1}))});
  EXPECT_TRUE(same_numbers(results[0], {60000}));
  EXPECT_TRUE(same_numbers(results[1], {3}));
  EXPECT_TRUE(same_numbers(results[2], {65}));
  EXPECT_TRUE(same_numbers(results[3], {44}));
  EXPECT_TRUE(same_numbers(results[4], {-2147483648.0}));
}

TEST(RefReduce, MaximaWithNanAndTies) {
  RefCase c;
  const Value x =
      c.given({DType::kF32, {4, 3}}, {1, kNaN, kNaN, 2, 5, 5, kInf, kNaN, 0, -kInf, -kInf, -kInf});
  const auto results = c.run_all({reduce_max(x, {1}), argmax(x, 1), argmax(x, 0)});
  EXPECT_TRUE(same_numbers(results[0], {kNaN, 5, kNaN, -kInf}));
  EXPECT_TRUE(same_numbers(results[1], {1, 1, 1, 0}));
  EXPECT_TRUE(same_numbers(results[2], {2, 0, 0}));
}

TEST(RefMatMul, EveryTransposeGivesTheSameProduct) {
  for (bool transpose_a : {false, true})
    for (bool transpose_b : {false, true}) {
      RefCase c;
      const Value a = c.given({DType::kF32, {2, 2, 3}}, {1, 2, 3, 4, 5, 6, -1, 0, 1, 2, 1, 0});
      const Value b = c.given({DType::kF32, {2, 3, 2}}, {7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6});
      const Value y = matmul(transpose_a ? transpose_last(a) : a,
                             transpose_b ? transpose_last(b) : b,
                             transpose_a,
                             transpose_b);
      EXPECT_TRUE(same_numbers(c.run(y), {58, 64, 139, 154, 4, 4, 5, 8}));
    }
}

// ---- convolution, pooling ----

// One row or column of pixels, two groups of one channel, a window of two taps two pixels apart:
// worked out as y[j] = w[0] x[j - 1] + w[1] x[j + 1] for x = 1 2 3 (times 10 in the second group),
// with one pixel of padding before and two behind.
TEST(RefConv, DilationGroupsAndUnevenPadding) {
  for (const bool upright : {false, true}) {
    RefCase c;
    const Value x = c.given({DType::kF32, upright ? Shape{1, 3, 1, 2} : Shape{1, 1, 3, 2}},
                            {1, 10, 2, 20, 3, 30});
    const Value w =
        c.given({DType::kF32, upright ? Shape{2, 1, 1, 2} : Shape{1, 2, 1, 2}}, {1, 2, 100, 200});
    const WindowFields across{.padding = {0, 1, 0, 2}, .dilation = {1, 2}};
    const WindowFields down{.padding = {1, 0, 2, 0}, .dilation = {2, 1}};
    const Value y = conv2d(x, w, upright ? down : across, 2);
    EXPECT_EQ(y.shape(), upright ? (Shape{1, 4, 1, 2}) : (Shape{1, 1, 4, 2}));
    EXPECT_TRUE(same_numbers(c.run(y), {200, 4000, 301, 6020, 2, 40, 3, 60}));
  }
}

// Windows of 2 x 3 over two rows of two pixels, with one row above, two columns before and one
// column behind.
TEST(RefPool, UnevenPadding) {
  RefCase c;
  const Value x = c.given({DType::kF32, {1, 2, 2, 1}}, {3, 12, 30, 60});
  const PoolFields pool{.kernel = {2, 3}, .window = {.padding = {1, 2, 0, 1}}};
  const auto results =
      c.run_all({max_pool2d(x, pool), avg_pool2d(x, pool, true), avg_pool2d(x, pool, false)});
  EXPECT_TRUE(same_numbers(results[0], {3, 12, 12, 30, 60, 60}));
  EXPECT_TRUE(same_numbers(results[1], {0.5, 2.5, 2.5, 5.5, 17.5, 17.5}));
  EXPECT_TRUE(same_numbers(results[2], {3, 7.5, 7.5, 16.5, 26.25, 26.25}));
}

TEST(RefPool, FirstLargestGetsTheGradientAndNanIsLargest) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    RefCase c;
    // One window of 2 x 2 in each of four channels: a tie, a NaN, two NaN, all -infinity.
    const Value x =
        c.given({dtype, {1, 2, 2, 4}},
                {1, 9, 1, -kInf, 5, 2, kNaN, -kInf, 5, kNaN, kNaN, -kInf, 0, 3, 7, -kInf});
    const PoolFields pool{.kernel = {2, 2}, .window = {}};
    const Value dy = c.given({dtype, {1, 1, 1, 4}}, {10, 20, 30, 40});
    MaxPool2dGrad grad;
    grad.pool = pool;
    const auto results = c.run_all({max_pool2d(x, pool), add_node(grad, {x, dy})});
    EXPECT_TRUE(same_numbers(results[0], {5, kNaN, kNaN, -kInf}));
    EXPECT_TRUE(same_numbers(results[1], {0, 0, 0, 40, 10, 0, 30, 0, 0, 20, 0, 0, 0, 0, 0, 0}));
  }
}

TEST(RefPool, OverlappingWindowsAddTheirGradients) {
  RefCase c;
  const Value x = c.given({DType::kF32, {1, 1, 4, 1}}, {1, 8, 8, 2});
  MaxPool2dGrad grad;
  grad.pool = {.kernel = {1, 2}, .window = {}};
  const Value dy = c.given({DType::kF32, {1, 1, 3, 1}}, {1, 2, 4});
  EXPECT_TRUE(same_numbers(c.run(add_node(grad, {x, dy})), {0, 3, 4, 0}));
}

// ---- rows ----

TEST(RefSoftmax, ShiftsByTheLargest) {
  RefCase c;
  const Value x = c.given({DType::kF64, {2, 2}}, {1000, 1000, 0, -kInf});
  const auto results = c.run_all({softmax(x), log_softmax(x)});
  EXPECT_TRUE(same_numbers(results[0], {0.5, 0.5, 1, 0}));
  EXPECT_TRUE(same_numbers(results[1], {-std::log(2.0), -std::log(2.0), 0, -kInf}, 1e-15));
}

// Two classes of probability one half each, or a class that is ruled out.
TEST(RefCrossEntropy, IgnoredTargetsAndInfiniteLogits) {
  RefCase c;
  const Value logits = c.given({DType::kF32, {5, 2}}, {3, 3, 3, 3, 0, -kInf, 0, -kInf, kNaN, 1});
  const Value targets = c.list(DType::kI64, {0, 1, 0, -100, -100});
  const auto results = c.run_all(
      {cross_entropy(logits, targets), cross_entropy(logits, targets, {.label_smoothing = 0.5})});
  const double log2 = static_cast<float>(std::log(2.0));
  EXPECT_TRUE(same_numbers(results[0], {log2, log2, 0, 0, 0}));
  EXPECT_TRUE(same_numbers(results[1], {log2, log2, kInf, 0, 0}));
}

TEST(RefCrossEntropy, IgnoredIndexMayBeAClass) {
  RefCase c;
  const Value logits = c.given({DType::kF64, {2, 2}}, {0, 0, 0, 0});
  const Value targets = c.list(DType::kI32, {0, 1});
  EXPECT_TRUE(same_numbers(
      c.run(cross_entropy(logits, targets, {.ignore_index = 1})), {std::log(2.0), 0}, 1e-15));
}

TEST(RefCrossEntropy, WrongTargetIsNamed) {
  RefCase c;
  const Value logits = c.given({DType::kF32, {2, 2, 3}}, Numbers(12, 0.0));
  const Value targets = c.given({DType::kI64, {2, 2}}, {0, 1, 3, 2});
  EXPECT_EQ(c.error(cross_entropy(logits, targets)),
            "[cross_entropy] target 3 at [1,0] is no class; expected 0 to 2, or -100 to ignore the "
            "row");
}

// ---- lookups ----

TEST(RefGather, AlongAnInnerAxisWithEitherIndexType) {
  for (DType indices : {DType::kI64, DType::kI32}) {
    RefCase c;
    const Value x = c.given({DType::kBF16, {2, 3, 2}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    const Value at = c.given({indices, {2, 1}}, {2, 0});
    const Value y = gather(x, at, 1);
    EXPECT_EQ(y.shape(), (Shape{2, 2, 1, 2}));
    EXPECT_TRUE(same_numbers(c.run(y), {4, 5, 0, 1, 10, 11, 6, 7}));
  }
}

TEST(RefGather, ScatterAddsRepeatedIndices) {
  RefCase c;
  const Value at = c.list(DType::kI32, {2, 0, 2});
  const Value updates = c.given({DType::kF16, {3, 2}}, {1, 2, 3, 4, 10, 20});
  const Value bytes = c.given({DType::kU8, {2, 3}}, {200, 1, 100, 3, 4, 5});
  const auto results = c.run_all({scatter_add(updates, at, 0, 4), scatter_add(bytes, at, 1, 3)});
  EXPECT_TRUE(same_numbers(results[0], {3, 4, 0, 0, 11, 22, 0, 0}));
  EXPECT_TRUE(same_numbers(results[1], {1, 0, 44, 4, 0, 8}));
}

TEST(RefGather, ScatterAddsToWhatIsThere) {
  RefCase c;
  const Value base = c.given({DType::kF32, {3, 2}}, {100, 200, 300, 400, 500, 600});
  const Value updates = c.given({DType::kF32, {3, 2}}, {1, 2, 3, 4, 10, 20});
  const auto sums = c.run(scatter_add_to(base, updates, c.list(DType::kI32, {2, 0, 2}), 0));
  EXPECT_TRUE(same_numbers(sums, {103, 204, 300, 400, 511, 622}));
}

TEST(RefGather, OneHotIsZeroOutOfRange) {
  for (DType to : {DType::kF16, DType::kI64, DType::kBool}) {
    RefCase c;
    const Value at = c.list(DType::kI32, {1, -1, 3, 1});
    EXPECT_TRUE(same_numbers(c.run(one_hot(at, 3, to)), {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
  }
}

TEST(RefGather, WrongIndicesAreNamed) {
  RefCase low, high;
  EXPECT_EQ(low.error(gather(low.list(DType::kF32, {1, 2}), low.list(DType::kI64, {0, -1}))),
            "[gather] index -1 at [1] is out of range; expected 0 to 1");
  const Value updates = high.given({DType::kI8, {1, 2, 2}}, {1, 2, 3, 4});
  const Value at = high.given({DType::kI32, {2, 2}}, {0, 1, 2, 5});
  EXPECT_EQ(high.error(scatter_add(updates, at, 1, 5)),
            "[scatter_add] index 5 at [1,1] is out of range; expected 0 to 4");
}

// ---- attention ----

// All scores are equal, so each query gets the mean of the values it may see.
TEST(RefAttention, QueriesAverageTheirAllowedKeys) {
  RefCase c;
  const Value q = c.given({DType::kF32, {2, 2, 2, 1}}, Numbers(8, 0.0));
  const Value k = c.given({DType::kF32, {2, 2, 3, 1}}, Numbers(12, 1.0));
  const Value v = c.given({DType::kF32, {2, 2, 3, 1}}, {1, 2, 6, 10, 20, 60, 3, 3, 9, 30, 30, 90});
  const Value by_batch = c.given({DType::kBool, {2, 1, 1, 3}}, {1, 1, 1, 0, 1, 1});
  const Value by_head = c.given({DType::kBool, {1, 2, 2, 3}}, {1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0});
  const auto results = c.run_all({attention(q, k, v),
                                  attention(q, k, v, {.causal = true}),
                                  attention(q, k, v, {.mask = by_batch}),
                                  attention(q, k, v, {.mask = by_head}),
                                  attention(q, k, v, {.causal = true, .mask = by_batch})});
  EXPECT_TRUE(same_numbers(results[0], {3, 3, 30, 30, 5, 5, 50, 50}));
  EXPECT_TRUE(same_numbers(results[1], {1, 1.5, 10, 15, 3, 3, 30, 30}));
  EXPECT_TRUE(same_numbers(results[2], {3, 3, 30, 30, 6, 6, 60, 60}));
  EXPECT_TRUE(same_numbers(results[3], {3.5, 0, 20, 15, 6, 0, 30, 30}));
  EXPECT_TRUE(same_numbers(results[4], {1, 1.5, 10, 15, 0, 3, 0, 30}));
}

// A key that is not allowed may hold anything.
TEST(RefAttention, ForbiddenKeysDoNotCount) {
  RefCase c;
  const Value q = c.given({DType::kF64, {1, 1, 1, 1}}, {1});
  const Value k = c.given({DType::kF64, {1, 1, 2, 1}}, {800, kNaN});
  const Value v = c.given({DType::kF64, {1, 1, 2, 1}}, {5, kNaN});
  EXPECT_TRUE(same_numbers(c.run(attention(q, k, v, {.causal = true})), {5}));
}

// ---- the backend ----

TEST(RefBackend, KernelOutlivesItsNode) {
  const auto ref = make_ref_backend(StreamMode::kThread);
  std::unique_ptr<NodeKernel> kernel;
  {
    Graph graph;
    const Value x = input(graph, "x", {DType::kF32, {2, 3}});
    const Value y = pad(x, {1, 0}, {0, 1}, 9.0);
    kernel = ref->instantiate(*y.node, 0);
  }
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[12] = {};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  const auto stream = ref->make_stream();
  kernel->launch(*stream, {inputs, outputs, nullptr});
  stream->synchronize();
  EXPECT_TRUE(same_numbers(Numbers(y, y + 12), {9, 9, 9, 9, 1, 2, 3, 9, 4, 5, 6, 9}));
}

TEST(RefBackend, CalibratesWhatItHas) {
  const Calibration c = make_ref_backend()->calibrate();
  EXPECT_EQ(c.flops_per_s.size(), 4u);  // the four float dtypes
  for (const auto& [dtype, rate] : c.flops_per_s) {
    EXPECT_TRUE(is_float(dtype));
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e11);  // one scalar multiply-add after another
  }
  EXPECT_GT(c.copy_bytes_per_s, 1e7);
  EXPECT_GT(c.launch_s, 0.0);
  EXPECT_LT(c.launch_s, 1e-3);
}

}  // namespace
}  // namespace ridge::test
