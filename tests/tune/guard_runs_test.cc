// Runs of the guard, forked and not: a program whose package torch is a stand-in
// (tests/attach/programs/forked_steps.py), in the hands of the real shim and supervisor.
#include "ridge/tune/pytorch/guard_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "ridge/base/clock.h"
#include "tests/attach/program_run.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

using attach::RunRecord;
using Runs = ForeignReference::Runs;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

/// A variable of the environment, for one test.
class Variable {
 public:
  Variable(const std::string& name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name.c_str())) before_ = before;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_)
      ::setenv(name_.c_str(), before_->c_str(), 1);
    else
      ::unsetenv(name_.c_str());
  }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

ForeignRecipe with(const std::string& key, const std::string& value) {
  ForeignRecipe recipe;
  recipe.set(key, value);
  return recipe;
}

class GuardRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
    fs::create_directory(place_ / "work");
    fs::current_path(place_ / "work");
    package("torch",
            "import os\nPID = os.getpid()\ndef save(): pass\n"
            "class serialization: pass\n"
            "from . import optim\n");
    package("torch/optim", "from . import optimizer\n");
    module("torch/optim/optimizer.py",
           "class Optimizer:\n  @staticmethod\n  def profile_hook_step(func): return func\n");
    package("behind", "from torch import save\n");
  }
  void TearDown() override {
    runs_.reset();
    fs::current_path(before_);
  }

  fs::path packages() const { return place_ / "site-packages"; }
  void module(const std::string& path, const std::string& text) {
    fs::create_directories((packages() / path).parent_path());
    std::ofstream(packages() / path) << text;
  }
  void package(const std::string& name, const std::string& text) {
    module(name + "/__init__.py", text);
  }
  std::string entry(const std::string& name) const {
    const bool is_package = name != "torch.optim.optimizer";
    std::string path = name;
    std::ranges::replace(path, '.', '/');
    return fmt::format(R"(["{}","{}/{}{}"])",
                       name,
                       packages().string(),
                       path,
                       is_package ? "/__init__.py" : ".py");
  }
  /// The notes that a probe would have made.
  ProgramImports imports(const std::string& environment = "{}",
                         const std::string& set_by_torch = "{}") const {
    return {.text = fmt::format(
                R"({{"with_torch":[{},{},{}],"later":[{}],"environment":{},"set_by_torch":{}}})",
                entry("torch"),
                entry("torch.optim"),
                entry("torch.optim.optimizer"),
                entry("behind"),
                environment,
                set_by_torch),
            .refusal = {}};
  }

  void begin(const std::string& mode, const ProgramImports& imports) {
    target_.emplace(ForeignTarget{
        .command = attach::CommandTemplate(
            {"python3", (programs_ / "forked_steps.py").string(), mode, "{out}", "{steps}", "x y"}),
        .consent = consent_,
        .supervisor = RIDGE_PROGRAM});
    runs_.emplace(*target_, 2);
    runs_->begin(imports, facts_, 16, notes_);
  }
  std::vector<RunRecord> record(const Runs& runs) {
    return runs_->record(runs, {.until_ns = now_ns() + 300'000'000'000, .usual_seconds = 60});
  }
  static Runs plain_and(Runs more) {
    Runs runs = {{}, {}};
    for (auto& run : more) runs.push_back(run);
    return runs;
  }
  /// Process of each run, and the one that forked or started its supervisor.
  std::vector<std::pair<pid_t, pid_t>> lines() const {
    std::vector<std::pair<pid_t, pid_t>> found;
    std::ifstream file("runs");
    std::string draw;
    for (pid_t own = 0, parent = 0; file >> own >> parent >> draw;) found.emplace_back(own, parent);
    return found;
  }
  std::string notes() const { return fmt::format("{}", fmt::join(notes_, "\n")); }

  const fs::path before_ = fs::current_path(), programs_ = fs::absolute("tests/attach/programs");
  test::TempFolder place_;
  Variable path_{"PYTHONPATH", packages().string()};
  attach::Consent consent_ = attach::Consent::kOut;
  std::optional<ForeignTarget> target_;
  std::optional<GuardRuns> runs_;
  const attach::ProcessFacts facts_{};
  std::vector<std::string> notes_;
};

// ---- what is forked ----

TEST_F(GuardRunsTest, ForkedRunsSeeWhatOthersSee) {
  begin("plain", imports());
  const std::vector<RunRecord> records = record(plain_and({{{}, 1, 0}, {{}, 2, 0x1p-60}}));
  EXPECT_EQ(runs_->forked(), 3) << notes();
  EXPECT_TRUE(runs_->forked_seconds());
  ASSERT_EQ(records.size(), 4u);
  ASSERT_GT(records[0].trouble.size(), 20u);
  for (const RunRecord& other : records) EXPECT_EQ(other.trouble, records[0].trouble);
  EXPECT_EQ(records[1].losses, records[0].losses);
  EXPECT_EQ(records[2].losses[0], records[0].losses[0] + 1);
  EXPECT_EQ(records[3].losses[0], records[0].losses[0] + 2);
  EXPECT_EQ(lines().size(), 4u);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_SAYS(notes(), "forked from a process that has imported the packages");
}

TEST_F(GuardRunsTest, LaterRunsAreForkedFromTheSameProcess) {
  begin("plain", imports());
  record(plain_and({}));
  const std::vector<RunRecord> records = record({{with("threads", "1"), 0, 0}, {{}, 3, 0}});
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(runs_->forked(), 3) << notes();
  std::set<pid_t> parents;
  for (const auto& [own, parent] : lines()) parents.insert(parent);
  EXPECT_EQ(parents.size(), 2u) << "that of the first, and one";
}

TEST_F(GuardRunsTest, NothingIsLeftOfTheProcessThatIsForked) {
  begin("plain", imports());
  record(plain_and({}));
  ASSERT_EQ(lines().size(), 2u);
  // This process has started the other one.
  const bool is_first = lines()[0].second != ::getpid();
  const test::Ending parent({lines()[is_first ? 0 : 1].second});
  EXPECT_FALSE(parent.all_gone());
  runs_.reset();
  EXPECT_TRUE(test::comes([&] { return parent.all_gone(); }));
}

TEST_F(GuardRunsTest, ChangesThatActBeforeTorchStartAnew) {
  begin("plain", imports());
  ForeignRecipe variable;
  variable.set_environment("MALLOC_ARENA_MAX", "2");
  record(plain_and({{variable, 0, 0}, {with("cpus", "0"), 0, 0}}));
  EXPECT_EQ(runs_->forked(), 1) << notes();
}

TEST_F(GuardRunsTest, WithoutWhatItImportsAllStartAnew) {
  begin("plain", {.text = {}, .refusal = "it steps elsewhere"});
  EXPECT_EQ(record(plain_and({{{}, 1, 0}})).size(), 3u);
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_FALSE(runs_->forked_seconds());
  EXPECT_SAYS(notes(), "it steps elsewhere");
}

TEST_F(GuardRunsTest, RunsInASandboxStartAnew) {
  consent_ = attach::Consent::kSandbox;
  begin("plain", imports());
  EXPECT_EQ(record(plain_and({{{}, 1, 0}})).size(), 3u);
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "sandbox");
  EXPECT_FALSE(fs::exists("runs")) << "it was written into the folder itself";
}

