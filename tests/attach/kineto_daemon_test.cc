// A trace on demand from stand-ins that speak libkineto's protocol over real sockets, and from
// PyTorch where there is one.
#include "ridge/attach/kineto/kineto_daemon.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "ridge/attach/kineto/kineto_program.h"
#include "ridge/attach/kineto/kineto_socket.h"
#include "ridge/cli/command.h"
#include "ridge/cli/doctor_attach.h"
#include "ridge/doctor/examination.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/io/file.h"
#include "tests/attach/kineto_stand_in.h"
#include "tests/support/comes.h"
#include "tests/support/errors.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;
using test::ChildProcess;
using test::OnRequest;
using test::StandIn;
using test::StandInProcess;

bool never() { return false; }

// Folders of ours, by the process that made them.
std::vector<fs::path> folders_of(pid_t pid, const fs::path& parent = "/tmp") {
  std::vector<fs::path> found;
  const std::string start = "ridge-attach-" + std::to_string(pid) + "-";
  for (const auto& entry : fs::directory_iterator(parent))
    if (entry.path().filename().string().starts_with(start)) found.push_back(entry.path());
  return found;
}

class KinetoDaemon : public testing::Test {
 protected:
  StandIn plan() const { return {.socket = socket_, .home = folder_.path()}; }
  OnDemandRequest request(pid_t pid) const {
    return {.pid = pid, .duration_ms = 100, .timeout_seconds = kPatience, .socket = socket_};
  }
  // The trace, or what is wrong.
  std::string trace(const OnDemandRequest& wanted, const std::function<bool()>& stop = never) {
    return test::user_error([&] {
      const auto recorded =
          trace_on_demand(wanted, stop, [&](std::string_view line) { said_ << line << '\n'; });
      throw UserError(recorded ? read_file(recorded->path) : "stopped");
    });
  }
  std::string error_of(const StandIn& plan, double timeout = kPatience) {
    StandInProcess program(plan);
    OnDemandRequest wanted = request(program.pid());
    wanted.timeout_seconds = timeout;
    wanted.duration_ms = 0;
    return trace(wanted);
  }
  /// The daemon's patience ends when `has_come` says so, however long a busy machine takes for
  /// that.
  std::string error_after(const StandInProcess& program, const std::function<bool()>& has_come) {
    OnDemandRequest wanted = request(program.pid());
    wanted.duration_ms = 0;
    return trace(wanted, [&] {
      if (has_come()) wanted.timeout_seconds = 0.1;  // it is read anew each time
      return false;
    });
  }
  bool says(const std::string& text) const { return said_.str().find(text) != std::string::npos; }

  static constexpr double kPatience =
      60;  // Seconds, of what does not end by it but where it hangs.

  test::TempFolder folder_;
  std::string socket_ = "ridge-test-" + std::to_string(::getpid());
  std::ostringstream said_;
};

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(KinetoDaemon, AProgramIsAskedAndItsTraceRead) {
  StandInProcess program(plan());
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
  EXPECT_TRUE(says("asked process " + std::to_string(program.pid()))) << said_.str();
  EXPECT_TRUE(says("records 0.1 s")) << said_.str();
  EXPECT_TRUE(folders_of(::getpid()).empty());
  EXPECT_EQ(program.times_asked(), 1u);
  // The second time nothing of the first is in the way.
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
  EXPECT_EQ(program.times_asked(), 2u);
}

TEST_F(KinetoDaemon, OnlyTheOneIsAsked) {
  StandInProcess other(plan()), program(plan());
  StandIn lies = plan();
  lies.says_pid = program.pid();
  StandInProcess liar(lies);
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
  EXPECT_EQ(program.times_asked(), 1u);
  EXPECT_EQ(other.times_asked(), 0u);
  EXPECT_EQ(liar.times_asked(), 0u);
}

// In a PID namespace a program knows itself by another number.
TEST_F(KinetoDaemon, TheSystemSaysWhoCalls) {
  StandIn elsewhere = plan();
  elsewhere.says_pid = 1;
  StandInProcess program(elsewhere);
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
}

