// Program: what a program gets and how its end is reported.
#include "ridge/attach/process/program.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ridge/base/clock.h"
#include "tests/attach/program_run.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

using test::comes;
using test::end_of;
using test::Redirected;
using test::run;
using test::shell;
using test::TempFolder;
using test::text_of;

constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

TEST(Program, TellsHowItEnded) {
  for (int code : {0, 3, 255}) {
    const ProgramEnd end = run(shell("exit " + std::to_string(code)));
    EXPECT_EQ(end.exit_code, code);
    EXPECT_EQ(end.signal, 0);
  }
  for (int signal : {SIGTERM, SIGKILL, SIGSEGV, SIGINT}) {
    const ProgramEnd end = run(shell("ulimit -c 0; kill -" + std::to_string(signal) + " $$"));
    EXPECT_EQ(end.exit_code, 128 + signal);
    EXPECT_EQ(end.signal, signal);
  }
}

TEST(Program, TellsTheEndAgain) {
  Program program(shell("exit 5"));
  EXPECT_EQ(end_of(program).exit_code, 5);
  EXPECT_EQ(program.wait(0)->exit_code, 5);
  program.send(SIGTERM);  // to nobody
}

TEST(Program, WaitsNoLongerThanAsked) {
  Program program(shell("exec sleep 1000"));
  const int64_t before = now_ns();
  EXPECT_FALSE(program.wait(50).has_value());
  EXPECT_GE(now_ns() - before, 45'000'000);
  EXPECT_FALSE(program.wait(0).has_value());
  program.send(SIGTERM);
  EXPECT_EQ(end_of(program).signal, SIGTERM);
}

// A process begins as a copy of the supervisor, which a sanitizer makes large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMostOfTrue = 400'000'000;
#else
constexpr int64_t kMostOfTrue = 30'000'000;
#endif

TEST(Program, MeasuresTimeAndMemory) {
  const ProgramEnd quick = run(shell("true"));
  EXPECT_LT(quick.peak_rss_bytes, kMostOfTrue);
  EXPECT_GT(quick.peak_rss_bytes, 100'000);
  const auto start = std::chrono::steady_clock::now();
  const ProgramEnd large =
      run(shell("x=$(head -c 40000000 /dev/zero | tr '\\0' a); sleep 0.2; : $x"));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  EXPECT_GT(large.peak_rss_bytes, 40'000'000);
  EXPECT_GE(large.seconds, 0.2);
  EXPECT_LE(large.seconds, passed.count());
}

TEST(Program, HasOurStreams) {
  const TempFolder folder;
  std::ofstream(folder / "in") << std::string("one\0two\n\xff", 9);
  {
    const Redirected in(0, folder / "in", O_RDONLY), out(1, folder / "out", kWrite),
        error(2, folder / "error", kWrite);
    Program program(shell("cat; printf 'a\\0b\\377' >&2"));
    end_of(program);
  }
  EXPECT_EQ(text_of(folder / "out"), std::string("one\0two\n\xff", 9));
  EXPECT_EQ(text_of(folder / "error"), std::string("a\0b\xff", 4));
}

// For a pipe's reader the program's end is the end of what it may read.
TEST(Program, TheSupervisorHoldsNoStreamOpen) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int saved = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
  ::dup2(ends[1], STDOUT_FILENO);
  Program program(shell("echo said; exec >&-; exec sleep 1000"));
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::close(ends[1]);
  std::string said;
  for (char letter = 0; ::read(ends[0], &letter, 1) == 1;) said += letter;
  ::close(ends[0]);
  EXPECT_EQ(said, "said\n");
  EXPECT_FALSE(program.wait(0).has_value());
}

// Process group, session, terminal, its foreground group, nice, and all of status and limits that
// a process inherits.
constexpr const char* kSaysWhatItGot =
    "cut -d' ' -f5-8,19 /proc/$$/stat; grep -E 'Sig(Blk|Ign)|Umask|Cpus_allowed:|NoNewPrivs'"
    " /proc/self/status; cat /proc/$$/limits; pwd; ls /proc/$$/fd; ls -l /proc/$$/fd |"
    " grep -o '[012] -> .*'; cat /proc/$$/oom_score_adj; echo $0 $*; env | sort | grep -v "
    "RIDGE_TEST_";

std::string said_by(const std::string& command, const TempFolder& folder, bool is_direct) {
  {
    const Redirected out(1, folder / "out", kWrite);
    ProgramRequest request = shell(command);
    request.command[0] = "sh";
    request.environment = {{"RIDGE_TEST_A", "1"}};
    if (!is_direct) {
      run(request);
    } else if (const pid_t child = ::fork(); child != 0) {
      ::waitpid(child, nullptr, 0);
    } else {
      ::execlp("sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(99);
    }
  }
  return text_of(folder / "out");
}

TEST(Program, GetsWhatItGetsWithoutUs) {
  const TempFolder folder;
  const std::string direct = said_by(kSaysWhatItGot, folder, true);
  ASSERT_NE(direct.find("SigIgn"), std::string::npos);
  // The program does not see what ridge does to itself.
  const int ours = ::open("/dev/null", O_RDONLY);
  const auto pipe_before = std::signal(SIGPIPE, SIG_IGN);
  const auto user_before = std::signal(SIGUSR2, [](int) {});
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const std::string ridden = said_by(kSaysWhatItGot, folder, false);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGUSR2, user_before);
  std::signal(SIGPIPE, pipe_before);
  ::close(ours);
  EXPECT_EQ(ridden, direct);
}