// ---- what is not ----

TEST_F(GuardRunsTest, OtherBitsEndIt) {
  begin("differs", imports());
  const std::vector<RunRecord> records = record(plain_and({{{}, 1, 0}}));
  EXPECT_EQ(records[1].losses, records[0].losses) << "it is not the one that was started anew";
  EXPECT_EQ(runs_->forked(), 1);
  EXPECT_SAYS(notes(), "did not have the bits");
  record({{{}, 0, 0}, {{}, 1, 0}});
  EXPECT_EQ(runs_->forked(), 1) << "never again";
  EXPECT_EQ(notes_.size(), 1u);
}

TEST_F(GuardRunsTest, AThreadOfAPackageKeepsItFromBeingForked) {
  package("torch",
          "import threading, time\nPID = 0\n"
          "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
          "from . import optim\ndef save(): pass\nclass serialization: pass\n");
  begin("plain", imports());
  record(plain_and({{{}, 1, 0}}));
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "starts a thread");
}

TEST_F(GuardRunsTest, WhatKeepsALaterPackageOutLeavesTorch) {
  const std::map<std::string, std::string> cases = {
      {"import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True)."
       "start()\n",
       "starts a thread"},
      {"import socket\nkept = socket.socket()\n", "holds 'socket:"},
      {"kept = open('/dev/zero')\n", "holds '/dev/zero'"},
      {"import random\nrandom.random()\n", "draws random numbers"},
      {"import os\nif os.getppid() and os.fork() == 0: os._exit(0)\n", "starts a process"},
      {"import os\nos.environ['OF_PACKAGE'] = '1'\n", "the program sets OF_PACKAGE"},
  };
  for (const auto& [text, why] : cases) {
    package("behind", text + "from torch import save\n");
    SCOPED_TRACE(why);
    notes_.clear();
    begin("plain", imports());
    record(plain_and({}));
    EXPECT_EQ(runs_->forked(), 1);
    EXPECT_SAYS(notes(), why);
    EXPECT_SAYS(notes(), "up to torch");
  }
}

