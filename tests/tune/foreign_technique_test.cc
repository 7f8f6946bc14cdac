#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "ridge/base/error.h"
#include "ridge/tune/pytorch/ceiling.h"
#include "ridge/tune/pytorch/forecast.h"
#include "ridge/tune/pytorch/program_meter.h"
#include "ridge/tune/pytorch/program_report.h"
#include "ridge/tune/pytorch/runner.h"
#include "ridge/tune/pytorch/step_shares.h"
#include "ridge/tune/pytorch/technique.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using attach::KnobOffer;
using attach::ProcessFacts;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string unset(const std::string&) { return ""; }

const ForeignProposal& find(const std::vector<ForeignProposal>& proposals,
                            const std::string& technique) {
  const auto found =
      std::ranges::find_if(proposals, [&](const auto& p) { return p.technique == technique; });
  if (found == proposals.end()) throw std::runtime_error("no " + technique);
  return *found;
}

ProcessFacts facts_with(std::vector<KnobOffer> offers) {
  ProcessFacts facts;
  facts.offers = std::move(offers);
  return facts;
}

TEST(ForeignTechnique, EachIsListedOnceOrForEachOffer) {
  const auto proposals = foreign_proposals(
      facts_with({{.key = "threads", .value = "1"}, {.key = "threads", .value = "2"}}), {}, unset);
  std::multiset<std::string> names;
  for (const auto& proposal : proposals) names.insert(proposal.technique);
  EXPECT_EQ(names.count("threads"), 2u);
  names.erase("threads");
  EXPECT_EQ(names.size(), std::set<std::string>(names.begin(), names.end()).size());
}

TEST(ForeignTechnique, OnlyThoseThatAreAskedForInTheOrderOfTrials) {
  const std::vector<std::string> asked = {"allocator", "loader.cache"};
  const auto chosen = chosen_techniques(asked);
  EXPECT_EQ(chosen, (std::vector<std::string>{"loader.cache", "allocator"}));
  const auto proposals = foreign_proposals({}, {}, unset, chosen);
  ASSERT_EQ(proposals.size(), 2u);
  EXPECT_EQ(proposals[0].technique, "loader.cache");
  EXPECT_EQ(chosen_techniques({}).size(), trial_order().size());
  const std::vector<std::string> unknown = {"loader.cash"};
  EXPECT_THROW(chosen_techniques(unknown), UserError);
}

TEST(ForeignTechnique, WhatNobodyOffersIsRefusedWithAReason) {
  for (const auto& proposal : foreign_proposals({}, {}, unset)) {
    EXPECT_NE(proposal.refusal, "") << proposal.technique;
    EXPECT_TRUE(proposal.knobs.empty() && proposal.variables.empty()) << proposal.technique;
  }
}

TEST(ForeignTechnique, ARefusalOfTheProbeIsItsReason) {
  const auto proposals = foreign_proposals(
      facts_with({{.key = "loader.cache", .refusal = "samples draw random numbers"}}), {}, unset);
  EXPECT_EQ(find(proposals, "loader.cache").refusal, "samples draw random numbers");
}

TEST(ForeignTechnique, WorkersStayFromEpochToEpochWhereTheyMay) {
  const KnobOffer workers{
      .key = "loader.workers", .value = "2", .semantic_class = SemanticClass::kTrajectory};
  const auto alone = find(foreign_proposals(facts_with({workers}), {}, unset), "loader.workers");
  EXPECT_EQ(alone.knobs.size(), 1u);
  EXPECT_EQ(alone.semantic_class, SemanticClass::kTrajectory);
  const auto both =
      find(foreign_proposals(
               facts_with({workers, {.key = "loader.persistent", .value = "true"}}), {}, unset),
           "loader.workers");
  EXPECT_EQ(both.knobs, (Pairs{{"loader.workers", "2"}, {"loader.persistent", "true"}}));
}

