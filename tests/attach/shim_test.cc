// The shim in real programs of PyTorch, and what comes back from it.
#include "ridge/attach/shim.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "ridge/doctor/read/read_trace.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Steps are recorded at once.
const ShimOptions kSoon{
    .profiled_steps = 8, .warm_steps = 5, .warm_seconds = 0, .most_seconds = 40};

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Ended {
  int code = -1;
  std::string out, err;
};

/// A program, in a folder of its own; all of it is killed where it hangs.
Ended run(const std::string& words, const Environment& environment, const std::string& python) {
  const test::TempFolder folder;
  std::string command = "cd '" + folder.path().string() +
                        "' && exec env -u PYTHONPATH PYTHONWARNINGS=error::UserWarning";
  for (const auto& [name, value] : environment) command += " '" + name + "=" + value + "'";
  command += " timeout -k 1 280 '" + python + "' " + words + " >.out 2>.err </dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".err", ".out"}));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          text_of(folder / ".out"),
          text_of(folder / ".err")};
}

std::string program(const std::string& name) {
  return "'" + fs::absolute("tests/attach/programs/" + name).string() + "'";
}

/// For Python, within single quotes of a shell.
std::string quoted(const std::string& text) { return '"' + text + '"'; }

/// Numbers N of the ranges "NAME#N" in a trace.
std::vector<int64_t> numbers_of(const std::string& path, const std::string& name) {
  std::set<int64_t> found;
  if (path.empty()) return {};
  const doctor::Trace trace = doctor::read_trace(path);
  for (size_t row = 0; row < trace.size(); ++row)
    if (const std::string text(trace.name_text(row)); text.starts_with(name + "#"))
      found.insert(std::stoll(text.substr(name.size() + 1)));
  return {found.begin(), found.end()};
}

std::map<std::string, int> names_in(const std::string& path) {
  std::map<std::string, int> count;
  const doctor::Trace trace = doctor::read_trace(path);
  for (size_t row = 0; row < trace.size(); ++row) ++count[std::string(trace.name_text(row))];
  return count;
}

/// From `first`, `count` numbers.
std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

class ShimProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  /// Runs with the shim, and without to compare; what the one process that has torch said.
  ProcessFacts watch(const std::string& words, const ShimOptions& options = kSoon) {
    const ProcessFacts facts = watch_alone(words, options);
    plain_ = run(words, {}, python_);
    EXPECT_EQ(ended_.code, plain_.code) << ended_.err;
    EXPECT_EQ(ended_.out, plain_.out);
    return facts;
  }

  ProcessFacts watch_alone(const std::string& words, const ShimOptions& options = kSoon) {
    folder_.emplace(options);
    ended_ = run(words, folder_->environment(), python_);
    EXPECT_TRUE(folder_->was_loaded());
    const std::vector<ProcessFacts> all = folder_->facts();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? ProcessFacts{} : all.back();
  }

  std::string python_ = test::peers_python();
  std::optional<ShimFolder> folder_;
  Ended ended_, plain_;
};

// ---- programs ----