TEST_F(GuardRunsTest, WhatAPackageSetsIsSetInWhatIsForked) {
  package("behind", "import os\nos.environ['OF_PACKAGE'] = '1'\nfrom torch import save\n");
  begin("plain", imports(R"({"OF_PACKAGE":"1"})"));
  record(plain_and({}));
  EXPECT_EQ(runs_->forked(), 1);
  EXPECT_EQ(notes().find("up to torch"), std::string::npos) << notes();
}

TEST_F(GuardRunsTest, WhatTheProgramSetsBeforeTorchIsMissing) {
  begin("plain", imports(R"({"OMP_NUM_THREADS":"3"})", R"({"OMP_NUM_THREADS":"3"})"));
  record(plain_and({}));
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "sets OMP_NUM_THREADS before");
}

TEST_F(GuardRunsTest, AnImportThatDoesNotEndIsNotAwaited) {
  package("torch",
          "import os, time\nPID = 0\ndef save(): pass\nclass serialization: pass\n"
          "if 'RIDGE_SHIM_PARENT' in os.environ: time.sleep(600)\nfrom . import optim\n");
  begin("plain", imports());
  const std::vector<RunRecord> records =
      runs_->record(plain_and({}), {.until_ns = now_ns() + 300'000'000'000, .usual_seconds = 0.05});
  EXPECT_EQ(records[1].steps, 16);
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "takes too long");
}

TEST_F(GuardRunsTest, AnotherModuleOfTheNameIsNotTheProgram) {
  ProgramImports other = imports();
  const size_t at = other.text.find("/torch/__init__");
  other.text.replace(at, 6, "/other");
  begin("plain", other);
  record(plain_and({}));
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "another module");
}

TEST_F(GuardRunsTest, AParentThatIsKilledCostsNoRun) {
  begin("ends-parent", imports());
  const std::vector<RunRecord> records =
      record(plain_and({{{}, 1, 0}, {{}, 2, 0}, {{}, 3, 0}, {{}, 4, 0}}));
  ASSERT_EQ(records.size(), 6u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].steps, 16) << i;
  EXPECT_EQ(record({{{}, 5, 0}})[0].steps, 16);
  EXPECT_LT(runs_->forked(), 5);
  EXPECT_SAYS(notes(), "ended");
}

TEST_F(GuardRunsTest, WhatFailsWhenItIsForkedRunsAnew) {
  begin("fails-forked", imports());
  for (const RunRecord& one : record(plain_and({{{}, 1, 0}}))) EXPECT_EQ(one.steps, 16);
  EXPECT_EQ(runs_->forked(), 0);
  EXPECT_SAYS(notes(), "failed");
}

TEST_F(GuardRunsTest, ARunThatFailsOnlyForkedEndsIt) {
  begin("fails-later", imports());
  for (const RunRecord& one : record(plain_and({{{}, 1, 0}}))) EXPECT_EQ(one.steps, 16);
  EXPECT_EQ(runs_->forked(), 1);
  EXPECT_EQ(record({{{}, 2, 0}})[0].steps, 16);
  EXPECT_EQ(runs_->forked(), 1);
  EXPECT_SAYS(notes(), "failed that was forked");
}

TEST_F(GuardRunsTest, AProgramThatFailsFails) {
  begin("fails", imports());
  EXPECT_THROW(record(plain_and({})), VariantFailed);
}

}  // namespace
}  // namespace ridge
