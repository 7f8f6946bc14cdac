// The loop on a machine that is made up: a worker that answers with times that follow from the
// configuration, so that what the loop does with them is the same on every machine.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "ridge/base/error.h"
#include "ridge/proof/ledger/ledger.h"
#include "ridge/proof/ledger/ledger_text.h"
#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/pytorch/recipe.h"
#include "ridge/tune/replay.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

constexpr const char* kConfig =
    "cpu.jit = false\nthreads = 2\n[model]\nkind = 'mlp'\noutputs = 3\n[data]\n"
    "kind = 'random'\nclasses = 3\n[loader]\nworkers = 0\n[train]\nbatch = 8\nsteps = 100\n";

// $1 of `on` is a line of the configuration as it lies in the request. Times are microseconds.
constexpr const char* kMachine = R"(#!/bin/sh
n=1
on() { case $line in *"$1"*) return 0 ;; esac; return 1; }
answer() {
  n=$(((n * 1103515245 + 12345) % 2147483648))
  us=$(($1 * (1000 + n / 65536 % 9 - 4) / 1000))
  printf '{"block":{"seconds":%d.%06d,"waited_seconds":0,"stolen_seconds":0,"switches":0,' \
    $((us / 1000000)) $((us % 1000000))
  echo '"measured_bytes":9}}'
}
while read -r line; do
  if on '"guard":'; then
    guard
  elif on '"open":'; then
    compute=20000 load=5000 workers=0 hash=aa micro=1
    machine
    printf '{"facts":{"plan_hash":"ab","planned_bytes":9,"staging_bytes":1,"state_bytes":1,'
    printf '"batch":8,"micro":%d,"queue":0,"steps_per_epoch":9,"epoch_samples":72,"mix":1,"fair_steps":1,"token_growth":1,"memory_text":"",' $micro
    echo '"recomputed":0,"open_seconds":0.01}}'
  elif on '"run":'; then
    steps=${line#*'"run":'} && steps=${steps%%,*}
    if on '"load"'; then answer $((steps * load))
    elif on '"kept"'; then answer $((steps * compute))
    elif on '"no_kernel"'; then answer $((steps * 500))
    elif on '"report"'; then answer $((steps * 50))
    elif [ $workers = 0 ]; then answer $((steps * (compute + load)))
    else answer $((steps * (compute > load ? compute : load))); fi
  elif on '"timeline":'; then
    printf '{"timeline":{"step_ms":25,"merged":0,"launches":[{"name":"matmul","row":"step",'
    echo '"start_ms":1,"duration_ms":20,"site":"head:matmul"}]}}'
  else
    echo "{\"hash\":\"$hash\"}"
  fi
done
)";

// One thread takes twice as long, a deeper queue 1 / 1.2 and machine code half of the time.
constexpr const char* kOneLosesTwoGain =
    "if on '\\nthreads = 1 ' || on '\"threads = 1 '; then compute=40000; fi\n"
    "if on '\\nprefetch = 8 '; then compute=$((compute * 10 / 12)); fi\n"
    "if on 'cpu.jit = true'; then compute=$((compute / 2)); fi";

Proposals set(const char* key, const char* value, SemanticClass semantic_class) {
  Proposals proposals;
  proposals.tries.push_back({.changes = {{key, value, "test"}},
                             .semantic_class = semantic_class,
                             .hypothesis = "made up"});
  return proposals;
}

Proposals jit(const Situation& s) {
  if (s.settings.get_bool("cpu.jit")) return {.tries = {}, .reason = "it is on"};
  return set("cpu.jit", "true", SemanticClass::kBitIdentical);
}

Proposals tuned(const Situation& s) {
  if (s.config.loader.prefetch == 8) return {.tries = {}, .reason = "it is on"};
  return set("loader.prefetch", "8", SemanticClass::kBitIdentical);
}

Proposals one_thread(const Situation&) { return set("threads", "1", SemanticClass::kBitIdentical); }

