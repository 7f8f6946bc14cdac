// Which runs a change is held against, over programs that are made up: a recipe's runs are those of
// the seed, changed by what its knobs do.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "ridge/tune/pytorch/reference.h"
#include "tests/tune/foreign_draws.h"

namespace ridge {
namespace {

using attach::RunRecord;
using test::Draw;

constexpr SemanticClass kBits = SemanticClass::kBitIdentical;
constexpr SemanticClass kOrder = SemanticClass::kReassociation;
constexpr SemanticClass kPrecise = SemanticClass::kPrecision;
constexpr SemanticClass kOther = SemanticClass::kTrajectory;

ForeignRecipe with(ForeignRecipe recipe, const std::string& key, const std::string& value) {
  recipe.set(key, value);
  return recipe;
}

const ForeignRecipe kCache = with({}, "loader.cache", "true");
const ForeignRecipe kCast = with({}, "model.autocast", "bf16");
const ForeignRecipe kWorkers = with({}, "loader.workers", "2");

/// The effect of each knob on a run; a knob that is not there does nothing, not even to one bit.
class Programs {
 public:
  ForeignReference::Recorder recorder() {
    return [this](const ForeignReference::Runs& runs) {
      std::vector<RunRecord> records;
      for (const ForeignRun& one : runs) records.push_back(run(one));
      batches_.push_back(runs);
      return records;
    };
  }
  void does(const std::string& key, const test::Change& change) { changes_[key] = change; }
  void draws_others(const std::string& key) { others_ = key; }

  /// How many runs were made, and of them those without a change.
  size_t runs() const {
    size_t all = 0;
    for (const auto& batch : batches_) all += batch.size();
    return all;
  }
  size_t plain_runs() const {
    size_t plain = 0;
    for (const auto& batch : batches_)
      for (const ForeignRun& run : batch) plain += run.recipe.empty() && run.nudge == 0 ? 1 : 0;
    return plain;
  }
  double margin() {
    ForeignBaseline baseline;
    for (int64_t seed = 0; seed < kForeignSeeds; ++seed)
      baseline.seeds.push_back(run({{}, seed, 0}));
    return margin_of(baseline).margin;
  }

 private:
  RunRecord run(const ForeignRun& wanted) {
    const auto& [recipe, seed, nudge] = wanted;
    const bool is_other = !others_.empty() && !recipe.get(others_).empty();
    RunRecord record = Draw(static_cast<uint64_t>(seed) + (is_other ? 3001 : 1)).run({});
    for (const auto& [key, change] : changes_)
      if (!recipe.get(key).empty()) record = Draw(77).changed(std::move(record), change);
    if (nudge == 0) return record;
    return Draw(78).changed(std::move(record),
                            nudge == kCoarseNudge ? test::kCoarseControl : test::kFineControl);
  }

