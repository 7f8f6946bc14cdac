// Runs that are stopped, killed, damaged or out of space, and go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/ridge_process.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::ridge;
using test::RidgeProcess;
using test::TempFolder;
using test::text_of;

class Interrupted : public testing::Test {
 protected:
  Interrupted() {
    std::ofstream(folder_ / "run.toml")
        << "[model]\nkind = 'mlp'\nhidden = [64, 64]\noutputs = 3\ndropout = 0.1\n[data]\n"
           "kind = 'random'\nshape = [16]\nsamples = 640\nclasses = 3\n[train]\nbatch = 32\n"
           "steps = 200\neval_every = 100\nout = 'run'\n[checkpoint]\nevery = 20\nkeep = 5\n";
  }

  /// `ridge train run.toml WORDS`.
  Ended train(std::vector<std::string> words, const std::string& shell = {}) {
    words.insert(words.begin(), {"train", "run.toml"});
    return ridge(folder_.path(), words, shell);
  }
  static std::string hash(const Ended& ended) {
    if (ended.code != 0) return ended.err;
    return nlohmann::json::parse(ended.out).at("state_hash").get<std::string>();
  }
  fs::path state(int step) const { return folder_ / checkpoint(step) / "state.safetensors"; }
  static std::string checkpoint(int step) {
    const std::string digits = std::to_string(step);
    return "run/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
  }
  static void damage(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file << "x";
  }

  TempFolder folder_;
};

constexpr const char* kEndless = "1000000000";

TEST_F(Interrupted, OneSignalSavesAndTwoEndAtOnce) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    RidgeProcess process(folder_.path(),
                         {"train", "run.toml", "--resume", "auto", "--json", "--steps", kEndless});
    ASSERT_TRUE(process.says("saved run/checkpoints"));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.code, code) << ended.err;
    const auto result = nlohmann::json::parse(ended.out);
    EXPECT_EQ(result.at("interrupted_by"), signal == SIGINT ? "SIGINT" : "SIGTERM");
    EXPECT_TRUE(fs::exists(folder_ / std::string(result.at("checkpoint"))));
  }
  // A step that takes seconds. However late the second signal comes, the run is not over: its
  // result does not go into a pipe that is full.
  RidgeProcess slow(
      folder_.path(),
      {"train",
       "run.toml",
       "--resume",
       "no",
       "--out",
       "slow",
       "--steps",
       "2",
       "--set",
       "model.hidden=3072,3072",
       "--set",
       "train.batch=640"},
      "mkfifo full; exec 3<>full; dd if=/dev/zero of=full bs=4096 oflag=nonblock 2>/dev/null;"
      "exec >full;");
  ASSERT_TRUE(slow.says("training mlp"));
  slow.send(SIGTERM);
  ASSERT_TRUE(slow.says("a second signal stops at once"));
  slow.send(SIGTERM);
  EXPECT_EQ(slow.wait().code, 143);
}

TEST_F(Interrupted, KilledRunGoesOnToTheSameBits) {
  const std::string whole = hash(train({"--json", "--out", "whole"}));
  {
    RidgeProcess process(folder_.path(), {"train", "run.toml", "--steps", "200"});
    ASSERT_TRUE(process.says("step 60: saved") || process.says("trained"));
    process.send(SIGKILL);
    process.wait();
  }
  EXPECT_EQ(hash(train({"--json", "--resume", "auto"})), whole);
  // One line for each step, none twice.
  std::istringstream lines(text_of(folder_ / "run/metrics.jsonl"));
  int64_t step = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (!entry.contains("loss")) continue;
    EXPECT_EQ(entry.at("step"), ++step);
  }
  EXPECT_EQ(step, 200);
}

