// `ridge doctor -- python train.py` with real PyTorch, as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/ridge_process.h"
#include "tests/support/comes.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::Ended;
using test::RidgeProcess;

constexpr std::chrono::seconds kLimit{900};

std::string program_path(const std::string& name) {
  return std::filesystem::absolute("tests/attach/programs/" + name).string();
}

// A small program that trains; `%` stands for what a test adds after each step.
std::string training(const std::string& each_step, int steps = 60, const std::string& start = {}) {
  return "import os, sys, torch, hashlib\n" + start +
         "torch.manual_seed(0)\n"
         "model = torch.nn.Sequential(torch.nn.Linear(64, 128), "
         "torch.nn.ReLU(),\n"
         "                            torch.nn.Linear(128, 8))\n"
         "optimizer = torch.optim.Adam(model.parameters())\n"
         "x, y = torch.randn(256, 64), torch.randint(0, 8, (256,))\n"
         "for step in range(" +
         std::to_string(steps) +
         "):\n"
         "    optimizer.zero_grad()\n"
         "    loss = torch.nn.functional.cross_entropy(model(x), y)\n"
         "    loss.backward()\n"
         "    optimizer.step()\n"
         "    " +
         each_step +
         "\n"
         "weights = b''.join(p.detach().numpy().tobytes() for p in "
         "model.parameters())\n"
         "print(hashlib.sha256(weights).hexdigest())\n";
}

/// Processes whose command line holds `word`.
std::set<std::string> processes_with(const std::string& word) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (test::text_of(entry.path() / "cmdline").find(word) != std::string::npos) found.insert(name);
  }
  return found;
}

class DoctorLive : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    std::filesystem::create_directory(folder_ / "user");
    std::filesystem::create_directory(folder_ / "tmp");
  }

  std::string script(const std::string& text) {
    const std::filesystem::path path = folder_ / "script.py";
    std::ofstream(path) << text;
    return path.string();
  }

  // The shell puts all temporary files, ours and the program's, into a folder
  // of the test.
  std::string shell() const { return "export TMPDIR='" + (folder_ / "tmp").string() + "';"; }

  Ended plain(std::vector<std::string> command) {
    const std::string program = command[0];
    command.erase(command.begin());
    RidgeProcess process(folder_ / "user", std::move(command), shell(), program);
    process.set_limit(kLimit);
    return process.wait();
  }
  Ended doctor(std::vector<std::string> command, std::vector<std::string> options = {}) {
    std::vector<std::string> words = {"doctor"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    RidgeProcess process(folder_ / "user", words, shell());
    process.set_limit(kLimit);
    return process.wait();
  }

  // Nothing but what the harness itself writes; nothing temporary left.
  void expect_untouched(const std::set<std::string>& allowed = {}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "user")) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == ".out" || name == ".err" || allowed.contains(name)) << entry.path();
    }
    // PyTorch makes folders of its own there, with and without us.
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tmp"))
      if (!entry.path().filename().string().starts_with("torch"))
        ADD_FAILURE() << "left behind: " << entry.path();
  }

  // Half of what the programs do by themselves, but for the long form.
  json report_of(const std::string& program, int steps) {
    if (test::cases(10) > 10) steps *= 2;
    const std::vector<std::string> command = {
        python_, program_path(program), "--steps", std::to_string(steps)};
    const std::string file = folder_ / "report.json";
    const Ended with = doctor(command, {"--after", "12", "--json", "--output", file});
    EXPECT_EQ(with.code, 0) << with.err;
    if (test::cases(10) > 10) {
      const Ended without = plain(command);
      EXPECT_EQ(without.code, 0) << without.err;
      EXPECT_EQ(with.out, without.out);
    }
    expect_untouched();
    const json report = json::parse(test::text_of(file), nullptr, false);
    EXPECT_TRUE(report.is_object()) << with.err;
    return report;
  }

  // A program's waits are not its own doing alone: where other programs take the processors, a
  // healthy one waits for them, and saves no longer count. So it is asked again, at most twice; and
  // where each report says that others take them, nothing is known.
  template <typename Holds>
  void expect_of(const std::string& program, int steps, Holds holds) {
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
    json report;
    bool is_alone = false;
    for (int attempt = 0; attempt < 3 && !HasFailure(); ++attempt) {
      report = report_of(program, steps);
      if (!report.is_object()) continue;
      if (holds(report.at("findings"))) return;
      if (!waits_for_others(report.at("findings"))) is_alone = true;
    }
    if (!is_alone && !HasFailure())
      GTEST_SKIP() << "other programs take the processors: it has to run alone";
    ADD_FAILURE() << report.dump(1);
  }
  static bool waits_for_others(const json& findings) {
    return std::ranges::any_of(findings, [](const json& finding) {
      return finding["rule"] == "R30" && finding["severity"] != "info";
    });
  }
  void expect_first(const std::string& program, int steps, const std::string& rule) {
    expect_of(program, steps, [&](const json& findings) {
      return !findings.empty() && findings[0]["rule"] == rule && findings[0]["severity"] != "info";
    });
  }
  void expect_healthy(const std::string& program, int steps) {
    expect_of(program, steps, [](const json& findings) {
      return std::ranges::all_of(findings,
                                 [](const json& finding) { return finding["severity"] == "info"; });
    });
  }

  test::TempFolder folder_;
  const std::string python_ = test::peers_python();
};