TEST(Program, HasTheEnvironmentAskedFor) {
  const TempFolder folder;
  ::setenv("RIDGE_TEST_OLD", "old", 1);
  ::setenv("RIDGE_TEST_LEFT", "left", 1);
  ProgramRequest request = shell(
      "echo $RIDGE_TEST_OLD,$RIDGE_TEST_LEFT,$RIDGE_TEST_NEW; env | "
      "grep -c RIDGE_TEST_OLD=");
  request.environment = {{"RIDGE_TEST_OLD", "new"}, {"RIDGE_TEST_NEW", "a=b c"}};
  {
    const Redirected out(1, folder / "out", kWrite);
    run(request);
  }
  EXPECT_EQ(text_of(folder / "out"), "new,left,a=b c\n1\n");
  ::unsetenv("RIDGE_TEST_OLD");
  ::unsetenv("RIDGE_TEST_LEFT");
}

TEST(Program, IsFoundByPath) {
  const TempFolder folder;
  std::ofstream(folder / "ridge_test_tool") << "#!/bin/sh\nexit $(($1 + $2))\n";
  ::chmod((folder / "ridge_test_tool").c_str(), 0700);
  ProgramRequest request = shell("");
  request.command = {"ridge_test_tool", "40", "2"};
  request.environment = {{"PATH", folder.path().string() + ":/usr/bin:/bin"}};
  EXPECT_EQ(run(request).exit_code, 42);
}

int refusal(const std::string& command, const std::string& part) {
  ProgramRequest request = shell("");
  request.command = {command};
  try {
    Program program(request);
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("'" + command + "'"), std::string::npos) << error.what();
    EXPECT_FALSE(error.fix().empty());
    return error.exit_code();
  }
  return 0;
}

TEST(Program, SaysWhyItCannotStart) {
  const TempFolder folder;
  const size_t before = open_descriptors();
  std::ofstream(folder / "text") << "no program\n";
  std::ofstream(folder / "script") << "#!/nowhere/python\n";
  ::chmod((folder / "script").c_str(), 0700);
  EXPECT_EQ(refusal("ridge-no-such-program", "PATH"), 127);
  EXPECT_EQ(refusal("", "No such file"), 127);
  EXPECT_EQ(refusal((folder / "nothing").string(), "give the path"), 127);
  EXPECT_EQ(refusal((folder / "script").string(), "first line"), 127);
  EXPECT_EQ(refusal((folder / "text").string(), "chmod +x"), 126);
  EXPECT_EQ(refusal(folder.path().string(), "Permission denied"), 126);
  ProgramRequest request = shell("exit 0");
  request.supervisor = (folder / "nothing").string();
  EXPECT_NE(test::user_error([&] { Program program(request); }).find("watches over"),
            std::string::npos);
  request.supervisor = "/bin/true";
  EXPECT_NE(test::user_error([&] { Program program(request); }).find("ended at once"),
            std::string::npos);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Program, SaysWhenThereAreNoDescriptors) {
  rlimit before{}, limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  limit = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const std::string said = test::user_error([] { Program program(shell("exit 0")); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
}

TEST(Program, ManyLeaveNothing) {
  const size_t before = open_descriptors();
  for (int i = 0, count = test::cases(100); i < count; ++i) {
    ProgramRequest request = shell("");
    request.command = {"true"};
    ASSERT_EQ(run(request).exit_code, 0);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child, not even a zombie
}

TEST(Program, IsWatchedOverForNothing) {
  Program program(shell("exec sleep 1000"));
  const pid_t supervisor = test::parent_of(program.pid());
  const std::string status = "/proc/" + std::to_string(supervisor) + "/status";
  const auto switches = [&] {
    const std::string text = text_of(status);
    return text.substr(text.find("voluntary_ctxt_switches"));
  };
  // One that looks around wakes in each of these pauses; one that starts up comes to rest.
  EXPECT_TRUE(comes([&] {
    const std::string before = switches();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return switches() == before;
  }));
}

TEST(Supervise, IsForRidgeAlone) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"3"},
                                                {"0", "", "0", "0", "", "0", "true"},
                                                {"999", "", "0", "0", "", "0", "true"},
                                                {"x", "", "0", "0", "", "0", "true"}})
    EXPECT_NE(test::user_error([&] { supervise(words); }).find("for itself"), std::string::npos);
}

}  // namespace
}  // namespace ridge::attach