  std::map<std::string, test::Change> changes_;
  std::string others_;
  std::vector<ForeignReference::Runs> batches_;
};

TEST(ForeignReference, RunsAreMadeOnceAndNoMoreThanNeeded) {
  Programs programs;
  ForeignReference reference(programs.recorder(), false);
  EXPECT_TRUE(reference.judge(kCache, kBits).passed);
  EXPECT_EQ(programs.plain_runs(), 2u);
  EXPECT_EQ(programs.runs(), 3u);
  EXPECT_TRUE(reference.judge(with(kCache, "threads", "1"), kOrder).passed);
  EXPECT_EQ(programs.plain_runs(), 1u + kForeignSeeds);
  EXPECT_EQ(programs.runs(), 4u + kForeignSeeds) << "with a control";
  EXPECT_TRUE(reference.judge(with(kCache, "threads", "2"), kOrder).passed);
  EXPECT_EQ(programs.runs(), 5u + kForeignSeeds);
}

// The budget is planned by what is said of runs before they are made.
TEST(ForeignReference, RunsAreCountedBeforehand) {
  for (const bool only_calls : {false, true})
    for (const int64_t threads : {0, 2}) {
      Programs programs;
      programs.does("model.autocast", {.first = 3e-3, .late = 0.002});
      ForeignReference reference(programs.recorder(), only_calls, threads);
      int64_t last = 0;
      for (const auto& [recipe, semantic_class] :
           {std::pair(kCache, kBits),
            std::pair(kCache, kOrder),
            std::pair(kCache, kOrder),
            std::pair(kCast, kPrecise),
            std::pair(kCast, kPrecise),
            std::pair(with(kCast, "loader.cache", "true"), kOrder),
            std::pair(with(kCast, "loader.cache", "true"), kBits)}) {
        const int64_t expected = reference.runs_for(semantic_class);
        reference.judge(recipe, semantic_class);
        const auto runs = static_cast<int64_t>(programs.runs());
        EXPECT_EQ(runs - last, expected) << static_cast<int>(semantic_class) << ", " << threads;
        last = runs;
      }
    }
}

// bf16 is far from the program as it is; what comes on top is held against bf16.
TEST(ForeignReference, FineChangesPassBesideACoarseOne) {
  Programs programs;
  programs.does("model.autocast", {.first = 3e-3, .late = 0.002});
  ForeignReference reference(programs.recorder(), false);
  EXPECT_FALSE(reference.judge(kCast, kOrder).passed) << "it is no reassociation";
  ASSERT_TRUE(reference.judge(kCast, kPrecise).passed);
  const size_t before = programs.runs();
  EXPECT_TRUE(reference.judge(with(kCast, "loader.cache", "true"), kBits).passed);
  EXPECT_EQ(programs.runs() - before, 2u) << "one with the change, and bf16 once more";
  EXPECT_TRUE(reference.judge(with(kCast, "threads", "1"), kOrder).passed);
  EXPECT_EQ(programs.runs() - before, 4u) << "a control of bf16, too";

  programs.does("optimizer.fused", {.first = 3e-3});
  EXPECT_FALSE(reference.judge(with(kCast, "optimizer.fused", "true"), kOrder).passed);
  programs.does("loader.pin", {.first = 1e-12});
  EXPECT_FALSE(reference.judge(with(kCast, "loader.pin", "true"), kBits).passed);
}

// Another order of sums changes bits, and what is tried beside it is held against those.
TEST(ForeignReference, BitsAreThoseOfTheLastChangeThatPassed) {
  Programs programs;
  programs.does("model.compile", {.first = 1e-12});
  const ForeignRecipe compiled = with({}, "model.compile", "ridge");
  ForeignReference reference(programs.recorder(), false);
  ASSERT_TRUE(reference.judge(compiled, kOrder).passed);
  const int64_t expected = reference.runs_for(kBits);
  const size_t before = programs.runs();
  const GuardOutcome cached = reference.judge(with(compiled, "loader.cache", "true"), kBits);
  EXPECT_TRUE(cached.passed) << cached.text;
  EXPECT_EQ(cached.text.substr(0, 13), "the same bits");
  EXPECT_EQ(static_cast<int64_t>(programs.runs() - before), expected);
  programs.does("loader.pin", {.first = 1e-12});
  EXPECT_FALSE(reference.judge(with(compiled, "loader.pin", "true"), kBits).passed);
  EXPECT_FALSE(reference.judge(kCache, kBits).passed) << "the compiler's bits are gone";
  EXPECT_TRUE(reference.judge_rest(kCache, kBits).passed);
}

// Each by itself is within the margin.
TEST(ForeignReference, LossesOfCoarseChangesAddUp) {
  Programs programs;
  const double shift = 0.7 * programs.margin();
  programs.does("model.autocast", {.first = 1e-3, .shift = shift});
  programs.does("matmul.tf32", {.first = 1e-3, .shift = shift});
  {
    ForeignReference alone(programs.recorder(), false);
    EXPECT_TRUE(alone.judge(with({}, "matmul.tf32", "true"), kPrecise).passed);
  }
  ForeignReference reference(programs.recorder(), false);
  ASSERT_TRUE(reference.judge(kCast, kPrecise).passed);
  const GuardOutcome both = reference.judge(with(kCast, "matmul.tf32", "true"), kPrecise);
  EXPECT_FALSE(both.passed) << both.text;
  EXPECT_TRUE(both.can_tell);
}

TEST(ForeignReference, BesideAnotherTrajectoryPrecisionIsJudgedAsOne) {
  Programs programs;
  programs.draws_others("loader.workers");
  programs.does("model.autocast", {.first = 1e-3});
  ForeignReference reference(programs.recorder(), false);
  EXPECT_FALSE(reference.judge(kWorkers, kPrecise).passed);
  const GuardOutcome workers = reference.judge(kWorkers, kOther);
  ASSERT_TRUE(workers.passed) << workers.text;
  EXPECT_TRUE(reference.judge(with(kWorkers, "loader.prefetch", "4"), kBits).passed);
  const GuardOutcome cast = reference.judge(with(kWorkers, "model.autocast", "bf16"), kPrecise);
  EXPECT_TRUE(cast.passed) << cast.text;
}

// bf16 goes: its rest has the bits of the program as it is, and not those of bf16.
TEST(ForeignReference, ARestIsHeldAgainstTheProgramAsItIs) {
  Programs programs;
  programs.does("model.autocast", {.first = 3e-3, .late = 0.002});
  programs.does("loader.pin", {.first = 1e-12});
  ForeignReference reference(programs.recorder(), false);
  ASSERT_TRUE(reference.judge(kCast, kPrecise).passed);
  EXPECT_FALSE(reference.judge_rest(with({}, "loader.pin", "true"), kBits).passed);
  EXPECT_TRUE(reference.judge(with(kCast, "loader.cache", "true"), kBits).passed)
      << "what was kept is forgotten";
  EXPECT_TRUE(reference.judge_rest(kCache, kBits).passed);
  EXPECT_FALSE(reference.judge(kCast, kBits).passed) << "bf16 is still there";
}

TEST(ForeignReference, AFailedRunLeavesWhatWasRecorded) {
  Programs programs;
  bool fails = false;
  ForeignReference reference(
      [&, record = programs.recorder()](const ForeignReference::Runs& runs) {
        if (fails && !runs.front().recipe.empty()) throw std::runtime_error("it crashed");
        return record(runs);
      },
      false);
  fails = true;
  EXPECT_THROW(reference.judge(kCache, kBits), std::runtime_error);
  fails = false;
  EXPECT_TRUE(reference.judge(kCache, kBits).passed);
  EXPECT_EQ(programs.plain_runs(), 2u);
}

}  // namespace
}  // namespace ridge
