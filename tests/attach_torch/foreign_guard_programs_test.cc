// The guard on real programs: what breaks them is rejected, what does not passes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "ridge/tune/pytorch/guard/guard.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 32;

class GuardedProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
  }

  const attach::RunRecord& cached(const std::string& change, int64_t reseed) {
    const auto key = std::pair(change, reseed);
    if (!runs_.contains(key)) runs_[key] = run(words_, change, reseed);
    return runs_[key];
  }

  attach::RunRecord run(const std::string& words,
                        const std::string& change,
                        int64_t reseed,
                        double nudge = 0,
                        const std::string& recipe = "") {
    const attach::ShimFolder shim({.profiled_steps = 0,
                                   .recipe = recipe,
                                   .record_steps = kSteps,
                                   .reseed = reseed,
                                   .nudge = nudge});
    const test::TempFolder place;
    std::string command = "cd '" + place.path().string() + "' && exec env OMP_NUM_THREADS=1" +
                          " GUARD_CHANGE=" + change;
    for (const auto& [name, value] : shim.environment()) command += " '" + name + "=" + value + "'";
    command += " timeout -k 1 280 '" + python_ + "' '" +
               fs::absolute("tests/attach/programs").string() + "/" + words +
               " >.out 2>.err </dev/null";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0) << command;
    const std::optional<attach::RunRecord> record = attach::read_record(shim);
    EXPECT_TRUE(record.has_value()) << words;
    return record.value_or(attach::RunRecord{});
  }

  /// `words`: "NAME.py' ARGUMENTS" and the steps.
  void begin(const std::string& words, int64_t seeds) {
    words_ = words + " " + std::to_string(kSteps + 4);
    baseline_ = {};
    runs_.clear();
    for (int64_t i = 0; i < seeds; ++i) baseline_.seeds.push_back(run(words_, "", i));
    baseline_.again = run(words_, "", 0);
    if (seeds == 1) return;  // for bits or outputs
    baseline_.fine_controls = {run(words_, "", 0, kFineNudge)};
    baseline_.coarse_controls = {run(words_, "", 0, kCoarseNudge)};
  }
  GuardOutcome guard(const std::string& change, SemanticClass semantic_class) {
    std::vector<attach::RunRecord> candidates;
    const bool is_precision = semantic_class == SemanticClass::kPrecision;
    for (int64_t i = 0; i < (is_precision ? static_cast<int64_t>(baseline_.seeds.size()) : 1); ++i)
      candidates.push_back(cached(change, i));
    const GuardOutcome answer = judge_runs(baseline_, candidates, semantic_class);
    if (std::getenv("RIDGE_TEST_TALK"))
      fprintf(stderr, "%s, %s: %s\n", words_.c_str(), change.c_str(), answer.text.c_str());
    return answer;
  }
  void passes(const std::string& change, SemanticClass semantic_class) {
    const GuardOutcome answer = guard(change, semantic_class);
    EXPECT_TRUE(answer.passed) << words_ << ", " << change << ": " << answer.text;
  }
  std::string fails(const std::string& change, SemanticClass semantic_class) {
    const GuardOutcome answer = guard(change, semantic_class);
    EXPECT_FALSE(answer.passed) << words_ << ", " << change << ": " << answer.text;
    EXPECT_TRUE(answer.can_tell) << words_ << ", " << change << ": " << answer.text;
    return answer.text;
  }

  std::string python_ = test::peers_python(), words_;
  ForeignBaseline baseline_;
  std::map<std::pair<std::string, int64_t>, attach::RunRecord> runs_;  ///< With changes.
};

constexpr SemanticClass kBits = SemanticClass::kBitIdentical;
constexpr SemanticClass kOrder = SemanticClass::kReassociation;
constexpr SemanticClass kPrecise = SemanticClass::kPrecision;

TEST_F(GuardedProgram, AHealthyCnnPassesInAnotherLayoutAndInBf16) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  begin("guard_healthy.py' cnn", kForeignSeeds);
  EXPECT_TRUE(baseline_.is_repeatable());
  passes("channels_last", kOrder);
  passes("bf16", kPrecise);
  EXPECT_EQ(fails("nan", kOrder), "the loss of step 8 is not finite");
  EXPECT_EQ(fails("end", kOrder), "the run ended after 7 of 32 steps");
}

TEST_F(GuardedProgram, HealthyOnesOfOtherKindsPassInBf16) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  for (const std::string kind : {"mlp", "gpt"}) {
    begin("guard_healthy.py' " + kind, kForeignSeeds);
    passes("bf16", kPrecise);
    passes("foreach", kOrder);
    fails("gradients", kPrecise);
    fails("rate", kPrecise);
  }
}

TEST_F(GuardedProgram, ALossThatIsLostInBf16IsSeen) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  std::vector<std::string> ways = {"offset"};
  if (test::cases(1) > 1) ways.push_back("sum");
  for (const std::string& way : ways) {
    begin("guard_lost_loss.py' " + way, kForeignSeeds);
    fails("bf16", kPrecise);
  }
}

TEST_F(GuardedProgram, WorkersThatShareAFileOffsetAreSeen) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  begin("guard_shared_offset.py'", 1);
  EXPECT_TRUE(baseline_.is_repeatable());
  EXPECT_TRUE(fails("workers", kBits).starts_with("not the same bits: the loss of step "));
}

TEST_F(GuardedProgram, OutputsOfAnInference) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  begin("guard_healthy.py' infer", 1);
  EXPECT_TRUE(baseline_.is_repeatable());
  passes("none", kBits);
  passes("bf16", kPrecise);
  fails("bf16", kOrder);
}

TEST_F(GuardedProgram, AProgramThatCannotBeRepeated) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  begin("guard_unseeded.py' system", kForeignSeeds);
  EXPECT_FALSE(baseline_.is_repeatable());
  const GuardOutcome answer = guard("none", kBits);
  EXPECT_TRUE(answer.passed || !answer.can_tell) << answer.text;
  EXPECT_NE(answer.text.find("bits could not be compared"), std::string::npos) << answer.text;
}

// The cache makes all samples at once, with the modules that they call.
TEST_F(GuardedProgram, SamplesAreNoPartOfAStep) {
  if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  const attach::RunRecord plain = run("record_samples.py'", "", 0),
                          cached = run("record_samples.py'", "", 0, 0, R"({"loader.cache":true})");
  ASSERT_GE(plain.batch_hashes.size(), 5u);
  EXPECT_EQ(plain.batch_hashes, cached.batch_hashes);
  for (const std::string& words : plain.batch_hashes)
    EXPECT_EQ(words.find(' '), std::string::npos) << words;
  EXPECT_EQ(plain.losses, cached.losses);
}

}  // namespace
}  // namespace ridge