TEST(ForeignTechnique, LargerBatchesSayWhatTheyWouldBring) {
  ProcessFacts facts = facts_with({{.key = "loader.batch",
                                    .value = "64",
                                    .semantic_class = SemanticClass::kTrajectory,
                                    .work = 2},
                                   {.key = "loader.batch",
                                    .value = "128",
                                    .semantic_class = SemanticClass::kTrajectory,
                                    .work = 4}});
  const std::vector<std::string> only = {"loader.batch", "threads"};
  const auto proposals = foreign_proposals(facts, {}, unset, chosen_techniques(only));
  ASSERT_EQ(proposals.size(), 3u);
  EXPECT_EQ(proposals[1].work, 2);
  EXPECT_EQ(proposals[2].work, 4);
  // A step of more samples takes no less time, whatever it waits for.
  EXPECT_EQ(ceiling_of(proposals[2], {.wait = 0.9}), 4);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of_leave(proposals, {}, {}),
            Texts{"a batch of 64 would bring at most 2 times the samples a second; it is another "
                  "trajectory, so --allow-trajectory is needed to try it"});
  const std::map<size_t, SpeedRange> timed = {{1, {1.31, 1.42}}, {2, {1.5, 1.56}}};
  EXPECT_EQ(
      texts_of_leave(proposals, timed, {}),
      Texts{"a batch of 128 made 1.50 to 1.56 times the samples a second when it was timed; it is "
            "another trajectory, so --allow-trajectory is needed to try it"});
  EXPECT_TRUE(texts_of_leave(foreign_proposals({}, {}, unset), {}, {}).empty());
  ForeignRecipe recipe;
  EXPECT_EQ(work_of(facts, recipe), 1);
  recipe.set("loader.batch", "128");
  EXPECT_EQ(work_of(facts, recipe), 4);
  // Parts of a step grow with its samples, at most in proportion.
  ProgramCosts costs;
  costs.shares = StepShares{.optimizer = 0.1};
  costs.baseline_seconds = 0.1;
  costs.step_seconds = 0.2;
  costs.work = 4;
  EXPECT_NEAR(*costs.parts().update, 0.2, 1e-12);
}

TEST(ForeignTechnique, FewerUpdatesSaveThreeOfFourAtMost) {
  const auto proposals =
      foreign_proposals(facts_with({{.key = "optimizer.accumulate", .value = "2"},
                                    {.key = "optimizer.accumulate", .value = "4"}}),
                        {},
                        unset);
  const PartShares parts{.update = 0.4};
  EXPECT_NEAR(*ceiling_of(find(proposals, "optimizer.accumulate"), parts), 1 / 0.7, 1e-12);
  const std::vector<std::string> texts = texts_of_leave(proposals, {}, parts);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(texts[0].starts_with("an update for 4 steps would bring at most 1.43 times"));
  // An update that takes nearly nothing is not worth a word.
  EXPECT_TRUE(texts_of_leave(proposals, {}, {.update = 0.01}).empty());
}

TEST(ForeignTechnique, WhatExcludesAChangeGoesWithIt) {
  ForeignRecipe recipe;
  recipe.set("loader.workers", "2");
  recipe.set("loader.persistent", "true");
  recipe.set("threads", "2");
  const ForeignRecipe cached =
      with_proposal(recipe, {.technique = "loader.cache", .knobs = {{"loader.cache", "true"}}});
  EXPECT_EQ(cached.get("loader.workers"), "");
  EXPECT_EQ(cached.get("loader.persistent"), "");
  EXPECT_EQ(cached.get("loader.cache"), "true");
  EXPECT_EQ(cached.get("threads"), "2");
  const ForeignRecipe back =
      with_proposal(cached, {.technique = "loader.workers", .knobs = {{"loader.workers", "2"}}});
  EXPECT_EQ(back.get("loader.cache"), "");
}

// Under an engine with faster kernels of 16 bits a trial is another one than it was without.
TEST(ForeignTechnique, AutocastIsTriedAgainBesideACompiledModel) {
  const ForeignProposal autocast{.technique = "model.autocast",
                                 .knobs = {{"model.autocast", "bf16"}}};
  const ForeignProposal threads{.technique = "threads", .knobs = {{"threads", "1"}}};
  const ForeignRecipe none;
  ForeignRecipe compiled;
  compiled.set("model.compile", "ridge");
  EXPECT_NE(trial_key(autocast, 3, compiled), trial_key(autocast, 3, none));
  EXPECT_EQ(trial_key(threads, 4, compiled), trial_key(threads, 4, none));
  EXPECT_NE(trial_key(threads, 4, none), trial_key(threads, 5, none));
}