TEST_F(DoctorLive, NamesJpegDecodingInTheTrainingProcess) {
  expect_first("sick_jpeg.py", 125, "R01");
}
TEST_F(DoctorLive, NamesTooManyThreads) { expect_first("sick_threads.py", 225, "R30"); }
TEST_F(DoctorLive, NamesTinyBatches) { expect_first("sick_tiny_batch.py", 12500, "R18"); }
TEST_F(DoctorLive, NamesALoopOfTinyOperators) {
  expect_of("sick_loop.py", 400, [](const json& findings) {
    return !findings.empty() && findings[0]["rule"] == "R03" &&
           std::ranges::any_of(findings[0]["evidence"], [](const json& evidence) {
             return evidence["place"] == "sick_loop.py(20): forward";
           });
  });
}
TEST_F(DoctorLive, NamesFrequentCheckpoints) {
  expect_of("sick_checkpoint.py", 300, [](const json& findings) {
    return !findings.empty() && findings[0]["rule"] == "R29" && findings[0]["severity"] != "info" &&
           findings[0]["command"].get<std::string>().starts_with(
               "ridge optimize --sandbox --only save.background -- ");
  });
}
TEST_F(DoctorLive, LeavesAHealthyProgramAlone) { expect_healthy("healthy.py", 400); }
TEST_F(DoctorLive, LeavesAHealthyLoaderAlone) { expect_healthy("healthy_loader.py", 40); }

