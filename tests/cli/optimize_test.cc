// `ridge optimize` as users run it: what it finds, what it keeps, and what it leaves behind.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ridge/tune/engine/techniques.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Ended;
using test::ridge;
using test::RidgeProcess;
using test::TempFolder;
using test::text_of;

class Optimize : public testing::Test {
 protected:
  /// Seconds of a search whose length decides nothing that the test checks.
  static constexpr int kBudget = 6;

  Optimize() { write(""); }
  /// A small model whose kernels are run block by block: machine code is faster by far.
  void write(const std::string& more) {
    std::ofstream(folder_ / "run.toml")
        << "cpu.jit = false\n[model]\nkind = 'mlp'\nhidden = [512]\noutputs = 3\n[data]\n"
           "kind = 'random'\nshape = [8]\nsamples = 4096\nclasses = 3\n[loader]\nworkers = 0\n"
           "[train]\nbatch = 256\nsteps = 1000\nout = 'run'\n"
        << more;
  }
  Ended optimize(std::vector<std::string> words, const std::string& shell = {}) {
    words.insert(words.begin(), {"optimize", "run.toml", "--out", "found"});
    return ridge(folder_.path(), words, shell);
  }
  /// Whether a search came to its own end: on a busy machine the budget may be over before it
  /// began.
  static bool is_whole(const std::string& out) {
    return out.find("ended early") == std::string::npos;
  }
  /// Runs `attempt` with budgets of twice the seconds each, until it is true.
  template <typename Attempt>
  static void with_enough(int seconds, Attempt attempt) {
    for (; !attempt(seconds) && seconds <= 50; seconds *= 2) continue;
  }
  json lines_of_ledger(size_t line) {
    std::ifstream file(folder_ / "found/ledger.jsonl");
    std::string text;
    for (size_t i = 0; i <= line; ++i) std::getline(file, text);
    return json::parse(text);
  }

  TempFolder folder_;
};