TEST_F(ShimProgram, RecordsEightStepsOfATraining) {
  const ProcessFacts facts = watch(program("shim_train.py") + " save 60");
  EXPECT_EQ(ended_.err, plain_.err);
  EXPECT_EQ(facts.profile, "written");
  EXPECT_EQ(facts.program, "shim_train.py");
  EXPECT_EQ(facts.python.substr(0, 2), "3.");
  EXPECT_FALSE(facts.torch.empty());
  EXPECT_EQ(facts.threads, 1);
  EXPECT_FALSE(facts.has_cuda);
  EXPECT_EQ(facts.step_source, "optimizer");
  EXPECT_EQ(facts.steps, 60);
  EXPECT_GT(facts.step_seconds, 1e-5);
  EXPECT_GT(facts.loader_seconds, 1e-5);
  EXPECT_LT(facts.first_step_wall_ns, facts.last_step_wall_ns);
  ASSERT_EQ(facts.loaders.size(), 1u);
  EXPECT_EQ(facts.loaders[0].batch, 8);
  EXPECT_EQ(facts.loaders[0].workers, 0);
  EXPECT_EQ(facts.loaders[0].samples, 4096);
  EXPECT_TRUE(facts.loaders[0].shuffles);
  EXPECT_EQ(facts.loaders[0].dataset, "Points");
  EXPECT_TRUE(facts.notes.empty()) << facts.notes.front();

  // The steps of both files are the same ones, at the same times.
  EXPECT_EQ(numbers_of(facts.trace_path, "ProfilerStep"), range(7, 8));
  EXPECT_EQ(numbers_of(facts.stacks_path, "ProfilerStep"), range(17, 2));
  EXPECT_EQ(numbers_of(facts.spans_path, "Step"), range(2, 59));
  const doctor::Trace trace = doctor::read_trace(facts.trace_path);
  const doctor::Trace spans = doctor::read_trace(facts.spans_path);
  EXPECT_FALSE(spans.is_truncated);
  EXPECT_TRUE(spans.warnings.empty());
  const auto stretch = [](const doctor::Trace& of, std::string_view name) {
    for (size_t row = 0; row < of.size(); ++row)
      if (of.name_text(row) == name)
        return std::pair(of.base_ns + of.start_ns[row], of.base_ns + of.end_ns(row));
    return std::pair<int64_t, int64_t>();
  };
  const auto [begin, end] = stretch(trace, "ProfilerStep#9");
  const auto [from, to] = stretch(spans, "Step#9");
  EXPECT_NEAR(static_cast<double>(begin), static_cast<double>(from), 1e6);
  EXPECT_NEAR(static_cast<double>(end), static_cast<double>(to), 1e6);

  const std::map<std::string, int> names = names_in(facts.spans_path);
  EXPECT_EQ(names.at("DataLoader.__next__"), 60);
  EXPECT_EQ(names.at("DataLoader.__init__"), 1);
  EXPECT_EQ(names.at("DataLoader.__iter__"), 1);
  EXPECT_EQ(names.at("torch.save"), 12);
  EXPECT_EQ(names.at("ridge profiling"), 2);
}

/// Class and reason of other workers: as a probing run finds them by reading samples again, and as
/// they are seen while the program makes its batches.
void expect_alike(const ProcessFacts& facts,
                  SemanticClass workers_class,
                  const std::string& reason) {
  EXPECT_EQ(facts.batches.workers_class, workers_class);
  EXPECT_EQ(facts.batches.reason, reason);
  EXPECT_GT(facts.batches.seconds, 0);
  EXPECT_GE(facts.batches.bytes, 8 * 16 * 4);
  EXPECT_TRUE(facts.is_probed);
  const auto offer = std::ranges::find(facts.offers, "loader.workers", &KnobOffer::key);
  ASSERT_NE(offer, facts.offers.end());
  if (!offer->refusal.empty()) return;  // one CPU
  EXPECT_EQ(offer->semantic_class, workers_class);
  EXPECT_NE(offer->text.find(reason), std::string::npos) << offer->text;
}

ShimOptions probed_and_watched() {
  return {.profiled_steps = 0, .probes = true, .watches_batches = true};
}

TEST_F(ShimProgram, WatchAndProbeSayTheSameOfWorkers) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  expect_alike(watch(program("shim_train.py") + " plain 30", probed_and_watched()),
               SemanticClass::kBitIdentical,
               "");
  expect_alike(watch(program("shim_train.py") + " draws 30", probed_and_watched()),
               SemanticClass::kTrajectory,
               "samples draw random numbers (torch)");
  expect_alike(watch(program("shim_train.py") + " draws-own 30", probed_and_watched()),
               SemanticClass::kTrajectory,
               "samples draw random numbers (a generator of its own)");
}

TEST_F(ShimProgram, WorkersSayWhatTheirSamplesDraw) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ProcessFacts facts = watch(program("shim_train.py") + " draws-workers 60",
                                   {.profiled_steps = 0, .watches_batches = true});
  EXPECT_EQ(facts.batches.workers_class, SemanticClass::kTrajectory);
  EXPECT_EQ(facts.batches.reason, "samples draw random numbers (torch)");
}