Proposals bf16(const Situation& s) {
  if (s.config.train.precision != Precision::kF32) return {.tries = {}, .reason = "it is on"};
  return set("train.precision", "bf16", SemanticClass::kPrecision);
}

Proposals queue(const Situation& s) {
  if (s.config.loader.prefetch == 6) return {.tries = {}, .reason = "it is on"};
  return set("loader.prefetch", "6", SemanticClass::kBitIdentical);
}

Proposals rarely(const Situation&) {
  return set("metrics.every", "50", SemanticClass::kBitIdentical);
}

Proposals never(const Situation&) { return {.tries = {}, .reason = "not here"}; }

constexpr Technique kThreads{"threads", "", Affects::kComputing, one_thread};
constexpr Technique kTuned{"tuned", "", Affects::kComputing, tuned};
constexpr Technique kJit{"jit", "", Affects::kComputing, jit};
constexpr Technique kBf16{"bf16", "", Affects::kComputing, bf16};
constexpr Technique kQueue{"queue", "", Affects::kLoading, queue};
constexpr Technique kMetrics{"metrics", "", Affects::kReporting, rarely};
constexpr Technique kNever{"never", "", Affects::kComputing, never};

class Told final : public OptimizeObserver {
 public:
  void on_message(const std::string&) override {}
  void on_trial(const TrialRecord& record) override { records.push_back(record); }
  std::vector<TrialRecord> records;
};

class OptimizeLoop : public testing::Test {
 protected:
  OptimizeLoop() { signal(SIGPIPE, SIG_IGN); }

  /// `machine` sets the times of a variant, by `on`; `guard` answers where there is one.
  OptimizeResult optimize(
      const std::vector<Technique>& techniques,
      const std::string& machine,
      const std::string& guard =
          "echo '{\"guard\":{\"passed\":true,\"can_tell\":true,\"text\":\"fine\",\"margin\":0,"
          "\"detectable\":0,\"power\":0,\"f32_modules\":[]}}'") {
    prepare(techniques, machine, guard);
    OptimizeResult result = run_loop(*config_target(request_), request_.loop, told_);
    check_records(result, techniques);
    return result;
  }

  void prepare(const std::vector<Technique>& techniques,
               const std::string& machine,
               const std::string& guard) {
    const auto program = folder_ / "worker";
    std::string script = kMachine;
    const std::string begin = "while read";
    script.insert(script.find(begin),
                  "machine() {\n" + machine + "\n}\nguard() {\n" + guard + "\n}\n");
    std::ofstream(program) << script;
    chmod(program.c_str(), 0755);
    request_.config_text = kConfig;
    request_.config_name = "test";
    request_.program = program.string();
    request_.techniques = techniques;
    told_.records.clear();
  }

  /// This holds whatever happens: each technique has a record, every verdict follows from its
  /// pairs, and all of it can be read back.
  void check_records(const OptimizeResult& result, const std::vector<Technique>& techniques) {
    EXPECT_EQ(told_.records.size(), result.trials.size());
    std::string ledger = to_json(LedgerRun{});
    for (const TrialRecord& record : result.trials) {
      EXPECT_EQ(contradictions(record, hash_of_recipe_text), std::vector<std::string>{})
          << record.technique;
      EXPECT_FALSE(record.reason.empty()) << record.technique;
      ledger += to_json(record);
    }
    EXPECT_EQ(parse_ledger(ledger, "l").trials.size(), result.trials.size());
    for (const Technique& technique : techniques)
      EXPECT_FALSE(of(result, technique.name).empty()) << technique.name;
  }

  static std::vector<TrialRecord> of(const OptimizeResult& result, std::string_view technique) {
    std::vector<TrialRecord> records;
    std::copy_if(result.trials.begin(),
                 result.trials.end(),
                 std::back_inserter(records),
                 [&](const TrialRecord& record) { return record.technique == technique; });
    return records;
  }
  /// The verdict of the only record of the technique.
  static TrialVerdict verdict(const OptimizeResult& result, std::string_view technique) {
    const std::vector<TrialRecord> records = of(result, technique);
    EXPECT_EQ(records.size(), 1u) << technique;
    return records.empty() ? TrialVerdict::kNotTried : records[0].verdict;
  }

