// ProgramStop: when a program is asked to end again, on a clock that the tests move, and what is
// left of a program that Program::leave left running.
#include "ridge/attach/process/program_stop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/attach/program_run.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

using test::comes;
using test::end_of;
using test::Ending;
using test::heed_signals;
using test::is_alive;
using test::pids_in;
using test::shell;
using test::TempFolder;
using test::text_of;

constexpr int64_t kQuarter = 250'000'000, kSecond = 4 * kQuarter;

// Counts what comes and ends with the second one; short sleeps, since sh runs a trap after a
// command.
std::string deaf_to_the_first(const TempFolder& folder) {
  return "n=0; trap 'n=$((n+1)); echo $n >> " + (folder / "said").string() +
         "; [ $n = 2 ] && exit 4' INT; echo 1 > " + (folder / "ready").string() +
         "; while :; do sleep 0.01; done";
}

TEST(ProgramStop, AsksAgainAProgramThatGoesOn) {
  heed_signals();
  const TempFolder folder;
  Program program(shell(deaf_to_the_first(folder)));
  ASSERT_TRUE(comes([&] { return !text_of(folder / "ready").empty(); }));
  ProgramStop stop(program, 0, 120);
  ASSERT_TRUE(comes([&] { return text_of(folder / "said") == "1\n"; }));
  EXPECT_TRUE(stop.look(1 * kSecond, 100));
  EXPECT_EQ(stop.asked(), 1);
  EXPECT_TRUE(stop.look(2 * kSecond, 102));
  EXPECT_EQ(stop.asked(), 2);
  EXPECT_EQ(end_of(program).exit_code, 4);
  EXPECT_EQ(text_of(folder / "said"), "1\n2\n");
}

/// The seconds at which a program that never ends is asked again, and the one at which no more;
/// `steps` it has made after some seconds.
std::vector<double> times_of_requests(double limit_seconds,
                                      const std::function<int64_t(double)>& steps) {
  heed_signals();
  Program program(shell("trap '' INT TERM; exec sleep 1000"));
  const Ending ending({program.pid()});
  ProgramStop stop(program, 0, limit_seconds);
  std::vector<double> times;
  for (int64_t now = kQuarter;; now += kQuarter) {
    const int asked = stop.asked();
    const double seconds = static_cast<double>(now) / 1e9;
    const bool goes_on = stop.look(now, steps(seconds));
    if (stop.asked() > asked || !goes_on) times.push_back(seconds);
    if (!goes_on) return times;
  }
}

using Times = std::vector<double>;

TEST(ProgramStop, DoublesThePauseWhileStepsGoOn) {
  const auto steps = [](double seconds) { return static_cast<int64_t>(1000 * seconds); };
  EXPECT_EQ(times_of_requests(120, steps), (Times{2, 6, 14, 30, 62, 120}));
  EXPECT_EQ(times_of_requests(20, steps), (Times{2, 6, 14, 20}));
  EXPECT_EQ(times_of_requests(0, steps), (Times{0.25}));
}

TEST(ProgramStop, WaitsForStepsThatTakeLong) {
  const auto steps = [](double seconds) { return static_cast<int64_t>(seconds / 10); };
  EXPECT_EQ(times_of_requests(100, steps), (Times{20, 40, 60, 80, 100}));
}

// A second signal could cut off what a program saves that heard the first.
TEST(ProgramStop, LeavesAProgramInPeaceThatMakesNoSteps) {
  EXPECT_EQ(times_of_requests(150, [](double) { return 100; }), (Times{60, 120, 150}));
  const auto one_is_ended = [](double seconds) { return seconds < 5 ? 100 : 101; };
  EXPECT_EQ(times_of_requests(70, one_is_ended), (Times{60, 70}));
  // Steps from before the request are told late.
  const auto told_late = [](double seconds) { return seconds < 0.75 ? 50 : 100; };
  EXPECT_EQ(times_of_requests(70, told_late), (Times{60, 70}));
}

TEST(ProgramStop, SaysWhatRunsOnAndHowToEndIt) {
  heed_signals();
  Program program(shell("trap '' INT; exec sleep 1000"));
  ProgramStop stop(program, 0, 1.5);
  EXPECT_FALSE(stop.look(2 * kSecond, 0));
  const std::string text = stop.text(), pid = std::to_string(program.pid());
  EXPECT_NE(text.find("process " + pid + " does not end: it was asked once"), std::string::npos);
  EXPECT_NE(text.find("in 1.5 s"), std::string::npos) << text;
  EXPECT_NE(text.find("end it by 'kill "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(pid + "'")) << text;
}

TEST(ProgramEnd, OneThatIsLeftGoesOnUntilItEnds) {
  heed_signals();
  const TempFolder folder;
  std::vector<pid_t> pids;
  pid_t supervisor = 0;
  {
    Program program(
        shell("trap '' INT; sleep 1000 & echo $! > " + (folder / "pids").string() + "; wait"));
    pids = pids_in(folder / "pids", 1);
    pids.push_back(program.pid());
    supervisor = test::parent_of(program.pid());
    program.interrupt();
    program.leave();
  }
  const Ending ending(pids);
  // Time for a supervisor that takes it for a ridge that is gone.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(is_alive(pids[0]) && is_alive(pids[1]) && is_alive(supervisor));
  ::kill(pids[1], SIGKILL);
  EXPECT_EQ(::waitpid(supervisor, nullptr, 0), supervisor);
  EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
}

}  // namespace
}  // namespace ridge::attach