// No range of the recording cuts through another, as it would within torch's own range of a step.
TEST_F(ShimProgram, StepsAreNested) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ProcessFacts facts = watch_alone(program("shim_train.py") + " plain 40");
  ASSERT_FALSE(facts.trace_path.empty());
  const doctor::Trace trace = doctor::read_trace(facts.trace_path);
  for (size_t step = 0; step < trace.size(); ++step) {
    if (!trace.name_text(step).starts_with("ProfilerStep#")) continue;
    for (size_t row = 0; row < trace.size(); ++row) {
      if (trace.lane[row] != trace.lane[step] || row == step) continue;
      const bool is_apart =
          trace.end_ns(row) <= trace.start_ns[step] || trace.start_ns[row] >= trace.end_ns(step);
      const bool is_within =
          trace.start_ns[row] >= trace.start_ns[step] && trace.end_ns(row) <= trace.end_ns(step);
      const bool is_around =
          trace.start_ns[row] <= trace.start_ns[step] && trace.end_ns(row) >= trace.end_ns(step);
      EXPECT_TRUE(is_apart || is_within || is_around) << trace.name_text(row);
    }
  }
}

TEST_F(ShimProgram, LoaderWorkersAreNoProcessesOfTheirOwn) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ProcessFacts facts = watch(program("shim_train.py") + " workers 40");
  EXPECT_EQ(facts.profile, "written");
  ASSERT_EQ(facts.loaders.size(), 1u);
  EXPECT_EQ(facts.loaders[0].workers, 2);
  EXPECT_EQ(facts.loaders[0].prefetch, 2);
  EXPECT_EQ(names_in(facts.spans_path).at("DataLoader.__next__ (workers)"), 40);
  EXPECT_EQ(facts.notes,
            (std::vector<std::string>{"2 processes were forked; they are not looked into"}));
}

TEST_F(ShimProgram, ARoundOfTwoOptimizersIsAStep) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  EXPECT_EQ(watch_alone(program("shim_train.py") + " gan 40").steps, 40);
}

TEST_F(ShimProgram, AccumulatedBatchesAreOneStep) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ProcessFacts facts = watch_alone(program("shim_train.py") + " accumulate 40");
  EXPECT_EQ(facts.steps, 40);
  EXPECT_EQ(names_in(facts.spans_path).at("DataLoader.__next__"), 160);
}

TEST_F(ShimProgram, ExitsAsItWould) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  ProcessFacts facts = watch(program("shim_train.py") + " exit 60");
  EXPECT_EQ(ended_.code, 7);
  EXPECT_EQ(facts.profile, "written");
  facts = watch_alone(program("shim_train.py") + " gone 60");
  EXPECT_EQ(ended_.code, 9);
  EXPECT_EQ(numbers_of(facts.trace_path, "ProfilerStep"), range(7, 8));
}

// In the middle of the recording: what there is of it is written.
TEST_F(ShimProgram, ACrashKeepsItsCodeAndItsTrace) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  ShimOptions late = kSoon;
  late.warm_steps = 15;
  const ProcessFacts facts = watch(program("shim_train.py") + " crash 60", late);
  EXPECT_EQ(ended_.code, 1);
  EXPECT_NE(ended_.err.find("ValueError: broken on purpose"), std::string::npos);
  EXPECT_EQ(facts.steps, 21);
  EXPECT_EQ(facts.profile, "written");
  EXPECT_EQ(numbers_of(facts.trace_path, "ProfilerStep"), range(17, 6));
  EXPECT_EQ(facts.notes.size(), 1u);
}

TEST_F(ShimProgram, StepsAsideForItsOwnProfiler) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  ProcessFacts facts = watch_alone(program("shim_train.py") + " early-profiler 60");
  EXPECT_EQ(facts.profile, "failed: the program uses torch.profiler itself");
  EXPECT_TRUE(facts.trace_path.empty());
  EXPECT_EQ(facts.steps, 60);
  // It begins while ours records: what ours has by then is kept.
  facts = watch(program("shim_train.py") + " late-profiler 60");
  EXPECT_EQ(ended_.code, 0) << ended_.err;
  EXPECT_NE(ended_.out.find("has addmm: True"), std::string::npos);
  EXPECT_EQ(facts.profile, "written");
}

TEST_F(ShimProgram, AForkedChildIsLeftAlone) {
  const ProcessFacts facts = watch(program("shim_train.py") + " fork 60");
  EXPECT_NE(ended_.out.find("child 3"), std::string::npos);
  EXPECT_EQ(facts.steps, 60);
  EXPECT_EQ(facts.notes, std::vector<std::string>{"1 process was forked; it is not looked into"});
  EXPECT_EQ(facts.profile, "written");
}