  test::TempFolder folder_;
  OptimizeRequest request_;
  Told told_;
};

TEST_F(OptimizeLoop, WhatPromisesMostIsTriedFirstAndWhatPromisesNothingIsRefused) {
  const OptimizeResult result = optimize({kThreads, kTuned, kNever, kJit}, kOneLosesTwoGain);
  ASSERT_GE(result.trials.size(), 2u);
  EXPECT_EQ(result.trials[0].technique, "jit");
  EXPECT_EQ(result.trials[1].technique, "tuned");
  EXPECT_EQ(verdict(result, "jit"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "tuned"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "threads"), TrialVerdict::kRefused);
  EXPECT_LT(of(result, "threads")[0].predicted.value().high, 0.8);
  EXPECT_EQ(verdict(result, "never"), TrialVerdict::kNotTried);
  EXPECT_EQ(of(result, "never")[0].reason, "not here");
  // 25 ms became 15, then 13.3: the parts were predicted well, each beside the other.
  for (const char* name : {"jit", "tuned"}) {
    const TrialRecord record = of(result, name)[0];
    EXPECT_LE(record.predicted.value().low, record.measured.value().mid) << name;
    EXPECT_GE(record.predicted.value().high, record.measured.value().mid) << name;
    EXPECT_LT(record.predicted->high / record.predicted->low, 1.2) << name;
  }
  // Both still gain beside each other, and the proof has the sum.
  EXPECT_EQ(verdict(result, "without jit"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "without tuned"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, std::string(kProofTechnique)), TrialVerdict::kKept);
  EXPECT_NEAR(result.summary.claim.speedup, 25.0 / 13.33, 0.03);
  EXPECT_EQ(kept_steps(result.trials).size(), 2u);
}

// Computing was looked at before loading changed: what it gains now, 20.5 / 12.5 and not 35 / 27,
// follows from what was measured then.
TEST_F(OptimizeLoop, APartThatDidNotChangeIsNotMeasuredAgain) {
  const OptimizeResult result = optimize({kJit, kQueue},
                                         "echo opened >>\"$0.log\"\n"
                                         "load=15000\n"
                                         "if on 'cpu.jit = true'; then compute=12000; fi\n"
                                         "if on '\\nprefetch = 6 '; then load=500; fi");
  ASSERT_GE(result.trials.size(), 2u);
  EXPECT_EQ(result.trials[0].technique, "queue");
  EXPECT_EQ(result.trials[1].technique, "jit");
  EXPECT_EQ(verdict(result, "jit"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "queue"), TrialVerdict::kKept);
  const TrialRecord computed = of(result, "jit")[0];
  EXPECT_LE(computed.predicted.value().low, 20.5 / 12.5);
  EXPECT_GE(computed.predicted.value().high, 20.5 / 12.5);
  EXPECT_GT(computed.predicted.value().low, 35.0 / 27);
  EXPECT_NEAR(result.summary.claim.speedup, 35 / 12.5, 0.05);
  // The configuration, its twin, the second micro-batch size; a look each, and the trial of what
  // was not held open; two without a change, and two for the proof.
  std::ifstream log(folder_ / "worker.log");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(log), {}, '\n'), 3 + 3 + 2 + 2);
}

TEST_F(OptimizeLoop, AProofIsReplayedFromItsRecord) {
  const OptimizeResult result =
      optimize({kJit}, "if on 'cpu.jit = true'; then compute=$((compute / 2)); fi");
  ASSERT_EQ(result.trials.back().technique, kProofTechnique);
  const TrialResult again = replay(result.trials.back(), *config_target(request_), 1000, 1);
  ASSERT_TRUE(again.interval);
  EXPECT_EQ(again.verdict, Verdict::kFaster);
  EXPECT_NEAR(std::exp(again.gain), 25.0 / 15, 0.02);
  TrialRecord same = result.trials.back();
  same.recipe_before = same.recipe;
  EXPECT_THROW(replay(same, *config_target(request_), 1000, 1), UserError);
}

