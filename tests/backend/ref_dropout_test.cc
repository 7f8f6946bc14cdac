// Dropout on the reference backend: which elements it keeps is part of what a checkpoint means, so
// the mask is pinned by literals as well as by properties.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "tests/backend/ref_case.h"

namespace ridge::test {
namespace {

struct Draw {
  double p = 0.5;
  std::string key = "drop";
  int64_t samples = 1;
  Numbers rng{7, 3, 0};  // seed, step, first sample
  DType dtype = DType::kF64;
};

Numbers drop(const Shape& shape, const Numbers& x, const Draw& draw) {
  RefCase c;
  Dropout op;
  op.p = draw.p;
  op.key = draw.key;
  op.samples = draw.samples;
  return c.run(
      add_node(std::move(op), {c.given({draw.dtype, shape}, x), c.list(DType::kI64, draw.rng)}));
}

Numbers ones(int64_t count) { return Numbers(static_cast<size_t>(count), 1.0); }

// Computed apart, from the published Philox4x32-10 and FNV-1a, for the elements from 6 on.
TEST(RefDropout, MaskIsTheDocumentedOne) {
  const double kept = 1.0 / 0.6;
  EXPECT_TRUE(same_numbers(drop({4, 3}, ones(12), {.p = 0.4, .samples = 4, .rng = {7, 3, 2}}),
                           {0, kept, 0, 0, 0, kept, kept, 0, kept, kept, kept, kept},
                           1e-15));
  EXPECT_TRUE(same_numbers(
      drop({4, 3},
           ones(12),
           {.p = 0.4, .key = "layer.3/dropout:0", .samples = 2, .rng = {-5, 0x1p40 + 1, 1}}),
      {0, kept, 0, kept, kept, kept, 0, kept, 0, 0, kept, kept},
      1e-15));
}

TEST(RefDropout, MicroBatchesSeeTheMaskOfTheWholeBatch) {
  const Numbers whole = drop({8, 2, 5}, ones(80), {.samples = 8, .rng = {1, 2, 0}});
  for (int64_t micro : {1, 2, 4}) {
    Numbers joined;
    for (int64_t first = 0; first < 8; first += micro) {
      const Numbers part = drop({micro, 2, 5},
                                ones(micro * 10),
                                {.samples = micro, .rng = {1, 2, static_cast<double>(first)}});
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(same_numbers(joined, whole)) << micro << " samples a micro-batch";
  }
}

TEST(RefDropout, KeepsAboutTheRightShareAndScalesIt) {
  const Numbers y = drop({100000}, Numbers(100000, 3.0), {.p = 0.3});
  double kept = 0;
  for (double each : y) {
    EXPECT_TRUE(each == 0.0 || each == 3.0 / 0.7);
    kept += each != 0.0;
  }
  EXPECT_NEAR(kept / 1e5, 0.7, 0.006);  // four standard deviations
}

TEST(RefDropout, SeedStepAndKeyEachChangeTheMask) {
  const Numbers base = drop({64}, ones(64), {});
  EXPECT_NE(drop({64}, ones(64), {.rng = {8, 3, 0}}), base);
  EXPECT_NE(drop({64}, ones(64), {.rng = {7, 4, 0}}), base);
  EXPECT_NE(drop({64}, ones(64), {.key = "Drop"}), base);
  EXPECT_EQ(drop({64}, ones(64), {}), base);
}

TEST(RefDropout, NothingIsDroppedAtZero) {
  EXPECT_TRUE(same_numbers(drop({3}, {1, 2, 3}, {.p = 0.0}), {1, 2, 3}));
}

// The first four elements of the mask above.
TEST(RefDropout, DroppedElementsAreZeroWhateverTheyWere) {
  const double nan = std::nan("");
  EXPECT_TRUE(same_numbers(
      drop({4}, {nan, INFINITY, -INFINITY, nan}, {.p = 0.4, .samples = 4, .rng = {7, 3, 6}}),
      {0, INFINITY, 0, 0}));
}

// 7 / 0.9 rounded once to bf16 is 7.78125; by way of a rounded 1 / 0.9 it would be 7.75.
TEST(RefDropout, RoundsOnce) {
  for (double each : drop({16}, Numbers(16, 7.0), {.p = 0.1, .dtype = DType::kBF16}))
    EXPECT_TRUE(each == 0.0 || each == 7.78125) << each;
}

}  // namespace
}  // namespace ridge::test