// A timing decides nothing here: whatever was found has to be reported in the same way everywhere.
TEST_F(Optimize, TellsTheSameInJsonLedgerRecipeAndReport) {
  const std::string before = text_of(folder_ / "run.toml");
  int budget = 0;
  Ended ended;
  with_enough(test::is_full_scale() ? 20 : kBudget, [&](int seconds) {
    // The recipe of an earlier run.
    fs::remove_all(folder_ / "found");
    fs::create_directories(folder_ / "found");
    std::ofstream(folder_ / "found/recipe.toml") << "[train]\nmicro = 3\n";
    ended = optimize({"--budget", std::to_string(budget = seconds), "--json"});
    return is_whole(ended.out);
  });
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json found = json::parse(ended.out);
  EXPECT_EQ(found.at("schema"), "ridge.optimize/1");
  EXPECT_EQ(found.at("budget_s"), budget);
  EXPECT_GT(found.at("baseline").at("step_ms"), 0.0);
  const json& claim = found.at("claim");
  EXPECT_LE(claim.at("lo"), claim.at("speedup"));
  EXPECT_LE(claim.at("speedup"), claim.at("hi"));
  const bool gained = !found.at("recipe").get<std::string>().empty();
  EXPECT_EQ(gained, fs::exists(folder_ / "found/recipe.toml"));
  EXPECT_EQ(!gained, fs::exists(folder_ / "found/recipe.previous.toml"));
  if (gained) {
    EXPECT_GT(claim.at("lo"), 1.0);
    EXPECT_EQ(text_of(folder_ / "found/recipe.toml"), found.at("recipe").get<std::string>());
  } else {
    EXPECT_EQ(claim.at("speedup"), 1.0);
  }
  // Every technique has a verdict and a reason.
  std::set<std::string> techniques;
  for (const json& trial : found.at("trials")) {
    techniques.insert(trial.at("technique"));
    EXPECT_FALSE(trial.at("reason").get<std::string>().empty()) << trial;
    EXPECT_FALSE(trial.at("verdict").get<std::string>().empty()) << trial;
    if (trial.at("technique") == "recompute") {
      EXPECT_EQ(trial.at("reason"), "no memory limit");
    }
  }
  for (const Technique& technique : ridge::techniques())
    EXPECT_TRUE(techniques.contains(std::string(technique.name))) << technique.name;
  EXPECT_NE(text_of(folder_ / "found/report.html").find("</html>"), std::string::npos);
  // The user's file and folder of results are as they were.
  EXPECT_EQ(text_of(folder_ / "run.toml"), before);
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  // The ledger's data prove its verdicts.
  const Ended shown = ridge(folder_.path(), {"ledger", "show", "found/ledger.jsonl", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  const size_t trials = json::parse(shown.out).at("trials").size();
  for (size_t i = 1; i <= trials; ++i)
    EXPECT_EQ(
        ridge(folder_.path(), {"ledger", "explain", "found/ledger.jsonl", std::to_string(i)}).code,
        0);
}

TEST_F(Optimize, ADryRunTellsWhatItWouldTryAndWritesNothing) {
  const std::vector<std::string> before = folder_.names();
  Ended ended;
  with_enough(12, [&](int seconds) {
    ended = optimize({"--budget", std::to_string(seconds), "--dry-run", "--all"});
    return ended.out.find("  jit  ") != std::string::npos;
  });
  ASSERT_EQ(ended.code, 0) << ended.err;
  for (const char* part : {"nothing was tried",
                           "baseline: ",
                           "ceilings: ",
                           "  jit  ",
                           " cannot help here:\n",
                           "  no memory limit\n"})
    EXPECT_NE(ended.out.find(part), std::string::npos) << part << "\n" << ended.out;
  EXPECT_EQ(ended.err.find("technique "), std::string::npos) << ended.err;
  for (const std::string& name : folder_.names())
    EXPECT_TRUE(name.starts_with(".") ||  // what the test itself writes
                std::find(before.begin(), before.end(), name) != before.end())
        << name;
  Ended again;
  with_enough(kBudget, [&](int seconds) {
    again = optimize({"--budget", std::to_string(seconds), "--dry-run", "--json"});
    return is_whole(again.out);
  });
  const json found = json::parse(again.out);
  EXPECT_EQ(found.at("dry_run"), true);
  EXPECT_EQ(found.at("recipe"), "");
  EXPECT_GE(found.at("parts").size(), 2u);
  for (const json& trial : found.at("trials")) EXPECT_TRUE(trial.at("measured").is_null()) << trial;
}

/// All that a search of so many seconds writes to a terminal.
std::string seen_on_terminal(const fs::path& folder, int seconds) {
  int terminal = -1;
  const pid_t process = forkpty(&terminal, nullptr, nullptr, nullptr);
  EXPECT_GE(process, 0);
  if (process == 0) {
    if (chdir(folder.c_str()) == 0)
      execl(RIDGE_PROGRAM,
            RIDGE_PROGRAM,
            "optimize",
            "run.toml",
            "--out",
            "found",
            "--budget",
            std::to_string(seconds).c_str(),
            static_cast<char*>(nullptr));
    _exit(127);
  }
  std::string seen;
  char piece[4096];
  for (ssize_t count; (count = read(terminal, piece, sizeof piece)) > 0;)
    seen.append(piece, static_cast<size_t>(count));
  int status = 0;
  waitpid(process, &status, 0);
  close(terminal);
  EXPECT_EQ(status, 0) << seen;
  return seen;
}

// If both streams go to one terminal, the table stands there once, if there was time for a trial.
TEST_F(Optimize, ATerminalSeesTheTrialsOnce) {
  std::string seen;
  with_enough(kBudget, [&](int seconds) {
    return is_whole(seen = seen_on_terminal(folder_.path(), seconds));
  });
  const size_t heading = seen.find("technique ");
  if (heading != std::string::npos) {
    EXPECT_EQ(seen.find("technique ", heading + 1), std::string::npos) << seen;
  }
  const size_t folded = seen.find("--all says why");
  ASSERT_NE(folded, std::string::npos) << seen;
  EXPECT_EQ(seen.find("--all says why", folded + 1), std::string::npos) << seen;
  EXPECT_EQ(seen.find(" cannot help here:"), std::string::npos) << seen;  // only with --all
  EXPECT_NE(seen.find("report"), std::string::npos) << seen;
}

TEST_F(Optimize, TheRecipeTrains) {
  std::ofstream(folder_ / "recipe.toml") << "cpu.jit = true\n[loader]\nworkers = 1\n";
  const Ended plain = ridge(folder_.path(), {"train", "run.toml", "--steps", "5", "--json"});
  const Ended fast = ridge(
      folder_.path(),
      {"train", "run.toml", "--recipe", "recipe.toml", "--steps", "5", "--json", "--out", "other"});
  ASSERT_EQ(plain.code, 0) << plain.err;
  ASSERT_EQ(fast.code, 0) << fast.err;
  EXPECT_EQ(json::parse(plain.out).at("state_hash"), json::parse(fast.out).at("state_hash"));
}

// Whatever the clock says, a change of the trajectory is timed only where the user allows it.
TEST_F(Optimize, OtherUpdatesAreTriedOnlyWhereTheyAreAllowed) {
  const std::string asks = "changes the trajectory; allow it by --allow-trajectory";
  for (const bool allowed : {false, true}) {
    std::vector<std::string> words = {
        "--budget", std::to_string(kBudget), "--json", "--set", "data.samples=65536"};
    if (allowed) words.emplace_back("--allow-trajectory");
    const Ended ended = optimize(words);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const json found = json::parse(ended.out);
    bool is_there = false;
    for (const json& trial : found.at("trials")) {
      if (trial.at("technique") != "batch") continue;
      is_there = true;
      const std::string reason = trial.at("reason");
      if (allowed) {
        EXPECT_NE(reason, asks);
        continue;
      }
      EXPECT_EQ(trial.at("verdict"), "not_tried") << trial;
      if (reason != asks) continue;  // the time was over
      EXPECT_EQ(trial.at("class"), "trajectory");
      EXPECT_GE(trial.at("ceiling"), 1.0);
      EXPECT_TRUE(trial.at("change").get<std::string>().starts_with("train.batch 256 -> 512"));
    }
    EXPECT_TRUE(is_there);
  }
}

TEST_F(Optimize, ARecipeOfALargerBatchTrains) {
  std::ofstream(folder_ / "recipe.toml")
      << "[optimizer]\nlr = 0.00141421\nbeta1 = 0.81\n[train]\nbatch = 512\nsteps = 5\n";
  const Ended ended =
      ridge(folder_.path(), {"train", "run.toml", "--recipe", "recipe.toml", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json trained = json::parse(ended.out);
  EXPECT_EQ(trained.at("steps"), 5);
  EXPECT_DOUBLE_EQ(trained.at("epochs"), 5 * 512 / 4096.0);
}

TEST_F(Optimize, WhatTheUserSetsIsNotChanged) {
  const Ended ended = optimize({"--budget",
                                std::to_string(kBudget),
                                "--json",
                                "--set",
                                "cpu.jit=false",
                                "--set",
                                "loader.workers=0"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json found = json::parse(ended.out);
  for (const json& trial : found.at("trials")) {
    if (trial.at("technique") != "jit" && trial.at("technique") != "loader.workers") continue;
    EXPECT_NE(trial.at("verdict"), "kept") << trial;
  }
}

TEST_F(Optimize, ASignalEndsItSoonAndLeavesNothingBehind) {
  const std::string before = text_of(folder_ / "run.toml");
  RidgeProcess process(folder_.path(), {"optimize", "run.toml", "--out", "found"});
  ASSERT_TRUE(process.says("baseline:"));
  process.send(SIGINT);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.code, 130) << ended.err;
  EXPECT_EQ(text_of(folder_ / "run.toml"), before);
  EXPECT_FALSE(fs::exists(folder_ / "found/recipe.toml"));
  EXPECT_NE(ended.out.find("nothing was gained"), std::string::npos) << ended.out;
}

/// Processor time of the programs that have ended: if others keep the processors busy it is less,
/// never more.
double cpu_seconds_of_children() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST_F(Optimize, KeepsWithinItsBudget) {
  const double before = cpu_seconds_of_children();
  const Ended ended = optimize({"--budget", "6", "--json", "--set", "threads=1"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_LT(cpu_seconds_of_children() - before, 12);
}

TEST_F(Optimize, AMemoryLimitIsKeptOrRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  Ended ended;
  with_enough(10, [&](int seconds) {
    ended = optimize({"--budget", std::to_string(seconds), "--json", "--memory", "4MiB"});
    return is_whole(ended.out);
  });
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json found = json::parse(ended.out);
  EXPECT_NE(found.at("recipe").get<std::string>().find("memory_limit"), std::string::npos);
  EXPECT_LE(found.at("result").at("planned_bytes"), 4 << 20);
  EXPECT_LE(found.at("result").at("measured_bytes"), 4 << 20);
  // The limit's effect is reported, and no micro-batches are proposed that it had to make.
  for (const json& trial : found.at("trials")) {
    if (trial.at("technique") != "recompute") continue;
    EXPECT_EQ(trial.at("verdict"), "kept") << trial;
    EXPECT_NE(trial.at("reason").get<std::string>().find("peak "), std::string::npos) << trial;
  }
  const Ended small = optimize({"--memory", "3MiB", "--set", "model.hidden=2048,2048"});
  EXPECT_EQ(small.code, 2);
  EXPECT_NE(small.err.find("less than the least plan"), std::string::npos) << small.err;
}

TEST_F(Optimize, BadInputIsOneError) {
  const auto error = [&](std::vector<std::string> words) {
    const Ended ended = optimize(words);
    EXPECT_EQ(ended.code, 2) << ended.err;
    return ended.err;
  };
  EXPECT_NE(error({"--memory", "much"}).find("no amount of memory"), std::string::npos);
  EXPECT_NE(error({"--budget", "0"}).find("--budget"), std::string::npos);
  EXPECT_NE(error({"--set", "train.bacth=3"}).find("train.batch"), std::string::npos);
  const Ended file = ridge(folder_.path(), {"optimize", "run.toml", "--out", "run.toml"});
  EXPECT_EQ(file.code, 2);
  EXPECT_NE(file.err.find("'run.toml'"), std::string::npos) << file.err;
  write("lr = [");
  EXPECT_NE(error({}).find("run.toml:"), std::string::npos);
}

TEST_F(Optimize, ARunThatFailsIsToldAsItsOwn) {
  const Ended ended = optimize({"--set", "optimizer.lr=1000", "--set", "optimizer.kind=sgd"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("cannot be run as it is"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace ridge
