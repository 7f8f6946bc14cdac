// Techniques propose what can be changed and say why not otherwise; predictions follow what the
// parts of a step cost.
#include "ridge/tune/technique.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ridge/tune/prediction.h"
#include "ridge/tune/resolved_config.h"

namespace ridge {
namespace {

constexpr const char* kModel =
    "[model]\nkind = 'mlp'\noutputs = 3\n[data]\nkind = 'random'\nclasses = 3\n";

ResolvedConfig resolved(const std::string& settings, const std::string& more) {
  return resolve_config(settings + kModel + more, "test", Recipe{});
}

Proposals propose(std::string_view name,
                  const ResolvedConfig& config,
                  int cpus = 2,
                  double epochs = 3) {
  for (const Technique& technique : techniques())
    if (technique.name == name)
      return technique.propose({.config = config.loaded.config,
                                .settings = *config.settings,
                                .cpus = cpus,
                                .epochs = epochs});
  ADD_FAILURE() << "no technique " << name;
  return {};
}

TEST(Technique, EachHasANameOfItsOwnAndAReasonWhereItHasNothingToTry) {
  std::set<std::string_view> names;
  const ResolvedConfig config = resolved("", "[train]\nsteps = 10\n");
  for (const Technique& technique : techniques()) {
    EXPECT_TRUE(names.insert(technique.name).second) << technique.name;
    const Proposals proposals = propose(technique.name, config);
    EXPECT_EQ(proposals.tries.empty(), !proposals.reason.empty()) << technique.name;
    for (const Proposal& proposal : proposals.tries) {
      EXPECT_FALSE(proposal.hypothesis.empty());
      // What it changes is a key that exists, to a value that the key allows.
      Recipe recipe;
      for (const ConfigFlag& change : proposal.changes)
        EXPECT_NO_THROW(recipe.set(change.key, change.value)) << change.key;
    }
  }
}

TEST(Technique, ProposalsFollowTheConfiguration) {
  const ResolvedConfig none = resolved("", "[loader]\nworkers = 0\n[train]\nsteps = 10\n");
  EXPECT_EQ(propose("loader.workers", none).tries.size(), 2u);
  EXPECT_EQ(propose("loader.workers", none, 1).tries.size(), 1u);
  EXPECT_EQ(propose("loader.cache", none).tries.size(), 1u);
  EXPECT_TRUE(propose("loader.cache", none, 2, 1).tries.empty());
  EXPECT_EQ(propose("loader.prefetch", none).reason, "no thread loads ahead");
  const ResolvedConfig full = resolved(
      "cpu.jit = false\ntune = false\ncpu.isa = 'avx2'\nthreads = 1\n",
      "[loader]\nworkers = 2\ncache = true\n[train]\nsteps = 10\nmicro = 4\nprecision = 'bf16'\n");
  EXPECT_TRUE(propose("loader.workers", full).tries.empty());
  EXPECT_TRUE(propose("loader.cache", full).tries.empty());
  EXPECT_TRUE(propose("bf16", full).tries.empty());
  for (const char* name : {"jit", "choices", "isa", "threads", "micro", "loader.prefetch"})
    EXPECT_EQ(propose(name, full).tries.size(), 1u) << name;
  EXPECT_EQ(propose("micro", full).tries[0].semantic_class, SemanticClass::kReassociation);
  EXPECT_EQ(propose("bf16", none).tries[0].semantic_class, SemanticClass::kPrecision);
}

TEST(Technique, AChangeIsShownWithWhatWasThere) {
  const ResolvedConfig config = resolved("", "[loader]\nworkers = 0\n[train]\nsteps = 10\n");
  const Situation situation{
      .config = config.loaded.config, .settings = *config.settings, .cpus = 2, .epochs = 1};
  EXPECT_EQ(change_text({{"loader.workers", "2", ""}, {"threads", "1", ""}}, situation),
            "loader.workers 0 -> 2, threads 0 -> 1");
}

// A step that computes for 10 ms on both of two CPUs, and loads for 6.
constexpr StepCosts kSerial{
    .step = 0.016, .compute = 0.010, .load = 0.006, .host = 0.001, .workers = 0, .threads = 2};

TEST(Prediction, SerialStepsAddAndThreadsOverlap) {
  EXPECT_DOUBLE_EQ(modelled_step(kSerial, 2), 0.016);
  StepCosts overlapped = kSerial;
  overlapped.workers = 1;
  // 26 ms of CPU time on two CPUs; on four the computation hides the loading.
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 2), 0.013);
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 4), 0.010);
  overlapped.load = 0.030;
  EXPECT_DOUBLE_EQ(modelled_step(overlapped, 4), 0.030);
}

TEST(Prediction, IsAnIntervalAroundTheModel) {
  StepCosts overlapped = kSerial;
  overlapped.workers = 1;
  const SpeedRange gain = predicted_speedup(kSerial, overlapped, 2);
  EXPECT_LT(gain.low, 16.0 / 13);
  EXPECT_GT(gain.high, 16.0 / 13);
  EXPECT_LT(gain.high / gain.low, 1.5);
  const SpeedRange loss = predicted_speedup(overlapped, kSerial, 2);
  EXPECT_LT(loss.high, 1.0);
  const SpeedRange same = predicted_speedup(kSerial, kSerial, 2);
  EXPECT_LT(same.low, 1.0);
  EXPECT_GT(same.high, 1.0);
}

TEST(Prediction, CeilingsAreWhatIsLeftWithoutAPart) {
  EXPECT_DOUBLE_EQ(loading_ceiling(kSerial), 1.6);
  EXPECT_DOUBLE_EQ(computing_ceiling(kSerial), 16.0 / 6);
  // Noise may make a part dearer than the whole.
  StepCosts noisy = kSerial;
  noisy.compute = 0.020;
  EXPECT_DOUBLE_EQ(loading_ceiling(noisy), 1.0);
}

}  // namespace
}  // namespace ridge
