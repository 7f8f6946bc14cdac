// Program: signals, and what is left of a program when it, ridge or the supervisor ends.
//
// Where ridge itself has to be killed, a process of this test program takes its place: it runs the
// one test ProgramHolder.DISABLED_Holds, which the environment tells what to start.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "ridge/attach/process/program.h"
#include "ridge/base/clock.h"
#include "tests/attach/program_run.h"
#include "tests/support/succeeds_once.h"
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

TEST(ProgramHolder, DISABLED_Holds) {
  const char* script = std::getenv("RIDGE_TEST_SCRIPT");
  ASSERT_NE(script, nullptr);
  const std::string end_path = std::getenv("RIDGE_TEST_END");
  ProgramRequest request = shell(script);
  if (const char* folder = std::getenv("RIDGE_TEST_FOLDER")) request.folders = {folder};
  Program program(request);
  const ProgramSignals signals(program);
  std::ofstream(end_path + ".pid") << program.pid() << std::endl;
  const ProgramEnd end = end_of(program);
  std::ofstream(end_path) << end.exit_code << "," << signals.count() << std::endl;
  // Others may kill a ridge whose program has ended.
  if (std::getenv("RIDGE_TEST_LINGER") != nullptr)
    std::this_thread::sleep_for(std::chrono::seconds(20));
}

/// Such a process. `prepare` runs in it before the program of the test is executed.
class Holder {
 public:
  Holder(
      const TempFolder& folder,
      const std::string& script,
      const std::function<void()>& prepare = [] {})
      : end_(folder / "end") {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setenv("RIDGE_TEST_SCRIPT", script.c_str(), 1);
    ::setenv("RIDGE_TEST_END", end_.c_str(), 1);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::close(nowhere);
    ::setpgid(0, 0);
    heed_signals();
    prepare();
    ::execl("/proc/self/exe",
            "test_attach",
            "--gtest_filter=ProgramHolder.DISABLED_Holds",
            "--gtest_also_run_disabled_tests",
            nullptr);
    ::_exit(99);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    if (pid_ > 0) kill_it();
  }

  pid_t pid() const { return pid_; }
  /// The program's process.
  pid_t program() const { return pids_in(end_.string() + ".pid", 1)[0]; }
  void kill_it() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  /// "exit code,signals that came".
  std::string end() const {
    comes([&] { return text_of(end_).ends_with("\n"); });
    return text_of(end_);
  }

 private:
  std::filesystem::path end_;
  pid_t pid_ = -1;
};

// A child, one in a session of its own, a daemon by a double fork, and one that ignores SIGTERM;
// each writes its pid into `pids`.
std::string tree(const TempFolder& folder) {
  const std::string pids = (folder / "pids").string();
  const std::string say = "echo $$ >> " + pids + "; exec sleep 1000";
  const std::string daemon = "sh -c \"echo \\$\\$ >> " + pids + "; exec sleep 1000\"";
  return "sh -c '" + say + "' & setsid sh -c '" + say + "' & (setsid sh -c '(" + daemon +
         ")& exit' &) ; sh -c 'trap \"\" TERM; " + say + "' & ";
}
constexpr size_t kTree = 4;