TEST(ForeignTechnique, WhatIsKeptSettlesOthers) {
  const ForeignProposal layout{.technique = "model.channels_last",
                               .knobs = {{"model.channels_last", "true"}}};
  const ForeignProposal refused{.technique = "loader.cache", .refusal = "it draws"};
  const ForeignProposal batch{.technique = "loader.batch", .work = 2};
  const ForeignRecipe none;
  ForeignRecipe compiled, elsewhere;
  compiled.set("model.compile", "ridge");
  elsewhere.set("model.compile", "default");
  EXPECT_EQ(settled_beside(layout, none, 1), "");
  EXPECT_EQ(settled_beside(layout, elsewhere, 1), "");
  EXPECT_EQ(settled_beside(layout, compiled, 1),
            "the engine lays out the images of a model that it compiles");
  compiled.set("model.autocast", "bf16");
  EXPECT_EQ(settled_beside(layout, compiled, 1), "");
  EXPECT_EQ(settled_beside(refused, none, 1), "it draws");
  const ForeignProposal workers{.technique = "loader.workers", .knobs = {{"loader.workers", "2"}}};
  const ForeignProposal cache{.technique = "loader.cache", .knobs = {{"loader.cache", "true"}}};
  ForeignRecipe cached, working;
  cached.set("loader.cache", "true");
  working.set("loader.workers", "2");
  EXPECT_EQ(settled_beside(workers, cached, 1), "loader.cache was kept, and does more of the same");
  EXPECT_EQ(settled_beside(cache, working, 1), "");
  EXPECT_EQ(settled_beside(batch, none, 2), "");
  EXPECT_EQ(settled_beside(batch, none, 4), "a larger batch was kept");
}

TEST(ForeignTechnique, TheEngineAndALayoutReplaceEachOther) {
  const ForeignProposal layout{.technique = "model.channels_last",
                               .knobs = {{"model.channels_last", "true"}}};
  const ForeignProposal engine{.technique = "model.compile", .knobs = {{"model.compile", "ridge"}}};
  const ForeignProposal inductor{.technique = "model.compile",
                                 .knobs = {{"model.compile", "default"}}};
  const ForeignRecipe by_engine = with_proposal({}, engine),
                      laid_out = with_proposal(by_engine, layout);
  EXPECT_EQ(laid_out.get("model.compile"), "");
  EXPECT_EQ(laid_out.get("model.channels_last"), "true");
  EXPECT_EQ(change_text(by_engine, laid_out),
            "model.channels_last = true in place of model.compile = ridge");
  EXPECT_EQ(with_proposal(laid_out, engine).get("model.channels_last"), "");
  EXPECT_EQ(with_proposal(laid_out, inductor).get("model.channels_last"), "true");
}

// Batches that lie ready make blocks as long as four queues of them.
TEST(ForeignTechnique, BatchesAheadAreThoseOfWorkersOrOfTheThread) {
  attach::ProcessFacts facts;
  facts.loaders.push_back({.batch = 8, .workers = 2, .prefetch = 3});
  ForeignRecipe recipe;
  EXPECT_EQ(batches_ahead({}, recipe), 0);
  EXPECT_EQ(batches_ahead(facts, recipe), 6);
  recipe.set("loader.workers", "4");
  EXPECT_EQ(batches_ahead(facts, recipe), 12);
  recipe.erase("loader.workers");
  recipe.set("loader.background", "true");
  EXPECT_EQ(batches_ahead(facts, recipe), 2);
  EXPECT_EQ(least_block_steps(2), 8);
  EXPECT_EQ(least_block_steps(0), 1);
}