TEST_F(ShimProgram, ACompiledOptimizerIsNotBroken) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const ProcessFacts facts = watch(program("shim_train.py") + " compiled-step 40");
  EXPECT_EQ(ended_.code, 0) << ended_.err;
  EXPECT_TRUE(facts.step_source.empty() || facts.step_source == "optimizer");
}

TEST_F(ShimProgram, WithoutAnOptimizerCallsOfTheModelAreSteps) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  // The compiler is slow to start: two of its three ways only in full tests.
  std::vector<std::string> ways = {"plain", "later"};
  if (test::cases(1) > 1) ways.insert(ways.end(), {"compile", "method"});
  for (const std::string& how : ways) {
    const ProcessFacts facts = watch(program("shim_infer.py") + " " + how + " 120");
    EXPECT_EQ(ended_.code, 0) << how << ended_.err;
    EXPECT_EQ(facts.step_source, "module") << how;
    EXPECT_GT(facts.steps, 30) << how;
    EXPECT_EQ(facts.profile, "written") << how;
    EXPECT_EQ(numbers_of(facts.trace_path, "ProfilerStep").size(), 8u) << how;
  }
}

TEST_F(ShimProgram, NothingIsRecordedWhereNothingIsAsked) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  ShimOptions none = kSoon;
  none.profiled_steps = 0;
  const ProcessFacts facts = watch_alone(program("shim_train.py") + " plain 30", none);
  EXPECT_EQ(facts.profile, "off");
  EXPECT_TRUE(facts.trace_path.empty());
  EXPECT_EQ(facts.steps, 30);
  // Too short for what is asked by default.
  EXPECT_EQ(watch_alone(program("shim_train.py") + " plain 30", {}).profile,
            "failed: the program ended before its steps were steady");
}

TEST_F(ShimProgram, SpansAreKeptOnlyWhereTheyAreRead) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  ShimOptions none = kSoon;
  none.profiled_steps = 0;
  none.keeps_spans = false;
  const ProcessFacts facts = watch_alone(program("shim_train.py") + " plain 30", none);
  EXPECT_EQ(facts.steps, 30);
  EXPECT_EQ(facts.spans_path, "");
}

TEST_F(ShimProgram, RefusesToRecordWhereThereIsNoRoom) {
  const ProcessFacts facts = watch_alone(
      "-c 'import os, runpy, sys\n"
      "os.statvfs = lambda at: os.statvfs_result([512, 512, 9, 9, 40960] + [0] * 5)\n"
      "sys.argv = [\"shim_train.py\", \"plain\", \"30\"]\n"
      "runpy.run_path(" +
      quoted(fs::absolute("tests/attach/programs/shim_train.py").string()) +
      ", run_name=\"__main__\")'");
  EXPECT_EQ(ended_.code, 0) << ended_.err;
  EXPECT_TRUE(facts.profile.starts_with("failed: only 20 MiB are free in '")) << facts.profile;
  EXPECT_TRUE(facts.trace_path.empty());
  EXPECT_EQ(facts.steps, 30);
}

// A number is used again where a program starts itself anew, and in containers with few of them.
TEST_F(ShimProgram, WhatAnEarlierProcessOfTheNumberLeftIsNotItsOwn) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const std::string train = quoted(fs::absolute("tests/attach/programs/shim_train.py").string());
  const ProcessFacts facts = watch_alone(
      "-c 'import os, runpy, sys\n"
      "sys.argv = [\"shim_train.py\", \"plain\", \"40\"]\n"
      "runpy.run_path(" +
      train +
      ", run_name=\"__main__\")\n"
      "shim = os.environ[\"PYTHONPATH\"]\n"
      "kept = \"trace_%d.json\" % os.getpid() in os.listdir(shim)\n"
      "print(\"recorded:\", kept, flush=True)\n"
      "os.execv(sys.executable, [sys.executable, " +
      train + ", \"plain\", \"3\"])'");
  EXPECT_NE(ended_.out.find("recorded: True"), std::string::npos) << ended_.out << ended_.err;
  EXPECT_EQ(facts.steps, 3);
  EXPECT_TRUE(facts.profile.starts_with("failed: the program ended")) << facts.profile;
  EXPECT_EQ(facts.trace_path, "");
  EXPECT_EQ(facts.stacks_path, "");
}