// The change that made the step faster first is no use any more once the precision is lower.
TEST_F(OptimizeLoop, WhatNoLongerGainsIsDropped) {
  const OptimizeResult result =
      optimize({kJit, kBf16},
               "if on 'cpu.jit = true'; then compute=12000; fi\n"
               "if on 'precision = \\\"bf16'; then compute=4000 hash=bb; fi");
  EXPECT_EQ(result.trials[0].technique, "jit");
  EXPECT_EQ(verdict(result, "jit"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "bf16"), TrialVerdict::kKept);
  EXPECT_EQ(verdict(result, "without jit"), TrialVerdict::kDropped);
  EXPECT_TRUE(of(result, "without bf16").empty());  // it is all there is
  EXPECT_EQ(result.summary.recipe.find("cpu.jit"), std::string::npos) << result.summary.recipe;
  EXPECT_NE(result.summary.recipe.find("bf16"), std::string::npos) << result.summary.recipe;
  const std::vector<const TrialRecord*> steps = kept_steps(result.trials);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]->technique, "bf16");
  EXPECT_NEAR(result.summary.claim.speedup, 25.0 / 9, 0.05);
}

// On a busy machine so short a budget may end before the guard begins, and a longer one does not.
TEST_F(OptimizeLoop, AGuardWithoutAVerdictInTimeKeepsNothing) {
  OptimizeResult result;
  for (const double budget : {8, 16, 32, 64}) {
    request_.loop.budget_seconds = budget;
    result = optimize(
        {kBf16}, "if on 'precision = \\\"bf16'; then compute=4000 hash=bb; fi", "exec sleep 3600");
    if (verdict(result, "bf16") == TrialVerdict::kUnguarded) break;
  }
  EXPECT_EQ(verdict(result, "bf16"), TrialVerdict::kUnguarded);
  EXPECT_TRUE(result.summary.recipe.empty());
  EXPECT_EQ(result.summary.claim.speedup, 1);
}

// Neither passed nor failed: more time might tell.
TEST_F(OptimizeLoop, WhatTheGuardCannotTellIsUnguarded) {
  const OptimizeResult result =
      optimize({kBf16},
               "if on 'precision = \\\"bf16'; then compute=4000 hash=bb; fi",
               "echo '{\"guard\":{\"passed\":false,\"can_tell\":false,\"text\":\"cannot tell: few "
               "samples\",\"margin\":0,\"detectable\":0,\"power\":0,\"f32_modules\":[]}}'");
  EXPECT_EQ(verdict(result, "bf16"), TrialVerdict::kUnguarded);
  EXPECT_EQ(of(result, "bf16")[0].reason, "cannot tell: few samples");
  EXPECT_TRUE(result.summary.recipe.empty());
}

TEST_F(OptimizeLoop, WhatFailsOrMayNotBeChangedWasPredicted) {
  request_.flags = {{"cpu.jit", "false", "--set"}};
  const OptimizeResult result =
      optimize({kJit, kTuned, kBf16},
               "if on 'cpu.jit = true'; then compute=10000; fi\n"
               "if on '\\nprefetch = 8 '; then compute=10000 hash=bb; fi\n"
               "if on 'precision = \\\"bf16'; then compute=4000; answer() {\n"
               "  if on '\"train\"' && [ $steps != 2 ]; then exit 3; fi\n"
               "  echo \"{\\\"block\\\":{\\\"seconds\\\":$1e-6,\\\"waited_seconds\\\":0,"
               "\\\"stolen_seconds\\\":0,\\\"switches\\\":0,\\\"measured_bytes\\\":9}}\"; }; fi");
  EXPECT_EQ(verdict(result, "jit"), TrialVerdict::kNotTried);
  EXPECT_EQ(of(result, "jit")[0].reason, "cpu.jit is set by --set");
  EXPECT_EQ(verdict(result, "tuned"), TrialVerdict::kGuardFailed);
  EXPECT_EQ(verdict(result, "bf16"), TrialVerdict::kFailed);
  EXPECT_EQ(of(result, "bf16")[0].reason, "it ended with exit code 3");
  EXPECT_NEAR(of(result, "jit")[0].predicted.value().low, 1.6, 0.1);
  EXPECT_NEAR(of(result, "tuned")[0].predicted.value().high, 1.7, 0.1);
  EXPECT_GT(of(result, "bf16")[0].predicted.value().high, 2.7);
  EXPECT_TRUE(result.summary.recipe.empty());
}

