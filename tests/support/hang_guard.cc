#include "tests/support/hang_guard.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace ridge::test {
namespace {

constexpr int kExitCode = 124;            // The one of timeout(1).
constexpr int kFrames = 64;               // The most frames that are printed of one thread.
constexpr long kPrintTime = 100'000'000;  // Nanoseconds that one thread has to print its stack.

const int kStackSignal = SIGRTMIN + 7;
unsigned limit_seconds = 300;
std::string message;  // It is built before the test starts: a signal handler may not allocate.

void print(const char* text, size_t length) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
}

void print_stack(int) {
  void* frames[kFrames];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, kFrames), STDERR_FILENO);
  print("\n", 1);
}

void end_program(int) {
  print(message.data(), message.size());
  print_stack(0);
  const auto self = static_cast<long>(::syscall(SYS_gettid));
  if (DIR* const tasks = ::opendir("/proc/self/task")) {
    while (const dirent* const entry = ::readdir(tasks)) {
      const long thread = std::strtol(entry->d_name, nullptr, 10);
      if (thread <= 0 || thread == self) continue;
      ::syscall(SYS_tgkill, ::getpid(), thread, kStackSignal);
      const timespec pause{0, kPrintTime};
      ::nanosleep(&pause, nullptr);
    }
  }
  ::_exit(kExitCode);
}

class HangGuard : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    message = std::string("hung: ") + test.test_suite_name() + "." + test.name() +
              " ran longer than " + std::to_string(limit_seconds) +
              " s (RIDGE_TEST_LIMIT); the stacks of its threads:\n";
    ::alarm(limit_seconds);
  }
  void OnTestEnd(const ::testing::TestInfo&) override { ::alarm(0); }
};

}  // namespace

void guard_against_hangs() {
  if (const char* const limit = std::getenv("RIDGE_TEST_LIMIT"))
    limit_seconds = static_cast<unsigned>(std::strtoul(limit, nullptr, 10));
  void* frame[1];
  ::backtrace(frame, 1);  // The first call loads libgcc, which a signal handler may not.
  std::signal(SIGALRM, end_program);
  std::signal(kStackSignal, print_stack);
  ::testing::UnitTest::GetInstance()->listeners().Append(new HangGuard);
}

}  // namespace ridge::test