TEST_F(KinetoDaemon, HostileDatagramsAreNothing) {
  StandInProcess program(plan());
  ChildProcess noise([&] {
    std::mt19937 random(5);
    const int named = test::bound_socket("noise" + socket_), unnamed = test::bound_socket("");
    while (true) {
      std::string text = test::kineto_datagram(random() % 2 == 0 ? "req" : "ctxt",
                                               std::string(random() % 100, '\xff'));
      text.resize(random() % 3 == 0 ? 100000 : random() % (text.size() + 1));
      test::send_to(random() % 2 == 0 ? named : unnamed, socket_, text);
      test::send_to(unnamed, socket_, test::kineto_datagram("req", test::packed(2, 1, 0L, 1)));
    }
    return 0;
  });
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
}

TEST_F(KinetoDaemon, StoppingLeavesNothingBehind) {
  StandIn slow = plan();
  slow.on_request = OnRequest::kWritesNothing;
  StandInProcess program(slow);
  EXPECT_EQ(trace(request(program.pid()), [] { return true; }), "stopped");
  EXPECT_EQ(program.times_asked(), 0u);
  EXPECT_EQ(trace(request(program.pid()), [&] { return says("asked"); }), "stopped");
  EXPECT_TRUE(folders_of(::getpid()).empty());
  const KinetoSocket is_free(socket_, "");
}

TEST_F(KinetoDaemon, AKilledDaemonLeavesNothingBehind) {
  StandIn slow = plan();
  slow.on_request = OnRequest::kWritesHalf;
  StandInProcess program(slow);
  ChildProcess daemon([&] {
    trace(request(program.pid()));
    return 0;
  });
  const pid_t killed = daemon.pid();
  ASSERT_TRUE(test::comes([&] { return program.times_asked() == 1; }));
  ASSERT_EQ(folders_of(killed).size(), 1u);
  EXPECT_EQ(daemon.end(SIGKILL), -SIGKILL);
  EXPECT_TRUE(test::comes([&] { return folders_of(killed).empty(); }));
  EXPECT_TRUE(fs::exists("/proc/" + std::to_string(program.pid())));
}

TEST_F(KinetoDaemon, WhatEndsMeanwhileIsSaid) {
  StandIn ends = plan();
  ends.on_request = OnRequest::kEnds;
  expect_in(error_of(ends), "ended before it had written a trace");
  EXPECT_TRUE(folders_of(::getpid()).empty());
}

TEST_F(KinetoDaemon, AHalfTraceIsNotTakenForAWholeOne) {
  for (const OnRequest on_request : {OnRequest::kWritesHalf, OnRequest::kWritesNothing}) {
    StandIn half = plan();
    half.on_request = on_request;
    const StandInProcess program(half);
    expect_in(error_after(program, [&] { return program.times_asked() == 1; }),
              "has written no whole trace");
  }
}

TEST_F(KinetoDaemon, SilenceIsSaidWithItsReason) {
  StandIn silent = plan();
  silent.calls = false;
  expect_in(error_of(silent, 0.4),
            "has not called within 0.4 s; start it with KINETO_USE_DAEMON=1");
  {
    const StandInProcess program(silent), caller(plan());
    expect_in(error_after(program, [&] { return caller.times_answered() > 0; }),
              "(others have: " + std::to_string(caller.pid()) + ")");
  }
  StandIn busy = plan();
  busy.is_busy = true;
  const StandInProcess program(busy);
  expect_in(error_after(program, [&] { return program.times_answered() > 1; }),
            "it is being profiled already");
  StandInProcess stopped(plan());
  stopped.send(SIGSTOP);
  OnDemandRequest wanted = request(stopped.pid());
  wanted.timeout_seconds = 0.3;
  expect_in(trace(wanted), "it is stopped; wake it: kill -CONT");
}

TEST_F(KinetoDaemon, AnotherDaemonIsSaid) {
  StandInProcess program(plan());
  const int taken = test::bound_socket(socket_);
  expect_in(trace(request(program.pid())), "another program answers libkineto here");
  ::close(taken);
  EXPECT_EQ(trace(request(program.pid())), test::small_trace(true));
}

TEST_F(KinetoDaemon, WhatCannotBeAskedIsSaid) {
  expect_in(trace(request(0)), "there is no process 0");
  expect_in(trace(request(-5)), "there is no process -5");
  expect_in(trace(request(INT32_MAX)), "there is no process");
  ChildProcess ended([] { return 0; });
  ended.become_zombie();
  expect_in(trace(request(ended.pid())), "has ended");
  StandIn plain = plan();
  plain.has_torch = plain.has_client = false;
  expect_in(error_of(plain), "has not loaded torch, and nothing below it has");
  plain.has_torch = true;
  expect_in(error_of(plain), "started without KINETO_USE_DAEMON=1");
  expect_in(error_of(plain), "ridge doctor -- python");
}