TEST(ForeignTechnique, WhatTheUserSetsStays) {
  const ForeignMachine machine{.cpus = 2,
                               .allocators = {{"jemalloc", "/lib/jemalloc.so"}},
                               .has_huge_pages = true,
                               .has_glibc = true};
  const auto free = foreign_proposals({}, machine, unset);
  EXPECT_EQ(find(free, "allocator").variables, (Pairs{{"LD_PRELOAD", "/lib/jemalloc.so"}}));
  EXPECT_EQ(find(free, "huge_pages").variables.size(), 1u);
  EXPECT_EQ(find(free, "allocator.keep").variables.size(), 1u);
  EXPECT_NE(find(free, "cuda_allocator").refusal.find("CUDA"), std::string::npos);
  ProcessFacts cuda;
  cuda.has_cuda = true;
  EXPECT_EQ(find(foreign_proposals(cuda, machine, unset), "cuda_allocator").variables,
            (Pairs{{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}}));
  const auto taken =
      foreign_proposals({}, machine, [](const std::string&) { return std::string("mine"); });
  EXPECT_NE(find(taken, "allocator").refusal.find("LD_PRELOAD"), std::string::npos);
  for (const char* technique : {"huge_pages", "allocator.keep"})
    EXPECT_NE(find(taken, technique).refusal.find("GLIBC_TUNABLES"), std::string::npos);
}

// Of one variable the settings add up.
TEST(ForeignTechnique, SettingsOfMallocGoTogether) {
  const auto proposals = foreign_proposals({}, {.has_huge_pages = true, .has_glibc = true}, unset);
  const ForeignRecipe keep = with_proposal({}, find(proposals, "allocator.keep"));
  const ForeignRecipe both = with_proposal(keep, find(proposals, "huge_pages"));
  const std::string kept = keep.environment().at("GLIBC_TUNABLES");
  EXPECT_NE(kept.find("trim_threshold"), std::string::npos);
  EXPECT_EQ(both.environment().at("GLIBC_TUNABLES"), kept + ":glibc.malloc.hugetlb=1");
}

TEST(ForeignTechnique, CeilingIsOfThePartThatItChanges) {
  const ForeignProposal loading{.technique = "loader.cache", .part = ForeignPart::kLoading};
  const ForeignProposal computing{.technique = "matmul.tf32", .part = ForeignPart::kComputing};
  const ForeignProposal all{.technique = "threads", .part = ForeignPart::kAll};
  EXPECT_NEAR(*ceiling_of(loading, {.wait = 0.5}), 1 / (1 - 1.3 * 0.5), 1e-9);
  EXPECT_NEAR(*ceiling_of(computing, {.wait = 0.75}), 4.0 / 3, 1e-9);
  EXPECT_FALSE(ceiling_of(all, {.wait = 0.75}));
  EXPECT_LE(*ceiling_of(loading, {.wait = 1}), 100);
  EXPECT_NEAR(*ceiling_of(loading, {.wait = 0}), 1, 1e-9);
  const ForeignProposal update{.technique = "optimizer.fused", .part = ForeignPart::kComputing};
  EXPECT_NEAR(*ceiling_of(update, {.wait = 0}), 100, 1e-9);
  EXPECT_NEAR(*ceiling_of(update, {.wait = 0.2, .update = 0.5}), 2, 1e-9);
  EXPECT_NEAR(*ceiling_of(update, {.wait = 0.75, .update = 0.5}), 4.0 / 3, 1e-9);
  EXPECT_NEAR(*ceiling_of(computing, {.wait = 0.75, .update = 0.5}), 4.0 / 3, 1e-9);
}

