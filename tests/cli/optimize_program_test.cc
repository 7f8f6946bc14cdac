// `ridge optimize -- CMD` and `ridge ledger replay FILE -- CMD`, as far as they need no torch: what
// they refuse, and what they leave.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/ridge_process.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::Ended;
using test::ridge;
using test::TempFolder;

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nhas no: " << part;
}

/// Names in the folder besides the streams of the test's own.
std::vector<std::string> left_in(const TempFolder& folder) {
  std::vector<std::string> names = folder.names();
  std::erase(names, ".out");
  std::erase(names, ".err");
  return names;
}

void expect_error(const Ended& ended, const std::string& text) {
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_EQ(ended.out, "");
  expect_in(ended.err, "error: ");
  expect_in(ended.err, text);
}

TEST(OptimizeProgram, AsksBeforeItRunsACommandAgain) {
  const TempFolder folder;
  const Ended ended = ridge(folder.path(), {"optimize", "--", "touch", "ran"});
  expect_error(ended, "--sandbox");
  expect_in(ended.err, "{out}");
  expect_in(ended.err, "--rerun");
  EXPECT_EQ(left_in(folder), std::vector<std::string>());
}

TEST(OptimizeProgram, OptionsOfTheOtherFormAreRefused) {
  const TempFolder folder;
  std::ofstream(folder / "a.toml") << "";
  expect_error(ridge(folder.path(), {"optimize"}), "no configuration is given, nor a command");
  expect_error(ridge(folder.path(), {"optimize", "--rerun", "a.toml"}), "--rerun");
  expect_error(ridge(folder.path(), {"optimize", "--rerun", "a.toml", "--", "true"}),
               "for training in Ridge");
  expect_error(ridge(folder.path(), {"optimize", "--memory", "1GiB", "--rerun", "--", "true"}),
               "--memory");
  expect_error(ridge(folder.path(), {"optimize", "--rerun", "--budget", "1", "--", "true"}),
               "--budget is 1 s");
  expect_error(ridge(folder.path(), {"optimize", "--rerun", "--"}), "no command stands behind");
  expect_error(ridge(folder.path(), {"optimize", "--only", "threads", "a.toml"}), "--only");
  expect_error(ridge(folder.path(), {"optimize", "--confirm", "9", "a.toml"}), "--confirm");
  expect_error(ridge(folder.path(), {"optimize", "--rerun", "--only", "thread", "--", "true"}),
               "--only names 'thread', which is no technique; there are loader.cache, ");
}

TEST(OptimizeProgram, ACommandThatCannotBeTunedIsSaid) {
  const TempFolder folder, out;
  const auto optimize = [&](const std::vector<std::string>& command) {
    std::vector<std::string> words = {
        "optimize", "--rerun", "--budget", "20", "--out", out.path().string(), "--"};
    words.insert(words.end(), command.begin(), command.end());
    return ridge(folder.path(), words);
  };
  expect_error(optimize({"no-such-program"}), "cannot start 'no-such-program'");
  expect_error(optimize({"sh", "-c", "echo boo >&2; exit 3"}), "exit code 3; its last lines:\nboo");
  expect_error(optimize({"sh", "-c", "exit 0"}), "cannot be tuned: no Python that it ran");
  EXPECT_EQ(left_in(folder), std::vector<std::string>());
}

TEST(OptimizeProgram, ResultsLieOutsideOfTheProgramsFolder) {
  const TempFolder folder, state;
  const Ended ended = ridge(folder.path(),
                            {"optimize", "--rerun", "--budget", "20", "--", "sh", "-c", "exit 0"},
                            "export XDG_STATE_HOME=" + state.path().string() + ";");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(left_in(folder), std::vector<std::string>());
  EXPECT_EQ(state.names(), std::vector<std::string>{"ridge"});
}

TEST(OptimizeProgram, ALedgerOfACommandIsReplayedWithIt) {
  const TempFolder folder;
  std::ofstream(folder / "ledger.jsonl")
      << R"({"schema":"ridge.ledger/1","target":"train","config":"python train.py",)"
      << R"("config_hash":"00","machine":"m","version":"0","started":"2026-11-22T00:00:00Z",)"
      << R"("budget_s":300,"seed":0})" << "\n";
  const Ended ended = ridge(folder.path(), {"ledger", "replay", "ledger.jsonl", "1"});
  expect_error(ended, "the ledger has no trial 1");
}

}  // namespace
}  // namespace ridge