TEST_F(KinetoDaemon, AParentOfRanksNamesThem) {
  StandIn parent = plan();
  parent.has_torch = false;
  ChildProcess launcher([&] {
    const ChildProcess first([&] { return test::run_stand_in(plan()); });
    return test::run_stand_in(parent);
  });
  ASSERT_TRUE(test::comes([&] {
    const auto names = folder_.names();
    return std::count_if(names.begin(), names.end(), [](const std::string& name) {
             return name.starts_with("ready");
           }) == 2;
  }));
  const std::string error = trace(request(launcher.pid()));
  expect_in(error, "has not loaded torch, but 1 of those below it has: ");
  expect_in(error, "name one of them: ridge doctor --pid ");
}

TEST_F(KinetoDaemon, RanksBelowAProgramAreNamedToo) {
  ChildProcess launcher([&] {
    const ChildProcess rank([&] { return test::run_stand_in(plan()); });
    return test::run_stand_in(plan());
  });
  ASSERT_TRUE(test::comes([&] { return folder_.names().size() >= 4; }));
  EXPECT_EQ(trace(request(launcher.pid())), test::small_trace(true));
  EXPECT_TRUE(says("below it run others that can be traced, too: ")) << said_.str();
}

TEST_F(KinetoDaemon, AnotherUsersProcessIsSaid) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ChildProcess other([] {
    if (::setuid(65534) != 0) return 1;
    return ::pause();
  });
  ASSERT_TRUE(test::comes([&] {
    return trace(request(other.pid())).find("is of another user (65534)") != std::string::npos;
  }));
}

TEST_F(KinetoDaemon, AnotherNetworkIsSaid) {
  ChildProcess apart([&] {
    StandIn quiet = plan();
    quiet.calls = false;
    if (::unshare(CLONE_NEWNET) != 0) {
      std::ofstream(folder_ / "refused") << "";
      return 77;
    }
    return test::run_stand_in(quiet);
  });
  const auto is_ready = [&] {
    return fs::exists(folder_ / ("ready" + std::to_string(apart.pid())));
  };
  ASSERT_TRUE(test::comes([&] { return is_ready() || fs::exists(folder_ / "refused"); }));
  if (!is_ready()) GTEST_SKIP() << "no network namespaces here";
  expect_in(trace(request(apart.pid())), "it is in another network namespace");
}

// A library that is torch by its name, for programs that are made by exec: preloaded.
std::string library_named_torch(const fs::path& home) {
  std::string real;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/libm.so") != std::string::npos) real = line.substr(line.find('/'));
  const fs::path library = home / "libtorch_cpu.so";
  fs::copy_file(real, library, fs::copy_options::overwrite_existing);
  return library.string();
}

TEST_F(KinetoDaemon, ALauncherIsKnownByItsScript) {
  const fs::path script = folder_ / "torchrun";
  ASSERT_EQ(::mkfifo(script.c_str(), 0600), 0);
  const std::string library = library_named_torch(folder_.path());
  ChildProcess launcher([&] {
    const ChildProcess rank([&] { return test::run_stand_in(plan()); });
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::setenv("KINETO_USE_DAEMON", "1", 1);
    return ::execl("/bin/cat", "python3", script.c_str(), nullptr);
  });
  OnDemandRequest wanted = request(launcher.pid());
  wanted.timeout_seconds = 0.1;
  const std::string begin =
      "process " + std::to_string(launcher.pid()) + " (torchrun) only starts others: ";
  EXPECT_TRUE(test::comes([&] { return trace(wanted).starts_with(begin); })) << trace(wanted);
}