// A step of which a tenth waits, two tenths update, and the rest is forward and backward: four
// tenths in products, three of these in convolutions.
TEST(ForeignTechnique, CeilingIsOfTheOperatorsThatItChanges) {
  const PartShares parts{
      .wait = 0.1,
      .update = 0.2,
      .operators = OperatorShares{.images = 0.3, .products = 0.4, .allocations = 0.02, .beside = 0},
      .faults = 0.08};
  const auto ceiling = [&](const std::string& technique, ForeignPart part) {
    return ceiling_of({.technique = technique, .part = part}, parts);
  };
  EXPECT_NEAR(*ceiling("model.compile", ForeignPart::kComputing), 1 / 0.3, 1e-9);
  EXPECT_NEAR(*ceiling("model.channels_last", ForeignPart::kComputing), 1 / 0.7, 1e-9);
  // The rest of forward and backward is three tenths, and half of that stays.
  EXPECT_NEAR(*ceiling("model.autocast", ForeignPart::kComputing), 1 / 0.45, 1e-9);
  EXPECT_NEAR(*ceiling("optimizer.compile", ForeignPart::kComputing), 1 / 0.8, 1e-9);
  EXPECT_NEAR(*ceiling("loader.background", ForeignPart::kLoading), 1 / 0.87, 1e-9);
  EXPECT_NEAR(*ceiling("allocator.keep", ForeignPart::kAll), 1 / 0.9, 1e-9);
  EXPECT_NEAR(*ceiling("interop_threads", ForeignPart::kAll), 1, 1e-9);
  EXPECT_FALSE(ceiling("threads", ForeignPart::kAll));
  EXPECT_FALSE(ceiling("huge_pages", ForeignPart::kAll)) << "large pages are found sooner, too";
  // Without a recording, or on a GPU, nothing is ruled out.
  EXPECT_FALSE(ceiling_of({.technique = "allocator"}, {.faults = 0}));
  EXPECT_FALSE(ceiling_of({.technique = "interop_threads"}, {}));
  EXPECT_NEAR(
      *ceiling_of({.technique = "model.channels_last", .part = ForeignPart::kComputing}, {}),
      100,
      1e-9);
}

// Parts take no longer than before, of a step that has become shorter.
TEST(ForeignTechnique, SharesGrowAsTheStepBecomesShorter) {
  ProgramCosts costs;
  costs.shares = StepShares{.optimizer = 0.2, .operators = OperatorShares{.images = 0.6}};
  costs.baseline_seconds = 0.1;
  costs.step_seconds = 0.05;
  costs.wait_share = 0.3;
  costs.fault_seconds = 0.01;
  const PartShares parts = costs.parts();
  EXPECT_EQ(parts.wait, 0.3);
  EXPECT_NEAR(*parts.update, 0.4, 1e-12);
  EXPECT_NEAR(*parts.faults, 0.2, 1e-12);
  EXPECT_EQ(parts.operators->images, 1);
  costs.shares.reset();
  EXPECT_FALSE(costs.parts().update);
}

TEST(ForeignTechnique, TheMachineIsLookedAt) {
  const test::TempFolder root;
  const auto put = [&](const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories((root.path() / path).parent_path());
    std::ofstream(root.path() / path) << text;
  };
  EXPECT_TRUE(find_machine(root.path()).allocators.empty());
  EXPECT_FALSE(find_machine(root.path()).has_huge_pages);
  put("usr/lib64/libjemalloc.so.2", "");
  put("usr/lib/x86_64-linux-gnu/libmimalloc.so.2", "");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const ForeignMachine machine = find_machine(root.path());
  ASSERT_EQ(machine.allocators.size(), 2u);
  EXPECT_EQ(machine.allocators[0].first, "jemalloc");
  EXPECT_EQ(machine.allocators[1].first, "mimalloc");
  EXPECT_TRUE(machine.has_huge_pages);
  EXPECT_FALSE(machine.has_glibc);
  put("usr/lib64/libc.so.6", "");
  EXPECT_TRUE(find_machine(root.path()).has_glibc);
  put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  EXPECT_FALSE(find_machine(root.path()).has_huge_pages);
}

