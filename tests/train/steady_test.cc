// What runs at every step of training allocates nothing.
#include <gtest/gtest.h>

#include "ridge/train/metrics.h"
#include "ridge/train/tensorboard.h"
#include "tests/support/count_allocations.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

TEST(Steady, MetricsAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns operator new";
  const test::TempFolder folder;
  MetricsWriter metrics(folder / "metrics.jsonl", 0);
  TensorBoardWriter board(folder.path(), 0);
  const int64_t before = test::allocations;
  for (int64_t i = 1; i <= 2000; ++i) {  // enough to flush several times
    const StepReport step{i, 2000, 0.1, 1.0 / static_cast<double>(i), 0.3, 1e-3, 1.7, 1e5};
    const EvalReport eval{i, 0.1, 0.9, 100, 0.5};
    metrics.write(step);
    metrics.write(eval);
    board.write(step);
    board.write(eval);
  }
  EXPECT_EQ(test::allocations, before);
}

}  // namespace
}  // namespace ridge