// A program with variables of its own.
class SleepingProgram {
 public:
  SleepingProgram(const fs::path& home, std::vector<std::string> variables) {
    const std::string library = library_named_torch(home);
    variables.push_back("LD_PRELOAD=" + library);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    char program[] = "/bin/sleep", time[] = "100";
    char* words[] = {program, time, nullptr};
    if (posix_spawn(&pid_, program, nullptr, nullptr, words, environment.data()) != 0)
      throw std::runtime_error("cannot start sleep");
    test::comes([&] {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/maps");
      std::stringstream text;
      text << file.rdbuf();
      return text.str().find("libtorch_cpu.so") != std::string::npos;
    });
  }
  SleepingProgram(const SleepingProgram&) = delete;
  SleepingProgram& operator=(const SleepingProgram&) = delete;
  ~SleepingProgram() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST_F(KinetoDaemon, TheEnvironmentSaysWhereFilesAndSocketsGo) {
  const std::string traces = (folder_ / "traces").string(), sockets = (folder_ / "s").string();
  fs::create_directory(traces);
  const SleepingProgram program(folder_.path(),
                                {"KINETO_USE_DAEMON=1",
                                 "KINETO_ONDEMAND_TRACE_DIR=" + traces,
                                 "KINETO_IPC_SOCKET_DIR=" + sockets});
  const KinetoProgram seen(program.pid());
  EXPECT_EQ(seen.trace_folder(), traces);
  EXPECT_EQ(seen.socket_folder(), sockets);
  EXPECT_TRUE(seen.is_running());
  OnDemandRequest wanted = request(program.pid());
  wanted.timeout_seconds = 0.3;
  expect_in(trace(wanted), "cannot listen at '" + sockets + "/" + socket_);
  fs::create_directory(sockets);
  // A daemon that was killed left its socket behind.
  const ChildProcess killed([&] {
    const auto left = std::make_unique<KinetoSocket>(socket_, sockets);
    return ::kill(::getpid(), SIGKILL);
  });
  killed.become_zombie();
  ASSERT_TRUE(fs::exists(sockets + "/" + socket_));
  bool was_there = false;
  expect_in(trace(wanted,
                  [&] {
                    was_there = was_there || !folders_of(::getpid(), traces).empty();
                    return false;
                  }),
            "has not called within");
  EXPECT_TRUE(was_there);
  EXPECT_TRUE(fs::is_empty(sockets));
  EXPECT_TRUE(fs::is_empty(traces));
}

// ---- PyTorch ----

constexpr const char* kTraining = R"(
import torch, torch.profiler
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
torch.set_num_threads(1)
open("ready", "w").close()
while True:
    loss = net(torch.randn(256, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
)";

class KinetoDaemonWithPyTorch : public KinetoDaemon {
 protected:
  // Sockets of its own, so that nobody else's PyTorch calls us; it calls every second.
  int train(const std::string& python) const {
    ::setenv("KINETO_USE_DAEMON", "1", 1);
    ::setenv("KINETO_IPC_SOCKET_DIR", folder_.path().c_str(), 1);
    ::setenv("KINETO_CONFIG", (folder_ / "kineto.conf").c_str(), 1);
    if (::chdir(folder_.path().c_str()) != 0) return 1;
    return ::execl(python.c_str(), python.c_str(), "train.py", nullptr);
  }
};

TEST_F(KinetoDaemonWithPyTorch, TheDoctorReportsBySecondsAndBySteps) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string python = test::peers_python();
  if (python.empty()) GTEST_SKIP() << test::kNoPeers;
  std::ofstream(folder_ / "train.py") << kTraining;
  std::ofstream(folder_ / "kineto.conf") << "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";
  ChildProcess program([&] { return train(python); });
  ASSERT_TRUE(test::comes([&] { return fs::exists(folder_ / "ready"); }));

  const std::string kept = (folder_ / "kept.json").string(),
                    page = (folder_ / "page.html").string();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_attach({.pid = program.pid(), .seconds = 0.5, .trace = kept},
                              {.html = page, .json = true});
  const std::string out = testing::internal::GetCapturedStdout();
  expect_in(testing::internal::GetCapturedStderr(), "(train.py): it warms up, records 0.5 s");
  EXPECT_TRUE(code == kFine || code == kFindings) << code;
  const auto report = nlohmann::json::parse(out);
  EXPECT_EQ(report["input"]["file"], kept);
  EXPECT_GE(doctor::examine(doctor::read_trace(kept)).analysis.steps.windows.size(), 5u);
  EXPECT_GT(fs::file_size(page), 1000u);

  const OnDemandRequest ten{.pid = program.pid(), .iterations = 10, .timeout_seconds = 30};
  const auto recorded = trace_on_demand(ten, never, [](std::string_view) {});
  ASSERT_TRUE(recorded);
  const auto steps = doctor::examine(doctor::read_trace(recorded->path)).analysis.steps;
  EXPECT_GE(steps.windows.size(), 7u);
  EXPECT_LE(steps.windows.size(), 100u);  // It trains on while the recording is stopped.
  EXPECT_EQ(steps.source, "optimizer");
}

}  // namespace
}  // namespace ridge::attach
