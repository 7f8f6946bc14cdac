// The display of a training run, on a made-up clock.
#include "ridge/cli/common/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>

#include "tests/support/count_allocations.h"

namespace ridge {
namespace {

int64_t fake_now = 0;
int64_t fake_clock() { return fake_now; }

constexpr double kSecond = 1e9;

// A file that shows everything written to it since it was opened.
class Screen {
 public:
  Screen() : file_(std::tmpfile()) {}
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  std::string text() {
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }

 private:
  std::FILE* file_;
};

StepReport step_at(int64_t step, int64_t total) {
  return {step, total, 0.5, 0.34121, 1.0, 1e-3, 12.5, 12345.6};
}

// Runs `total` steps of `seconds` each.
void run_steps(ProgressDisplay& progress, int64_t total, double seconds) {
  fake_now = 0;
  progress.on_start({"cnn", "cpu", 186826, 0, total, 160 << 20});
  for (int64_t step = 1; step <= total; ++step) {
    fake_now = static_cast<int64_t>(static_cast<double>(step) * seconds * kSecond);
    progress.on_step(step_at(step, total));
  }
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Progress, LinesSayWhatHappened) {
  Screen screen;
  ProgressDisplay progress(screen.file(), {.bar = false, .columns = 80, .clock = fake_clock});
  fake_now = 0;
  progress.on_start({"cnn", "cpu", 186826, 1000, 4000, 160 << 20});
  fake_now = static_cast<int64_t>(10 * kSecond);
  progress.on_step(step_at(1500, 4000));
  progress.on_eval({1500, 0.41, 0.853, 10000, 0.8});
  progress.on_eval({1500, 0.41, std::nan(""), 10000, 0.8});
  progress.on_checkpoint("runs/a", 1500);
  progress.on_message("3 files were skipped");
  EXPECT_EQ(screen.text(),
            "training cnn on cpu: 186,826 parameters, 4,000 steps of which 1,000 are done, "
            "160.0 MiB planned\n"
            // 500 steps took 10 s: the 2500 that are left take 50 s.
            "step 1,500/4,000, epoch 0.50, loss 0.3412, lr 0.001, 12.3 k samples/s, 50 s left\n"
            "step 1,500: evaluation loss 0.4100, accuracy 85.30 %, 10,000 samples in 0.8 s\n"
            "step 1,500: evaluation loss 0.4100, 10,000 samples in 0.8 s\n"
            "step 1,500: saved runs/a\n"
            "3 files were skipped\n");
}

TEST(Progress, LinesComeEverMoreSeldom) {
  for (const auto& [seconds, most, least] : {std::tuple{4.0, 1, 1},
                                             {60.0, 14, 8},
                                             {3600.0, 60, 30},
                                             {36000.0, 120, 60},
                                             {864000.0, 1600, 1000}}) {
    Screen screen;
    ProgressDisplay progress(screen.file(), {.bar = false, .columns = 80, .clock = fake_clock});
    run_steps(progress, 20000, seconds / 20000);
    const int64_t lines = count(screen.text(), "\nstep ");
    EXPECT_LE(lines, most) << seconds;
    EXPECT_GE(lines, least) << seconds;
  }
}

TEST(Progress, BarFitsTheTerminalAndLeavesNothing) {
  for (const int columns : {1, 10, 40, 60, 80, 100, 200}) {
    Screen screen;
    ProgressDisplay progress(screen.file(), {.bar = true, .columns = columns, .clock = fake_clock});
    run_steps(progress, 1000, 0.01);
    progress.on_eval({1000, 0.4, 0.9, 100, 1.0});
    progress.on_step(step_at(1000, 1000));
    progress.clear_bar();
    const std::string text = screen.text();
    const std::string clear = "\r\x1b[K";
    EXPECT_TRUE(text.ends_with(clear));
    EXPECT_LE(count(text, clear), 104);  // 10 s, ten a second
    EXPECT_GE(count(text, clear), 90);
    size_t longest = 0;
    for (size_t at = text.find(clear); at != text.npos;) {
      const size_t next = text.find(clear, at + 1), begin = at + clear.size();
      if (text.substr(begin, 5) != "step ")
        longest = std::max(longest, std::min(next, text.size()) - begin);
      at = next;
    }
    EXPECT_LT(longest, static_cast<size_t>(columns));
    if (columns >= 80) {
      EXPECT_NE(text.find(" 50% [=="), text.npos);
      const std::regex half("50\\d/1,000  loss 0.3412  12.3 k samples/s  (5.0|4.9) s left");
      EXPECT_TRUE(std::regex_search(text, half));
    }
  }
}

TEST(Progress, StepsAllocateNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the sanitizer owns operator new";
  for (const bool bar : {false, true}) {
    Screen screen;
    ProgressDisplay progress(screen.file(), {.bar = bar, .columns = 100, .clock = fake_clock});
    run_steps(progress, 1, 1);  // the file gets its buffer
    const int64_t before = test::allocations;
    for (int64_t step = 1; step <= 100000; ++step) {
      fake_now += 3'000'000'000;
      progress.on_step(step_at(step, 100000));
    }
    EXPECT_EQ(test::allocations, before) << bar;
  }
}

}  // namespace
}  // namespace ridge