TEST_F(DoctorLive, KeepsWhatTheProgramPrintsAndItsWeights) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::vector<std::string> command = {python_, script(training("print(float(loss))"))};
  const Ended without = plain(command), with = doctor(command, {"--after", "0"});
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(with.code, 0) << with.err;
  EXPECT_EQ(with.out, without.out);
  EXPECT_NE(with.err.find("steady steps"), std::string::npos) << with.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramThatEndsEarlyKeepsItsExitCode) {
  const Ended ended = doctor({python_, script(training("sys.exit(7) if step == 3 else None"))});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_NE(ended.err.find("R00"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramThatCrashesKeepsItsTraceback) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = doctor({python_, script(training("assert step < 5, 'the user\\'s own'"))});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("AssertionError: the user's own"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("sitecustomize"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramThatDiesOfASignal) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended =
      doctor({python_, script(training("os.kill(os.getpid(), 11) if step == 5 else None"))});
  EXPECT_EQ(ended.code, 128 + SIGSEGV) << ended.err;
  EXPECT_NE(ended.err.find("signal 11"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramWithoutTorch) {
  const Ended ended = doctor({python_, "-c", "print('no torch'); raise SystemExit(3)"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.out, "no torch\n");
  EXPECT_NE(ended.err.find("no process of it imported torch"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramWithoutPython) {
  const Ended ended = doctor({"/bin/sh", "-c", "echo hello; exit 4"});
  EXPECT_EQ(ended.code, 4);
  EXPECT_EQ(ended.out, "hello\n");
  EXPECT_NE(ended.err.find("no Python"), std::string::npos) << ended.err;
}

TEST_F(DoctorLive, ACommandThatIsNotThere) {
  const Ended ended = doctor({"no-such-program"});
  EXPECT_EQ(ended.code, 127) << ended.err;
  EXPECT_NE(ended.err.find("no-such-program"), std::string::npos) << ended.err;
}

TEST_F(DoctorLive, AProgramThatForks) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const Ended ended = doctor(
      {python_,
       script(training("None", 60, "pid = os.fork()\nif pid == 0: os._exit(0)\nos.wait()\n"))},
      {"--after", "0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AProgramWithItsOwnSitecustomize) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  std::filesystem::create_directory(folder_ / "site");
  std::ofstream(folder_ / "site" / "sitecustomize.py") << "print('my own site')\n";
  const std::string path = "PYTHONPATH=" + (folder_ / "site").string();
  const Ended ended =
      doctor({"/usr/bin/env", path, python_, script(training("None"))}, {"--after", "0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out.rfind("my own site\n", 0), 0U) << ended.out;
  // `env` replaced the path, so ours is not there: that is said.
  EXPECT_NE(ended.err.find("replaces PYTHONPATH"), std::string::npos) << ended.err;

  const Ended both =
      RidgeProcess(folder_ / "user",
                   {"doctor", "--after", "0", "--", python_, script(training("None"))},
                   shell() + "export " + path + ";")
          .wait();
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_EQ(both.out.rfind("my own site\n", 0), 0U) << both.out;
  EXPECT_NE(both.err.find("steady steps"), std::string::npos) << both.err;
  expect_untouched();
}

TEST_F(DoctorLive, TwoRanksOfTorchrun) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string ranks = script(
      "import os, torch, torch.distributed as dist\n"
      "dist.init_process_group('gloo')\n"
      "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, "
      "256))\n"
      "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
      "for step in range(60):\n"
      "    optimizer.zero_grad()\n"
      "    model(torch.randn(256, 256)).sum().backward()\n"
      "    optimizer.step()\n"
      "dist.destroy_process_group()\n");
  const std::string file = folder_ / "report.json";
  const Ended ended = doctor(
      {python_, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", ranks},
      {"--after", "0", "--json", "--output", file});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const json report = json::parse(test::text_of(file), nullptr, false);
  ASSERT_TRUE(report.is_object()) << ended.err;
  ASSERT_TRUE(report.contains("ranks")) << report.dump(1);
  EXPECT_EQ(report["ranks"].size(), 2U);
  expect_untouched();
}

TEST_F(DoctorLive, KilledItLeavesNothing) {
  const std::string mark = "ridge_live_test_" + std::to_string(::getpid());
  const std::string text = script(training("None", 1000000));
  {
    RidgeProcess process(folder_ / "user", {"doctor", "--", python_, text, mark}, shell());
    const auto start = std::chrono::steady_clock::now();
    while (processes_with(mark).size() < 3 && std::chrono::steady_clock::now() - start < kLimit)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_GE(processes_with(mark).size(), 3U);  // ridge, its supervisor, python
    std::this_thread::sleep_for(std::chrono::seconds(5));
    process.send(SIGKILL);
    process.wait();
  }
  const auto start = std::chrono::steady_clock::now();
  while (!processes_with(mark).empty() && std::chrono::steady_clock::now() - start < kLimit)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(processes_with(mark), std::set<std::string>());
  expect_untouched();
}

TEST_F(DoctorLive, AnInterruptIsTheProgramsOwn) {
  const std::string text = script(training("print('step', flush=True)", 1000000));
  RidgeProcess process(folder_ / "user", {"doctor", "--", python_, text}, shell());
  process.set_limit(kLimit);
  const auto start = std::chrono::steady_clock::now();
  while (test::text_of(folder_ / "user" / ".out").size() < 500 &&
         std::chrono::steady_clock::now() - start < kLimit)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  process.send(SIGINT);
  const Ended ended = process.wait();
  // Python ends itself by the signal, after its own traceback.
  EXPECT_EQ(ended.code, 128 + SIGINT) << ended.err;
  EXPECT_NE(ended.err.find("KeyboardInterrupt"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, ASupervisorThatIsKilledIsSaidAndTheEndTold) {
  const Ended ended =
      doctor({python_, script(training("os.kill(os.getppid(), 9) if step == 5 else None"))});
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.err;
  EXPECT_NE(ended.err.find("killed the process of ridge"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("signal 9"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, AReportThatCannotBeWrittenIsStillTold) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::filesystem::path gone = folder_ / "gone";
  std::filesystem::create_directory(gone);
  const Ended ended =
      doctor({python_, script(training("None", 60, "os.rmdir('" + gone.string() + "')\n"))},
             {"--after", "0", "--output", gone / "report", "--trace", gone / "trace.json"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("/gone/.tmp-report"), std::string::npos) << ended.err;
  expect_untouched();
}

// Its recording is never over, and what trains after it is reported on all the same.
TEST_F(DoctorLive, AKilledProcessDoesNotHoldTheReportUp) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string text =
      script(training("print('step', flush=True) if step < 100 else None",
                      10000000,
                      "import subprocess, time\n"
                      "if len(sys.argv) == 1:\n"
                      "    child = subprocess.Popen([sys.executable, __file__, 'child'],\n"
                      "                             stdout=subprocess.PIPE)\n"
                      "    child.stdout.readline()\n"
                      "    time.sleep(1)\n"
                      "    child.kill()\n"
                      "    child.wait()\n"));
  const Ended ended = doctor({python_, text}, {"--after", "12", "--stop"});
  EXPECT_EQ(ended.code, 128 + SIGINT) << ended.err;
  EXPECT_NE(ended.err.find("failed: the process was killed"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

// A shell that waits for what it started hears of a signal to itself alone only after that.
TEST_F(DoctorLive, StopsWhatAShellStarted) {
  const std::string line = python_ + " " + script(training("None", 10000000)) + "; echo after";
  const Ended ended = doctor({"/bin/sh", "-c", line}, {"--after", "0", "--stop"});
  EXPECT_NE(ended.code, -SIGKILL) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

// SIGINT is not heard by `ridge doctor --stop -- CMD &` in a script.
TEST_F(DoctorLive, StopsAProgramThatIgnoresInterrupts) {
  const std::string text = script(training("None", 10000000));
  RidgeProcess process(folder_ / "user",
                       {"doctor", "--after", "0", "--stop", "--", python_, text},
                       shell() + "trap '' INT;");
  process.set_limit(kLimit);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

// CPython drops the KeyboardInterrupt of a SIGINT that comes while its garbage collector calls
// back.
TEST_F(DoctorLive, StopAsksAgainAProgramThatLostTheFirst) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string text = script(training("None",
                                           1000000000,
                                           "import signal\n"
                                           "heard = []\n"
                                           "def hear(*_):\n"
                                           "    heard.append(1)\n"
                                           "    print(len(heard), flush=True)\n"
                                           "    if len(heard) == 2:\n"
                                           "        os._exit(7)\n"
                                           "signal.signal(signal.SIGINT, hear)\n"));
  const Ended ended = doctor({python_, text}, {"--after", "0", "--stop", "--stop-limit", "800"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.out, "1\n2\n");
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

TEST_F(DoctorLive, StopLeavesAProgramThatDoesNotEnd) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string text = script(training("None",
                                           1000000000,
                                           "import signal\n"
                                           "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                                           "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
                                           "print(os.getpid(), flush=True)\n"));
  const Ended ended = doctor({python_, text}, {"--after", "0", "--stop", "--stop-limit", "0"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  const auto pid = static_cast<pid_t>(std::atoi(ended.out.c_str()));
  ASSERT_GT(pid, 0) << ended.out;
  const std::string fix = "kill " + std::to_string(pid);
  EXPECT_NE(ended.err.find("end it by '" + fix + "'"), std::string::npos) << ended.err;
  EXPECT_EQ(std::system(fix.c_str()), 0);  // it was there
  EXPECT_TRUE(test::comes([&] { return processes_with(text).empty(); }));
  expect_untouched();
}

TEST_F(DoctorLive, StopsTheProgramWhenAllIsKnown) {
  const std::string text = script(training("None", 1000000));
  const Ended ended = doctor({python_, text}, {"--after", "0", "--stop"});
  EXPECT_EQ(ended.code, 128 + SIGINT) << ended.err;
  EXPECT_NE(ended.err.find("steady steps"), std::string::npos) << ended.err;
  expect_untouched();
}

}  // namespace
}  // namespace ridge
