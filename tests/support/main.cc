// The tests keep nothing in the user's cache, and time kernels only where they say so.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/hang_guard.h"
#include "tests/support/temp_folder.h"

#ifdef __SANITIZE_ADDRESS__
// A forked child inherits what its parent's threads own, and has none of those threads.
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() {
  return "leak:Pool::grow\nleak:std::thread::thread\nleak:__cxa_thread_atexit_impl\n";
}
#endif

int main(int argc, char** argv) {
  const ridge::test::TempFolder cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  ::setenv("RIDGE_TUNE", "false", 0);
  ::testing::InitGoogleTest(&argc, argv);
  ridge::test::guard_against_hangs();
  return RUN_ALL_TESTS();
}