// Without torch, so that what it does at any place of any thread can be asked thousands of times.
TEST_F(ShimProgram, ItsPartsAlone) {
  const std::string shim = " '" + fs::absolute("ridge/attach/shim").string() + "' ";
  for (const std::string mode : {"threads", "room"}) {
    const Ended ended =
        run(program("shim_alone.py") + shim + mode, {{"PYTHONDONTWRITEBYTECODE", "1"}}, python_);
    EXPECT_EQ(ended.out, "as expected\n") << mode << ended.err;
  }
}

TEST_F(ShimProgram, WithoutTorchNothingIsWritten) {
  const ShimFolder folder(kSoon);
  const Ended ended =
      run("-c 'import importlib.util, sys; print(len(sys.path))'", folder.environment(), python_);
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(folder.was_loaded());
  EXPECT_TRUE(folder.facts().empty());
  const auto files = [&] {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
  };
  const auto before = files();
  run("-c 1", folder.environment(), python_);  // one more interpreter, but no more files
  EXPECT_EQ(files(), before);
  const ShimFolder other(kSoon);
  run("-I -c 1", other.environment(), python_);
  EXPECT_FALSE(other.was_loaded());
}

TEST_F(ShimProgram, ImportsOfTorchAreAsTheyWere) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  watch(program("shim_imports.py"));
  EXPECT_EQ(ended_.code, 0) << ended_.err;
  EXPECT_EQ(ended_.err, plain_.err);
}

TEST_F(ShimProgram, ASitecustomizeOfItsOwnRunsAsBefore) {
  const test::TempFolder own;
  ::setenv("PYTHONPATH", own.path().c_str(), 1);
  const ShimFolder folder(kSoon);
  const Environment environment = folder.environment();
  ::unsetenv("PYTHONPATH");
  const std::string words = "-c 'import sys; print(sys.modules.get(\"sitecustomize\"), sys.path)'";
  const Environment plain = {{"PYTHONPATH", own.path().string()}, {"PYTHONDONTWRITEBYTECODE", "1"}};
  for (const std::string_view text : {"print('own', __name__, __file__)",
                                      "1 / 0",
                                      "raise SystemExit(4)",
                                      "import no_such_module"}) {
    write(own / "sitecustomize.py", text);
    Environment ours = environment;
    ours.emplace_back("PYTHONDONTWRITEBYTECODE", "1");
    const Ended ended = run(words, ours, python_), before = run(words, plain, python_);
    EXPECT_EQ(ended.code, before.code) << text;
    EXPECT_EQ(ended.out, before.out) << text;
    // A fatal error prints a stack, on which we are.
    if (ended.code == 0) {
      EXPECT_EQ(ended.err, before.err) << text;
    }
  }
}

// ---- the folder ----

TEST(ShimFolder, HoldsTheFilesAndGoesAway) {
  std::string path;
  {
    const ShimFolder folder(ShimOptions{.profiled_steps = 3, .warm_seconds = 0.25});
    path = folder.path();
    struct stat status;
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    for (const auto& entry : fs::directory_iterator("ridge/attach/shim")) {
      if (entry.is_regular_file()) {
        EXPECT_EQ(text_of(fs::path(path) / entry.path().filename()), text_of(entry.path()));
      }
    }
    EXPECT_EQ(shim_file("sitecustomize.py"), text_of("ridge/attach/shim/sitecustomize.py"));
    EXPECT_FALSE(folder.was_loaded());
    EXPECT_TRUE(folder.facts().empty());
    const Environment list = folder.environment();
    std::map<std::string, std::string> all(list.begin(), list.end());
    EXPECT_TRUE(all["PYTHONPATH"].starts_with(path));
    EXPECT_EQ(all["RIDGE_SHIM_STEPS"], "3");
    EXPECT_EQ(all["RIDGE_SHIM_WARM_SECONDS"], "0.25");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(ShimFolder, RemovesWhatKilledProcessesLeft) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  ::waitpid(child, nullptr, 0);
  const ShimFolder alive(kSoon);
  const fs::path parent = fs::path(alive.path()).parent_path();
  const fs::path dead = parent / ("ridge-shim-" + std::to_string(child) + "-abcdef");
  const fs::path other = parent / ("ridge-shim-" + std::to_string(::getpid()) + "-abcdef");
  for (const fs::path& path : {dead, other}) fs::create_directory(path);
  write(dead / "facts_1.json", "{}");
  const ShimFolder second(kSoon);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(alive.path()));
  fs::remove_all(other);
}

