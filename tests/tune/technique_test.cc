// Techniques propose what can be changed, and say why not otherwise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/techniques.h"

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
  EXPECT_EQ(propose("loader.cache", none).reason, "samples are never read again");
  const ResolvedConfig images = resolve_config(
      "[data]\nkind = 'images'\npath = 'p'\n[train]\nsteps = 10\n", "test", Recipe{});
  EXPECT_EQ(propose("loader.cache", images).tries.size(), 1u);
  EXPECT_TRUE(propose("loader.cache", images, 2, 1).tries.empty());
  EXPECT_EQ(propose("loader.prefetch", none).reason, "no thread loads ahead");
  const ResolvedConfig full =
      resolved("cpu.jit = false\ntune = false\ncpu.isa = 'avx2'\nthreads = 1\n",
               "[loader]\nworkers = 2\n[train]\nsteps = 10\nmicro = 4\nprecision = 'bf16'\n");
  EXPECT_TRUE(propose("loader.workers", full).tries.empty());
  EXPECT_TRUE(propose("bf16", full).tries.empty());
  EXPECT_TRUE(propose("fp16", full).tries.empty());  // bf16 is kept
  for (const char* name :
       {"jit", "choices", "isa", "threads", "loader.prefetch", "pinning", "metrics"})
    EXPECT_EQ(propose(name, full).tries.size(), 1u) << name;
  EXPECT_EQ(propose("micro", full).tries[0].semantic_class, SemanticClass::kReassociation);
  for (const char* name : {"bf16", "fp16"}) {
    ASSERT_EQ(propose(name, none).tries.size(), 1u) << name;
    EXPECT_EQ(propose(name, none).tries[0].semantic_class, SemanticClass::kPrecision) << name;
    EXPECT_EQ(propose(name, none).tries[0].changes[0].value, name);
  }
}

TEST(Technique, OnADeviceTheHostDoesNotCompute) {
  const ResolvedConfig cuda = resolved("cpu.jit = false\ncpu.isa = 'avx2'\nthreads = 1\n",
                                       "[train]\nsteps = 10\ndevice = 'cuda'\n");
  for (const char* name : {"threads", "pinning", "jit", "isa"}) {
    EXPECT_TRUE(propose(name, cuda).tries.empty()) << name;
    EXPECT_TRUE(propose(name, cuda).reason.starts_with("the device ")) << name;
  }
  EXPECT_TRUE(propose("overlap", cuda).is_done);
  EXPECT_EQ(propose("capture", cuda).reason, "the launches of a step are captured already");
  const ResolvedConfig off =
      resolved("", "[train]\nsteps = 10\ndevice = 'cuda:1'\ncapture = 'off'\n");
  ASSERT_EQ(propose("capture", off).tries.size(), 1u);
  EXPECT_EQ(propose("capture", off).tries[0].semantic_class, SemanticClass::kBitIdentical);
  const Proposals tf32 = propose("tf32", off);
  ASSERT_EQ(tf32.tries.size(), 1u);
  EXPECT_EQ(tf32.tries[0].semantic_class, SemanticClass::kPrecision);
  EXPECT_EQ(tf32.tries[0].changes[0].value, "tf32");
  const ResolvedConfig low =
      resolved("", "[train]\nsteps = 10\ndevice = 'cuda'\nprecision = 'bf16'\n");
  EXPECT_EQ(propose("tf32", low).reason, "products do not compute in f32");
}

TEST(Technique, OnTheHostThereIsNothingOfADevice) {
  const ResolvedConfig host = resolved("", "[train]\nsteps = 10\ncapture = 'off'\n");
  EXPECT_FALSE(propose("overlap", host).is_done);
  for (const char* name : {"overlap", "capture", "tf32"})
    EXPECT_TRUE(propose(name, host).tries.empty()) << name;
}

TEST(Technique, OtherKernelsAreAnotherOrderOfSums) {
  // The tests' environment has it off, and a flag is stronger.
  const Proposals kernels =
      propose("kernels",
              resolve_config(std::string(kModel) + "[train]\nsteps = 10\n",
                             "test",
                             Recipe{},
                             std::vector<ConfigFlag>{{"tune", "true", "test"}}));
  ASSERT_EQ(kernels.tries.size(), 1u);
  EXPECT_EQ(kernels.tries[0].semantic_class, SemanticClass::kReassociation);
  EXPECT_EQ(kernels.tries[0].changes.size(), 1u);
  const Proposals untimed = propose("kernels", resolved("tune = false\n", "[train]\nsteps = 9\n"));
  EXPECT_EQ(untimed.tries[0].changes[1].key, "tune");
  EXPECT_TRUE(
      propose("kernels", resolved("", "[train]\nsteps = 9\nkernels = 'fastest'\n")).tries.empty());
}

