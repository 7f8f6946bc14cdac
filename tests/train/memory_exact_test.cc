// The planned bytes are those that the operating system counts, and all that a run needs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/memory_check.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnMemory = false;  // the sanitizer adds its own
#else
constexpr bool kOwnMemory = true;
#endif

constexpr const char* kCase = "RIDGE_TEST_MEMORY_CASE";
constexpr const char* kAnswer = "RIDGE_TEST_MEMORY_ANSWER";

TrainConfig config_of(const std::string& name) {
  TrainConfig config = small_config(name.substr(0, 3));
  config.train.steps = 4;
  if (name == "mlp") {
    config.model.mlp.hidden = {512, 512};
    config.data.samples = 2100;
    config.train.batch = 1024;
  } else if (name == "cnn") {
    config.model.cnn.widths = {32, 64};
    config.data.shape = {16, 16, 3};
    config.train.batch = 64;
  } else {
    config.model.gpt = {
        .vocab = 512, .context = 64, .layers = 2, .heads = 4, .width = 128, .dropout = 0.1};
    config.data.shape = {64};
    config.data.classes = 512;
    config.train.batch = 32;
  }
  if (name == "gpt_in_parts") config.train.micro = 3;
  if (name == "gpt_limited") config.train.memory_limit = 40;
  return config;
}

// Run by the tests below in a process of its own, which the limit stays with.
TEST(MemoryExact, DISABLED_Child) {
  const char* name = std::getenv(kCase);
  ASSERT_NE(name, nullptr);
  const test::MemoryCheck found = test::check_memory(config_of(name), 4);
  std::ofstream(std::getenv(kAnswer))
      << found.planned_bytes << " " << found.lower_bound_bytes << " " << found.measured_bytes;
}

class MemoryExactOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Configs,
                         MemoryExactOf,
                         ::testing::Values("mlp", "cnn", "gpt", "gpt_in_parts", "gpt_limited"),
                         [](const auto& config) { return config.param; });

int run_child(const std::string& name, const std::string& answer) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(kCase, name.c_str(), 1);
    setenv(kAnswer, answer.c_str(), 1);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    execl("/proc/self/exe",
          "test_train",
          "--gtest_filter=MemoryExact.DISABLED_Child",
          "--gtest_also_run_disabled_tests",
          nullptr);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_P(MemoryExactOf, RunsUnderItsPlanAndIsMeasuredAsPlanned) {
  if (!kOwnMemory) GTEST_SKIP() << "a sanitizer has memory beside the plan's";
  const TempFolder folder;
  const std::string answer = (folder / "answer").string();
  ASSERT_EQ(run_child(GetParam(), answer), 0);
  int64_t planned = 0, lower_bound = 0, measured = 0;
  std::ifstream(answer) >> planned >> lower_bound >> measured;
  ASSERT_GT(planned, int64_t{8} << 20) << "too little to see a difference";
  EXPECT_LE(static_cast<double>(planned), 1.02 * static_cast<double>(lower_bound));
  const int64_t slack = std::max(planned / 100, int64_t{8} << 20);
  EXPECT_LE(std::abs(measured - planned), slack) << measured << " of " << planned;
}

}  // namespace
}  // namespace ridge::test