TEST(ShimFacts, BrokenOnesAreLeftOut) {
  const ShimFolder folder(kSoon);
  const fs::path path = folder.path();
  write(path / "facts_30.json",
        R"({"pid": 5, "steps": 12, "step_seconds": 1, "notes": ["a", 3], "batches": []})");
  write(path / "facts_4.json",
        R"({"pid": "x", "steps": -3, "steps_seconds": "1", "step_seconds": [], "rank": 2.5,
            "batches": {"workers_class": 9, "reason": 7, "seconds": -1, "bytes": 12},
            "loaders": [{"batch": 8, "workers": "2"}, 5, null], "profile": ["written"],
            "has_cuda": 1, "torch": "2.15", "notes": {}})");
  for (const auto& [name, text] : std::map<std::string, std::string>{
           {"facts_5.json", "{\"steps\": 1"},
           {"facts_6.json", "[]"},
           {"facts_31.json", R"({"steps": 9223372036854775807, "last_step_wall_ns": 1e30})"},
           {"facts_16.json", "{\"step_seconds\": NaN}"},
           {"facts_7.json", std::string(100, '[')},
           {"facts_8.json", "{\"a\": \"" + std::string(1 << 20, 'a') + "\"}"},
           {"facts_9.json", "\xff\xfe{}"},
           {"facts_10.json", ""},
           {"facts_-1.json", "{}"},
           {"facts_0.json", "{}"},
           {"facts_1x.json", "{}"},
           {"facts_99999999999.json", "{}"},
           {"facts_.json", "{}"},
           {"facts_11.json.part", "{}"}})
    write(path / name, text);
  ASSERT_EQ(::mkfifo((path / "facts_12.json").c_str(), 0600), 0);
  fs::create_symlink("facts_30.json", path / "facts_13.json");
  fs::create_directory(path / "facts_14.json");
  write(path / "trace_30.json", "");
  ASSERT_EQ(::mkfifo((path / "spans_30.json").c_str(), 0600), 0);

  const std::vector<ProcessFacts> all = folder.facts();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].steps, 0);  // sums of it would go over
  EXPECT_EQ(all[2].last_step_wall_ns, 0);
  EXPECT_EQ(all[0].pid, 4);
  EXPECT_EQ(all[0].steps, 0);
  EXPECT_EQ(all[0].step_seconds, 0);
  EXPECT_EQ(all[0].rank, -1);
  EXPECT_EQ(all[0].torch, "2.15");
  EXPECT_EQ(all[0].profile, "");
  EXPECT_FALSE(all[0].has_cuda);
  ASSERT_EQ(all[0].loaders.size(), 1u);
  EXPECT_EQ(all[0].loaders[0].batch, 8);
  EXPECT_EQ(all[0].loaders[0].workers, 0);
  EXPECT_EQ(all[0].batches.workers_class, SemanticClass::kTrajectory);
  EXPECT_EQ(all[0].batches.reason, "");
  EXPECT_EQ(all[0].batches.seconds, 0);
  EXPECT_EQ(all[0].batches.bytes, 12);
  EXPECT_EQ(all[1].batches.workers_class, std::nullopt);
  EXPECT_EQ(all[1].pid, 30);
  EXPECT_EQ(all[1].steps, 12);
  EXPECT_EQ(all[1].step_seconds, 1);
  EXPECT_EQ(all[1].notes, std::vector<std::string>{"a"});
  EXPECT_EQ(all[1].trace_path, (path / "trace_30.json").string());
  EXPECT_EQ(all[1].spans_path, "");
}

TEST(ShimFacts, ManyWorkersDoNotKeepOutWhatTrains) {
  const ShimFolder folder(kSoon);
  const fs::path path = folder.path();
  // The order of a folder is any: those that train are made among the others.
  for (int pid = 1; pid <= 1500; ++pid)
    write(path / ("facts_" + std::to_string(pid) + ".json"),
          pid % 100 == 0 ? "{\"steps\": 2}" : "{}");
  const std::vector<ProcessFacts> all = folder.facts();
  EXPECT_EQ(all.size(), 1024u + 15u);
  EXPECT_EQ(std::ranges::count(all, 2, &ProcessFacts::steps), 15);
  EXPECT_EQ(all.front().notes,
            std::vector<std::string>{"461 more processes imported torch and are not looked at"});
}

}  // namespace
}  // namespace ridge::attach