TEST(ProgramEnd, TakesAllWithItWhereItIsDestroyed) {
  const TempFolder folder;
  std::vector<pid_t> pids;
  int64_t before = 0;
  {
    Program program(shell(tree(folder) + "wait"));
    pids = pids_in(folder / "pids", kTree);
    pids.push_back(program.pid());
    before = now_ns();
  }
  const Ending ending(pids);
  EXPECT_TRUE(ending.all_gone());
  EXPECT_GE(now_ns() - before, 1'900'000'000);  // one did not hear SIGTERM
}

/// Says "done" when it is asked to end, and ends.
std::string hearing(const TempFolder& folder, const std::string& then) {
  return "trap 'echo done > " + (folder / "said").string() + "; exit' TERM; echo 1 > " +
         (folder / "ready").string() + "; " + then + "; while :; do sleep 0.01; done";
}

TEST(ProgramEnd, IsQuickWhereTheProgramHears) {
  EXPECT_TRUE(test::succeeds_once([] {
    const TempFolder folder;
    int64_t before = 0;
    {
      Program program(shell(hearing(folder, ":")));
      EXPECT_TRUE(comes([&] { return !text_of(folder / "ready").empty(); }));
      before = now_ns();
    }
    return now_ns() - before < 1'500'000'000 && text_of(folder / "said") == "done\n";
  }));
}

// It hears SIGTERM only if it is woken, and what watches over it too.
TEST(ProgramEnd, EndsOneThatIsStopped) {
  EXPECT_TRUE(test::succeeds_once([] {
    const TempFolder folder;
    {
      Program program(shell(hearing(folder, "kill -STOP $$")));
      EXPECT_TRUE(comes([&] { return test::stat_of(program.pid()).starts_with("T"); }));
      ::kill(test::parent_of(program.pid()), SIGSTOP);
    }
    return text_of(folder / "said") == "done\n";
  }));
}

TEST(ProgramEnd, LeavesWhatTheProgramLeaves) {
  const TempFolder folder;
  std::vector<pid_t> pids;
  {
    Program program(shell(tree(folder) + "while [ $(cat " + (folder / "pids").string() +
                          " 2>/dev/null | wc -l) -lt 4 ]; do sleep 0.01; done; exit 7"));
    EXPECT_EQ(end_of(program).exit_code, 7);
    pids = pids_in(folder / "pids", kTree);
  }
  const Ending ending(pids);
  for (pid_t pid : ending.pids()) EXPECT_TRUE(is_alive(pid));
}

TEST(ProgramEnd, OfOneThatWasAskedToEndLeavesNothing) {
  EXPECT_TRUE(test::succeeds_once([] {
    const TempFolder folder;
    Program program(shell(tree(folder) + "wait"));
    const Ending ending(pids_in(folder / "pids", kTree));
    program.send(SIGTERM);
    EXPECT_EQ(end_of(program).signal, SIGTERM);
    // It is reported at once, while the one that does not hear SIGTERM still runs.
    const bool is_early = !ending.all_gone();
    EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
    return is_early;
  }));
}

TEST(ProgramEnd, ComesWhenRidgeIsKilled) {
  const TempFolder folder, outside;
  std::ofstream(outside / "kept") << "text";
  const std::filesystem::path ours = folder / "ridge-shim";
  std::filesystem::create_directories(ours / "deep" / "deeper");
  std::ofstream(ours / "deep" / "file") << "text";
  std::filesystem::create_directory_symlink(outside.path(), ours / "deep" / "link");
  Holder holder(
      folder, tree(folder) + "wait", [&] { ::setenv("RIDGE_TEST_FOLDER", ours.c_str(), 1); });
  std::vector<pid_t> pids = pids_in(folder / "pids", kTree);
  pids.push_back(holder.program());
  pids.push_back(test::parent_of(pids.back()));  // the supervisor
  const Ending ending(pids);
  holder.kill_it();
  EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
  EXPECT_FALSE(std::filesystem::exists(ours));
  EXPECT_EQ(text_of(outside / "kept"), "text");
}

TEST(ProgramEnd, RemovesTheFolderOfAKilledRidgeWhoseProgramHasEnded) {
  const TempFolder folder;
  const std::filesystem::path ours = folder / "ridge-shim";
  std::filesystem::create_directory(ours);
  Holder holder(folder, "sleep 1000 & echo $! > " + (folder / "pids").string(), [&] {
    ::setenv("RIDGE_TEST_FOLDER", ours.c_str(), 1);
    ::setenv("RIDGE_TEST_LINGER", "1", 1);
  });
  const Ending background(pids_in(folder / "pids", 1));
  EXPECT_EQ(holder.end(), "0,0\n");
  holder.kill_it();
  EXPECT_TRUE(comes([&] { return !std::filesystem::exists(ours); }));
  EXPECT_FALSE(background.all_gone());
}

TEST(ProgramEnd, LeavesFoldersThatAreNotOurs) {
  const TempFolder folder;
  const std::filesystem::path other = folder / "data", link = folder / "ridge-link";
  std::filesystem::create_directory(other);
  std::filesystem::create_directory_symlink(other, link);
  for (const std::filesystem::path& path : {other, link}) {
    Holder holder(
        folder, "exec sleep 1000", [&] { ::setenv("RIDGE_TEST_FOLDER", path.c_str(), 1); });
    const pid_t program = holder.program(), supervisor = test::parent_of(program);
    holder.kill_it();
    EXPECT_TRUE(comes([&] { return !is_alive(program) && !is_alive(supervisor); }));
    EXPECT_TRUE(std::filesystem::exists(other));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    std::filesystem::remove(folder / "end.pid");
  }
}

TEST(ProgramEnd, ComesAndIsSaidWhenTheSupervisorIsKilled) {
  Program program(shell("exec sleep 1000"));
  const pid_t pid = program.pid();
  ::kill(test::parent_of(pid), SIGKILL);
  const ProgramEnd end = end_of(program);
  EXPECT_NE(end.trouble.find("killed the process of ridge that watches over it"),
            std::string::npos);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(comes([&] { return !is_alive(pid); }));
}

// Counts what comes, until it is told to go; short sleeps, since sh runs a trap after a command.
std::string counting(const TempFolder& folder, const std::string& signal) {
  const std::string said = (folder / "said").string();
  return "trap 'echo " + signal + " >> " + said + "' " + signal +
         "; trap 'exit 4' USR1; echo 1 > " + (folder / "ready").string() +
         "; while :; do sleep 0.01; done";
}

bool is_ready(const TempFolder& folder) {
  return comes([&] { return !text_of(folder / "ready").empty(); });
}

TEST(ProgramSignals, PassesOnWhatCameToUsAlone) {
  for (const auto& [name, signal] :
       {std::pair{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}}) {
    heed_signals();
    const TempFolder folder;
    Program program(shell(counting(folder, name)));
    const ProgramSignals signals(program);
    ASSERT_TRUE(is_ready(folder));
    ::kill(::getpid(), signal);
    EXPECT_TRUE(comes([&] { return text_of(folder / "said") == std::string(name) + "\n"; }));
    EXPECT_EQ(signals.count(), 1);
    program.send(SIGUSR1);
    EXPECT_EQ(end_of(program).exit_code, 4);
    EXPECT_EQ(text_of(folder / "said"), std::string(name) + "\n");
  }
}

// To the shell alone it would come after the first sleep.
TEST(ProgramEnd, AnInterruptReachesWhatAShellStarted) {
  heed_signals();
  const TempFolder folder;
  Program program(shell("sh -c 'echo $$ > " + (folder / "pid").string() +
                        "; exec sleep 1000'; echo after > " + (folder / "after").string()));
  const Ending child(pids_in(folder / "pid", 1));
  program.interrupt();
  const ProgramEnd end = end_of(program);
  EXPECT_EQ(end.signal, SIGINT);
  EXPECT_TRUE(comes([&] { return child.all_gone(); }));
  EXPECT_EQ(text_of(folder / "after"), "");
}

TEST(ProgramSignals, GivesBackWhatItTook) {
  heed_signals();
  struct sigaction before{}, after{};
  ::sigaction(SIGINT, nullptr, &before);
  {
    Program program(shell("exit 0"));
    const ProgramSignals signals(program);
    ::sigaction(SIGINT, nullptr, &after);
    EXPECT_NE(before.sa_handler, after.sa_handler);
  }
  ::sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(ProgramSignals, TheThirdOneKills) {
  heed_signals();
  const TempFolder folder;
  Program program(shell("trap '' INT TERM; echo 1 > " + (folder / "ready").string() +
                        "; while :; do sleep 0.01; done"));
  const ProgramSignals signals(program);
  ASSERT_TRUE(is_ready(folder));
  ::kill(::getpid(), SIGINT);
  ::kill(::getpid(), SIGTERM);
  EXPECT_FALSE(program.wait(300).has_value());
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(end_of(program).signal, SIGKILL);
  EXPECT_EQ(signals.count(), 3);
}

TEST(ProgramSignals, OneToTheWholeGroupComesOnce) {
  const TempFolder folder;
  Holder holder(folder, counting(folder, "TERM"));
  ASSERT_TRUE(is_ready(folder));
  const Ending ending({holder.program()});
  ::kill(-holder.pid(), SIGTERM);
  ASSERT_TRUE(comes([&] { return !text_of(folder / "said").empty(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(holder.program(), SIGUSR1);
  EXPECT_EQ(holder.end(), "4,1\n");
  EXPECT_EQ(text_of(folder / "said"), "TERM\n");
}

// Longer than the copies of one signal take on a machine that is idle.
TEST(ProgramSignals, OneToTheWholeGroupComesOnceWhereRidgeIsLate) {
  const TempFolder folder;
  Holder holder(folder, counting(folder, "TERM"));
  ASSERT_TRUE(is_ready(folder));
  const Ending ending({holder.program()});
  ::kill(holder.pid(), SIGSTOP);
  ASSERT_TRUE(comes([&] { return test::stat_of(holder.pid()).starts_with("T"); }));
  ::kill(-holder.pid(), SIGTERM);
  ASSERT_TRUE(comes([&] { return !text_of(folder / "said").empty(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(holder.pid(), SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(holder.program(), SIGUSR1);
  EXPECT_EQ(holder.end(), "4,1\n");
  EXPECT_EQ(text_of(folder / "said"), "TERM\n");
}

// For a Holder's `prepare`. A leader of a group can make no session: a child takes its part.
void lead_session() {
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    return;
  }
  while (::wait(nullptr) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

/// The master of a terminal that becomes the one of the process that runs `prepare`.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    ::grantpt(master_);
    ::unlockpt(master_);
    name_ = ::ptsname(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() { ::close(master_); }
  void key(char key) const { ASSERT_EQ(::write(master_, &key, 1), 1); }
  void prepare() const {
    lead_session();
    const int terminal = ::open(name_.c_str(), O_RDWR);
    ::ioctl(terminal, TIOCSCTTY, 0);
    ::dup2(terminal, STDIN_FILENO);
    ::close(terminal);
  }

 private:
  int master_;
  std::string name_;
};

TEST(ProgramSignals, TheKeyOfATerminalComesOnce) {
  const TempFolder folder;
  const Terminal terminal;
  Holder holder(folder, counting(folder, "INT"), [&] { terminal.prepare(); });
  ASSERT_TRUE(is_ready(folder));
  const Ending ending({holder.program(), test::parent_of(holder.program())});
  terminal.key('\x03');
  ASSERT_TRUE(comes([&] { return !text_of(folder / "said").empty(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(holder.program(), SIGUSR1);
  EXPECT_EQ(holder.end(), "4,1\n");
  EXPECT_EQ(text_of(folder / "said"), "INT\n");
}

TEST(ProgramSignals, TheKeyOfATerminalLeavesNothing) {
  const TempFolder folder;
  const Terminal terminal;
  Holder holder(folder, tree(folder) + "wait", [&] { terminal.prepare(); });
  const Ending ending(pids_in(folder / "pids", kTree));
  holder.program();
  terminal.key('\x03');
  EXPECT_EQ(holder.end(), "130,1\n");
  EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
}

// In a session of its own, where the system does not continue what its leader leaves stopped.
TEST(ProgramEnd, ComesWhenRidgeIsKilledWhileAllIsStopped) {
  const TempFolder folder;
  const Holder holder(folder, "exec sleep 1000", lead_session);
  const pid_t program = holder.program(), ridge = ::getpgid(program);
  const Ending ending({ridge, test::parent_of(program), program});
  ::kill(-ridge, SIGSTOP);
  EXPECT_TRUE(comes([&] { return test::stat_of(ending.pids()[1]).starts_with("T"); }));
  ::kill(ridge, SIGKILL);
  EXPECT_TRUE(comes([&] { return ending.all_gone(); }));
}

// nohup, closed streams, and descriptors for the program.
TEST(ProgramSignals, WhatRidgeGotTheProgramGets) {
  const TempFolder folder;
  const std::string script =
      "{ grep SigIgn /proc/self/status; ls /proc/$$/fd; } > " + (folder / "said").string();
  const auto prepare = [&] {
    std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGCHLD, SIG_IGN);
    ::close(STDIN_FILENO);
    ::close(STDERR_FILENO);
    ::dup2(STDOUT_FILENO, 7);
    // Runs it like `nohup setsid sh -c SCRIPT 7>&1 <&- 2>&-`.
    if (std::getenv("RIDGE_TEST_DIRECT") != nullptr) {
      ::execl("/bin/sh", "/bin/sh", "-c", script.c_str(), nullptr);
      ::_exit(99);
    }
  };
  {
    Holder direct(folder, script, [&] {
      ::setenv("RIDGE_TEST_DIRECT", "1", 1);
      prepare();
    });
    ::waitid(P_PID, static_cast<id_t>(direct.pid()), nullptr, WEXITED | WNOWAIT);
  }
  const std::string expected = text_of(folder / "said");
  ASSERT_NE(expected.find("3\n"), std::string::npos) << expected;  // SIGHUP and SIGINT
  ASSERT_NE(expected.find("\n7\n"), std::string::npos) << expected;
  std::filesystem::remove(folder / "said");
  const Holder holder(folder, script, prepare);
  EXPECT_EQ(holder.end(), "0,0\n");
  EXPECT_EQ(text_of(folder / "said"), expected);
}

}  // namespace
}  // namespace ridge::attach