// A GPU has the fastest by default: what timing picks there has other bits.
TEST(Technique, OnAGpuKernelsAreTheFastestByDefault) {
  const std::string gpu = "[train]\nsteps = 9\ndevice = 'cuda'\n";
  EXPECT_EQ(propose("kernels", resolved("", gpu)).reason,
            "the fastest kernels are picked already, whatever their last bits");
  const Proposals timed = propose("choices", resolved("tune = false\n", gpu));
  ASSERT_EQ(timed.tries.size(), 1u);
  EXPECT_EQ(timed.tries[0].semantic_class, SemanticClass::kReassociation);
  const std::string exact = gpu + "kernels = 'same_bits'\n";
  EXPECT_EQ(propose("kernels", resolved("", exact)).tries.size(), 1u);
  const Proposals same = propose("choices", resolved("tune = false\n", exact));
  ASSERT_EQ(same.tries.size(), 1u);
  EXPECT_EQ(same.tries[0].semantic_class, SemanticClass::kBitIdentical);
}

// A step of 16 micro-batches fits into the device's memory with 3 at the fewest.
TEST(Technique, PartsFollowTheRoomOfADevice) {
  const ResolvedConfig cuda =
      resolved("", "[train]\nsteps = 10\nbatch = 32\nmicro = 16\ndevice = 'cuda'\n");
  const auto with_room = [&](std::string_view name, int64_t fewest) {
    for (const Technique& technique : techniques())
      if (technique.name == name)
        return technique.propose({.config = cuda.loaded.config,
                                  .settings = *cuda.settings,
                                  .micro = 16,
                                  .fewest_parts = fewest,
                                  .free_device_mib = 900});
    return Proposals{};
  };
  const auto parts = [&](int64_t fewest) {
    std::vector<std::string> values;
    for (const Proposal& proposal : with_room("micro", fewest).tries)
      values.push_back(proposal.changes[0].value);
    return values;
  };
  EXPECT_EQ(parts(3), (std::vector<std::string>{"3", "8", "4"}));
  EXPECT_EQ(parts(4), (std::vector<std::string>{"4", "8"}));
  EXPECT_EQ(parts(1), (std::vector<std::string>{"1", "8", "4"}));
  EXPECT_EQ(with_room("micro", 16).reason,
            "the device has no free memory for fewer than 16 micro-batches");
  const Proposals again = with_room("recompute", 3);
  ASSERT_EQ(again.tries.size(), 1u);
  EXPECT_EQ(again.tries[0].changes[0].value, "1");
  EXPECT_EQ(again.tries[0].changes[1].key, "train.memory_limit");
  EXPECT_EQ(again.tries[0].changes[1].value, "900");
  EXPECT_EQ(with_room("recompute", 1).reason, "no memory limit");
}

TEST(Technique, PaddingIsLeftOutWhereSamplesDifferInLength) {
  const auto text = [](const std::string& data, const std::string& more) {
    return resolve_config("[train]\nsteps = 9\n[model]\nkind = 'gpt'\n" + more +
                              "[data]\nkind = 'text'\npath = 'x'\n" + data,
                          "test",
                          {});
  };
  const std::string lines = "samples = 'lines'\n";
  const Proposals found = propose("padding", text(lines, ""));
  ASSERT_EQ(found.tries.size(), 1u);
  EXPECT_EQ(found.tries[0].changes[0].key, "loader.pad");
  EXPECT_EQ(found.tries[0].semantic_class, SemanticClass::kReassociation);
  EXPECT_EQ(propose("padding", text("", "")).reason, "all samples have the same length");
  EXPECT_EQ(propose("padding", text(lines + "[loader]\npad = 'longest'\n", "")).reason,
            "batches are as long as their longest sample already");
  EXPECT_TRUE(propose("padding", text(lines, "dropout = 0.1\n")).reason.starts_with("dropout"));
}

// By hand: 4 samples of 50 tokens are half of what a batch of 4 * 100 has room for.
TEST(Technique, LikeLengthsAreAnotherRun) {
  const auto text = [](const std::string& data) {
    return resolve_config(
        "[optimizer]\nlr = 0.5\n[train]\nsteps = 900\nbatch = 4\n[model]\nkind = "
        "'gpt'\n[data]\nkind = 'text'\npath = 'x'\ncontext = 100\n" +
            data,
        "test",
        {});
  };
  const auto with_growth = [](std::string_view name, const ResolvedConfig& config, double growth) {
    for (const Technique& technique : techniques())
      if (technique.name == name)
        return technique.propose({.config = config.loaded.config,
                                  .settings = *config.settings,
                                  .epoch_steps = 300,
                                  .token_growth = growth});
    return Proposals{};
  };
  const ResolvedConfig lines = text("samples = 'lines'\n");
  const Proposals buckets = with_growth("buckets", lines, 2);
  ASSERT_EQ(buckets.tries.size(), 1u);
  EXPECT_EQ(buckets.tries[0].semantic_class, SemanticClass::kTrajectory);
  std::set<std::string> changed;
  for (const ConfigFlag& change : buckets.tries[0].changes)
    changed.insert(change.key + " " + change.value);
  EXPECT_EQ(changed, (std::set<std::string>{"loader.buckets true", "loader.pad longest"}));
  const Proposals tokens = with_growth("tokens", lines, 2);
  ASSERT_EQ(tokens.tries.size(), 1u);
  EXPECT_EQ(tokens.tries[0].semantic_class, SemanticClass::kTrajectory);
  changed.clear();
  for (const ConfigFlag& change : tokens.tries[0].changes)
    changed.insert(change.key + " " + change.value);
  for (const char* change :
       {"loader.tokens 400", "loader.pad longest", "optimizer.lr 0.707107", "train.steps 450"})
    EXPECT_TRUE(changed.contains(change)) << change;
  EXPECT_FALSE(changed.contains("train.batch 8"));
  EXPECT_EQ(with_growth("tokens", lines, 1.05).reason, "padded batches are 95 % full");
  EXPECT_NE(with_growth("tokens", lines, 3.5).reason.find("would leave 85 steps"),
            std::string::npos);
  for (const char* name : {"buckets", "tokens"}) {
    EXPECT_EQ(with_growth(name, text(""), 1).reason, "all samples have the same length");
  }
}

