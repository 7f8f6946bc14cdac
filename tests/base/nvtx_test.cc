// Scopes as ranges of a stand-in for a profiler, each case in a process of its own: what is
// injected stays.
#include "ridge/base/trace/nvtx.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <string>
#include <thread>

#include "ridge/base/trace/trace.h"

namespace ridge {
namespace {

class NvtxTest : public testing::Test {
 protected:
  NvtxTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  /// In the process of a case: what start_profiler_ranges() says, and three scopes.
  static void run(const char* library, const char* mode) {
    if (library != nullptr) ::setenv("NVTX_INJECTION64_PATH", library, 1);
    ::setenv("FAKE_PROFILER", mode, 1);
    {
      const TraceScope scope("too early", "test");
    }
    const std::string note = start_profiler_ranges();
    std::fprintf(stderr, "note '%s' again '%s' ", note.c_str(), start_profiler_ranges().c_str());
    {
      const TraceScope outer("step", "test");
      start_tracing();
      const TraceScope inner("layer.0:matmul", "cpu_op");
    }
    stop_tracing();
    std::thread([] { const TraceScope other("loader", "loader"); }).join();
    std::fprintf(stderr, "%zu recorded.\n", drain_trace().events.size());
    std::_Exit(0);
  }
};

TEST_F(NvtxTest, ScopesAreRanges) {
  EXPECT_EXIT(run(RIDGE_FAKE_PROFILER, ""),
              testing::ExitedWithCode(0),
              "^note '' again '' <step<layer.0:matmul>><loader>1 recorded.");
}

TEST_F(NvtxTest, WithoutAProfilerNothingHappens) {
  EXPECT_EXIT(run(nullptr, ""), testing::ExitedWithCode(0), "^note '' again '' 1 recorded.");
  EXPECT_EXIT(run("", ""), testing::ExitedWithCode(0), "^note '' again '' 1 recorded.");
}

TEST_F(NvtxTest, AProfilerThatWantsNoRangesIsLeftAlone) {
  EXPECT_EXIT(run(RIDGE_FAKE_PROFILER, "marks"),
              testing::ExitedWithCode(0),
              "^note '' again '' 1 recorded.");
}

TEST_F(NvtxTest, OneThatDoesNotStartIsNamedOnce) {
  EXPECT_EXIT(run(RIDGE_FAKE_PROFILER, "refuse"),
              testing::ExitedWithCode(0),
              "note 'the profiler sees no ranges of Ridge: NVTX_INJECTION64_PATH: '.*' refused to "
              "start' again '' 1 recorded.");
  EXPECT_EXIT(run("/nowhere/injection.so", ""),
              testing::ExitedWithCode(0),
              "note 'the profiler sees no ranges of Ridge: NVTX_INJECTION64_PATH: "
              "/nowhere/injection.so: .*' again '' 1 recorded.");
  EXPECT_EXIT(run("libm.so.6", ""),
              testing::ExitedWithCode(0),
              "'libm.so.6' has no function InitializeInjectionNvtx2' again ''");
}

}  // namespace
}  // namespace ridge
