// What runs at every step of training allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "ridge/train/metrics.h"
#include "ridge/train/tensorboard.h"
#include "tests/support/temp_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIDGE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIDGE_TEST_SANITIZED 1
#endif
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#ifndef RIDGE_TEST_SANITIZED
void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace ridge {
namespace {

TEST(Steady, MetricsAllocateNothing) {
#ifdef RIDGE_TEST_SANITIZED
  GTEST_SKIP() << "the sanitizer owns operator new";
#endif
  const test::TempFolder folder;
  MetricsWriter metrics(folder / "metrics.jsonl", 0);
  TensorBoardWriter board(folder.path(), 0);
  const int64_t before = allocations;
  for (int64_t i = 1; i <= 2000; ++i) {  // enough to flush several times
    const StepReport step{i, 2000, 0.1, 1.0 / static_cast<double>(i), 0.3, 1e-3, 1.7, 1e5};
    const EvalReport eval{i, 0.1, 0.9, 100, 0.5};
    metrics.write(step);
    metrics.write(eval);
    board.write(step);
    board.write(eval);
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace ridge