TEST_F(OptimizeLoop, ADryRunPredictsAndTriesNothing) {
  request_.loop.is_dry = true;
  const OptimizeResult result = optimize({kThreads, kTuned, kNever, kJit}, kOneLosesTwoGain);
  ASSERT_EQ(result.trials.size(), 4u);
  EXPECT_EQ(result.trials[0].technique, "jit");
  EXPECT_EQ(result.trials[0].reason, "dry run: it would be number 1 to be tried");
  EXPECT_EQ(result.trials[1].technique, "tuned");
  for (const TrialRecord& record : result.trials) {
    EXPECT_TRUE(record.pairs.empty());
    EXPECT_NE(record.verdict, TrialVerdict::kKept);
    EXPECT_EQ(record.predicted.has_value(), record.technique != "never") << record.technique;
  }
  EXPECT_TRUE(result.summary.is_dry);
  EXPECT_TRUE(result.summary.recipe.empty());
  ASSERT_GE(result.summary.parts.size(), 2u);
  EXPECT_NE(result.summary.parts[1].find("1.25 times as fast if loading were free"),
            std::string::npos)
      << result.summary.parts[1];
}

// Twice as many micro-batches cost 2 ms more: each costs 2 ms, and 8 samples share the rest.
TEST_F(OptimizeLoop, ASecondMicroBatchSizeTellsWhatLaunchesCost) {
  const OptimizeResult result =
      optimize({kNever}, "if on '\\nmicro = 2 '; then compute=22000 micro=2; fi");
  ASSERT_EQ(result.summary.parts.size(), 3u);
  double launch = 0, error = 0, sample = 0, ceiling = 0;
  EXPECT_EQ(std::sscanf(result.summary.parts[2].c_str(),
                        "a micro-batch costs %lf ms (give or take %lf) + %lf ms a sample: what "
                        "only saves launches gains %lf at most",
                        &launch,
                        &error,
                        &sample,
                        &ceiling),
            4)
      << result.summary.parts[2];
  EXPECT_NEAR(launch, 2, 0.3);
  EXPECT_LT(error, 0.3);
  EXPECT_NEAR(sample, 18.0 / 8, 0.05);
  EXPECT_NEAR(ceiling, 25.0 / 23, 0.03);
}

// 50 us of 25 ms; the step of the baseline has a picture, and without a proof nothing is weighed.
TEST_F(OptimizeLoop, TheReportOfAStepHasItsCeiling) {
  const OptimizeResult result = optimize({kMetrics}, ":");
  ASSERT_EQ(result.trials.size(), 1u);
  EXPECT_EQ(result.trials[0].verdict, TrialVerdict::kNotTried);
  EXPECT_TRUE(result.trials[0].reason.starts_with("ceiling 1.00: reporting costs 0.05 ms of 2"))
      << result.trials[0].reason;
  const StepTimeline& timeline = result.summary.result.timeline;
  ASSERT_EQ(timeline.launches.size(), 1u);
  EXPECT_EQ(timeline.launches[0].site, "head:matmul");
  EXPECT_NE(result.summary.energy_problem, "");
}

// Blocks of this machine differ by less than half a percent, which is the least that is believed.
TEST_F(OptimizeLoop, TheMeasuredNoiseReachesTheLoop) {
  prepare({}, ":", ":");
  double noise = 0.02;
  OptimizeSummary summary;
  const LoopBudget budget(1e6);
  config_target(request_)->start({budget, told_, summary, noise});
  EXPECT_EQ(noise, 0.005);
}

}  // namespace
}  // namespace ridge