TEST_F(Interrupted, DamagedCheckpointsAreLeftOut) {
  const std::string whole = hash(train({"--json"}));
  damage(state(200));
  fs::resize_file(state(180), 100);
  const Ended resumed = train({"--json", "--resume", "auto"});
  EXPECT_EQ(hash(resumed), whole);
  for (const char* part : {"step-00000200",
                           "is corrupt (tensor '",
                           "step-00000180",
                           "truncated",
                           "step-00000160 takes its place",
                           "resumed from"})
    EXPECT_NE(resumed.err.find(part), std::string::npos) << part << "\n" << resumed.err;
  for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
    damage(entry.path() / "manifest.json");
  const Ended none = train({"--resume", "auto"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_TRUE(none.err.starts_with("error: no checkpoint in 'run/checkpoints' can be used: step-"));
  EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
}

TEST_F(Interrupted, AnotherModelsStateIsRefused) {
  ASSERT_EQ(train({}).code, 0);
  const std::pair<std::vector<std::string>, std::vector<std::string>> cases[] = {
      {{"--resume", "auto", "--set", "model.hidden=32,64"},
       {"layers.0.weight", "f32[16,64]", "f32[16,32]"}},
      {{"--resume", "auto", "--set", "model.hidden=64"}, {"'layers.1.", "this model has not"}},
      {{"--resume", "auto", "--set", "optimizer.kind=sgd"}, {"this model has not", "--resume no"}},
      {{"--out", "b", "--init", "run/model.safetensors", "--set", "model.hidden=32,64"},
       {"model.safetensors", "layers.0.weight", "f32[16,64]", "f32[16,32]"}},
      {{"--out", "b", "--init", "run/model.safetensors", "--set", "model.hidden=64,64,64"},
       {"it lacks 'layers.2.weight' and 'layers.2.bias'"}},
      {{}, {"'run' holds checkpoints of an earlier run, up to step 200", "--resume auto"}},
  };
  for (const auto& [words, parts] : cases) {
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.out, "");
    for (const std::string& part : parts)
      EXPECT_NE(ended.err.find(part), std::string::npos) << part << "\n" << ended.err;
  }
}

TEST_F(Interrupted, StepsThatAreDoneAreNotDoneAgain) {
  ASSERT_EQ(train({}).code, 0);
  const auto written = fs::last_write_time(state(200));
  const Ended again = train({"--resume", "auto"});
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("nothing is left to train: 200 of 200 steps are done; raise"),
            std::string::npos)
      << again.err;
  EXPECT_EQ(fs::last_write_time(state(200)), written);
}

TEST_F(Interrupted, OneRunAtATimeInAFolder) {
  RidgeProcess first(folder_.path(), {"train", "run.toml", "--steps", kEndless});
  ASSERT_TRUE(first.says("step 20: saved"));
  const TempFolder other;
  fs::copy_file(folder_ / "run.toml", other / "run.toml");
  const Ended second = ridge(
      other.path(), {"train", "run.toml", "--resume", "auto", "--out", (folder_ / "run").string()});
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run is writing to '"), std::string::npos) << second.err;
  first.send(SIGINT);
  EXPECT_EQ(first.wait().code, 130);
}

// The limit stands for a full disk: each write beyond it fails.
TEST_F(Interrupted, NoRoomForACheckpoint) {
  const std::string wide = "model.hidden=512,512";
  ASSERT_EQ(train({"--set", wide, "--steps", "20"}).code, 0);
  const std::string before = text_of(state(20));
  const Ended full = train({"--set", wide, "--steps", "60", "--resume", "auto"}, "ulimit -f 500;");
  EXPECT_EQ(full.code, 2);
  EXPECT_EQ(full.out, "");
  EXPECT_NE(full.err.find("step 40 was not saved, the run goes on: cannot write"),
            std::string::npos)
      << full.err;
  EXPECT_NE(full.err.find("File too large"), std::string::npos);
  EXPECT_EQ(text_of(state(20)), before);
  EXPECT_EQ(hash(train({"--json", "--set", wide, "--steps", "60", "--resume", "auto"})),
            hash(train({"--json", "--set", wide, "--steps", "60", "--out", "whole"})));
}

TEST_F(Interrupted, OutputThatCannotBeWritten) {
  int run = 0;
  for (const char* shell : {"exec >/dev/full;", "exec >&-;"}) {
    for (const char* last : {"--json", "--help"}) {
      const Ended ended = train({"--out", "a" + std::to_string(++run), last}, shell);
      EXPECT_EQ(ended.code, 2) << shell << last;
      EXPECT_NE(ended.err.find("error: cannot write to stdout\n"), std::string::npos) << ended.err;
    }
  }
  // Nobody reads the progress: the run is finished all the same.
  const Ended deaf = train({"--json"}, "exec 2>/dev/full;");
  EXPECT_EQ(nlohmann::json::parse(deaf.out).at("steps"), 200);
  const Ended cut = train({"--json", "--out", "c"}, "mkfifo pipe; (: < pipe) & exec 2> pipe;");
  EXPECT_EQ(cut.code, 0);  // the reader of the pipe has gone
  EXPECT_EQ(train({"--out", "b"}, "exec <&- 2>&-;").code, 0);
  EXPECT_TRUE(text_of(folder_ / "b/metrics.jsonl").starts_with("{\"step\":1,"));
}

}  // namespace
}  // namespace ridge