TEST(StepShares, OfRecordedPrograms) {
  const auto recorded = [](const std::string& program) {
    ProcessFacts facts;
    facts.trace_path = "tests/data/traces/live/" + program + ".trace.json.gz";
    facts.spans_path = "tests/data/traces/live/" + program + ".spans.json.gz";
    return recorded_shares(facts).value();
  };
  const StepShares healthy = recorded("healthy");
  EXPECT_GT(*healthy.optimizer, 0.001);
  EXPECT_LT(*healthy.optimizer, 0.5);
  // Sums of its file: the products take 133 of 166 ms; it has neither images nor other threads.
  EXPECT_NEAR(healthy.operators->products, 0.80, 0.05);
  EXPECT_EQ(healthy.operators->images, 0);
  EXPECT_EQ(healthy.operators->beside, 0);
  EXPECT_LT(healthy.operators->allocations, 0.01);
  EXPECT_TRUE(healthy.findings.empty()) << healthy.findings.front().title;
  EXPECT_FALSE(healthy.device_idle) << "it computes on the CPU";
  const StepShares jpeg = recorded("sick_jpeg");
  ASSERT_FALSE(jpeg.findings.empty());
  EXPECT_EQ(jpeg.findings.front().rule, "R01");
  EXPECT_TRUE(jpeg.findings.front().title.starts_with("input starved"));
  EXPECT_GT(jpeg.findings.front().share, 0.1);
  EXPECT_NEAR(jpeg.findings.front().ceiling, 1 / (1 - jpeg.findings.front().share), 0.2);
  EXPECT_NE(jpeg.findings.front().fix, "");
  EXPECT_LT(*jpeg.optimizer, 0.2);
  EXPECT_GT(jpeg.operators->images, 0.05);
  EXPECT_LT(jpeg.operators->images, 0.2);
  // Its three updates take 3.3 ms of three steps of 134.8 ms; the range of the last one ends with
  // the recording.
  EXPECT_NEAR(*recorded("sick_loop").optimizer, 3.3 / 134.8, 0.003);
  EXPECT_FALSE(recorded_shares({}));
}

TEST(ForeignForecast, IsTwiceAsWideWithoutHistory) {
  const Forecast without = forecast("model.channels_last", "on", 10, {});
  EXPECT_FALSE(without.has_history);
  EXPECT_LT(without.gain.low, 1);
  EXPECT_GT(without.gain.high, 1.6);
  EXPECT_LE(forecast("loader.cache", "on", 1.3, {}).gain.high, 1.3);
  for (const std::string& technique : trial_order()) {
    const SpeedRange gain = forecast(technique, "on", std::nullopt, {}).gain;
    EXPECT_LT(gain.low, gain.high) << technique;
    EXPECT_LE(gain.high, kNoCeiling) << technique;
  }
}

// Student's t of two degrees of freedom is 1.8856 at 0.9, and of three 1.6377.
TEST(ForeignForecast, ThreeTrialsOfThisMachineAreAHistory) {
  GainHistory history;
  std::vector<PastGain>& gains = history["threads = 1"];
  gains = {{std::exp(0.1)}, {std::exp(0.2)}};
  EXPECT_FALSE(forecast("threads", "threads = 1", std::nullopt, history).has_history);
  gains.push_back({std::exp(0.3), 5});
  const Forecast known = forecast("threads", "threads = 1", std::nullopt, history);
  EXPECT_TRUE(known.has_history);
  const double half = 1.8856 * 0.1 * std::sqrt(4.0 / 3);
  EXPECT_NEAR(known.gain.low, std::exp(0.2 - half) / 1.01, 1e-4);
  EXPECT_NEAR(known.gain.high, std::exp(0.2 + half) * 1.01, 1e-4);
  EXPECT_EQ(forecast("threads", "threads = 1", 1.2, history).gain.high, 1.2);
  EXPECT_FALSE(forecast("threads", "threads = 4", std::nullopt, history).has_history);
}

// A loader that waits for little can gain little, and saves the same share of it.
TEST(ForeignForecast, OfATimedPartAShareIsSaved) {
  GainHistory history;
  std::vector<PastGain>& gains = history["cache"];
  for (const double share : {0.6, 0.7, 0.8, 0.9}) gains.push_back({1 / (1 - share / 2), 2});
  const double half = 1.6377 * std::sqrt(0.05 / 3) * std::sqrt(1.25);
  const Forecast known = forecast("loader.cache", "cache", 1.25, history);
  EXPECT_NEAR(known.gain.low, 1 / (1 - (0.75 - half) / 5) / 1.01, 1e-4);
  EXPECT_EQ(known.gain.high, 1.25);  // the ceiling
  EXPECT_NEAR(forecast("loader.cache", "cache", 2, history).gain.high,
              1.01 / (1 - (0.75 + half) / 2),
              1e-4);
  gains.assign(4, {4, 2});
  EXPECT_EQ(forecast("loader.cache", "cache", 1.25, history).gain.high, 1.25);
}

}  // namespace
}  // namespace ridge