TEST(Technique, PinningNeedsACpuForEachThread) {
  const std::string run = "[train]\nsteps = 10\n";
  EXPECT_EQ(propose("pinning", resolved("threads = 2\n", run)).tries.size(), 1u);
  EXPECT_TRUE(propose("pinning", resolved("threads = 3\n", run)).tries.empty());
  EXPECT_TRUE(propose("pinning", resolved("cpu.pin = true\n", run)).tries.empty());
}

TEST(Technique, MetricsAreReportedLateOnce) {
  const ResolvedConfig rare = resolved("", "[train]\nsteps = 10\n[metrics]\nevery = 50\n");
  EXPECT_EQ(propose("metrics", rare).reason, "one step in 50 is reported already");
}

TEST(Technique, AChangeIsShownWithWhatWasThere) {
  const ResolvedConfig config = resolved("", "[loader]\nworkers = 0\n[train]\nsteps = 10\n");
  const Situation situation{
      .config = config.loaded.config, .settings = *config.settings, .cpus = 2, .epochs = 1};
  EXPECT_EQ(change_text({{"loader.workers", "2", ""}, {"threads", "1", ""}}, situation),
            "loader.workers 0 -> 2, threads 0 -> 1");
  EXPECT_EQ(change_text({{"loader.pad", "context", ""}, {"loader.workers", "0", ""}}, situation),
            "");
}

TEST(Technique, MicroBatchesGoDownToOneAndStopBetween) {
  const auto values = [](const Proposals& proposals) {
    std::vector<std::string> found;
    for (const Proposal& proposal : proposals.tries) {
      EXPECT_EQ(proposal.semantic_class, SemanticClass::kReassociation);
      EXPECT_EQ(proposal.changes.size(), 1u);
      EXPECT_EQ(proposal.changes[0].key, "train.micro");
      found.push_back(proposal.changes[0].value);
    }
    return found;
  };
  const auto at = [&](int micro) {
    return values(propose(
        "micro", resolved("", fmt::format("[train]\nbatch = 64\nmicro = {}\nsteps = 9\n", micro))));
  };
  EXPECT_EQ(at(1), std::vector<std::string>{});
  EXPECT_EQ(at(2), std::vector<std::string>{"1"});
  EXPECT_EQ(at(4), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(at(16), (std::vector<std::string>{"1", "8", "4"}));
  // A limit of memory made more of them than were configured: fewer do not fit.
  const ResolvedConfig limited = resolved("", "[train]\nbatch = 64\nsteps = 9\nmemory_limit = 5\n");
  for (const Technique& technique : techniques()) {
    if (technique.name != "micro") continue;
    const Proposals proposals = technique.propose({.config = limited.loaded.config,
                                                   .settings = *limited.settings,
                                                   .cpus = 2,
                                                   .epochs = 1,
                                                   .micro = 4});
    EXPECT_TRUE(proposals.tries.empty());
    EXPECT_EQ(proposals.reason, "the limit of memory asks for 4 micro-batches");
  }
}

TEST(Technique, RecomputeTellsWhatALimitDid) {
  const ResolvedConfig none = resolved("", "[train]\nsteps = 9\n");
  EXPECT_EQ(propose("recompute", none).reason, "no memory limit");
  EXPECT_FALSE(propose("recompute", none).is_done);
  const ResolvedConfig limited = resolved("", "[train]\nsteps = 9\nmemory_limit = 5\n");
  for (const Technique& technique : techniques()) {
    if (technique.name != "recompute") continue;
    const Proposals proposals = technique.propose({.config = limited.loaded.config,
                                                   .settings = *limited.settings,
                                                   .cpus = 2,
                                                   .epochs = 1,
                                                   .micro = 1,
                                                   .memory = "recomputed: 3 results"});
    EXPECT_TRUE(proposals.is_done);
    EXPECT_TRUE(proposals.tries.empty());
    EXPECT_EQ(proposals.reason, "recomputed: 3 results");
  }
}

}  // namespace
}  // namespace ridge
