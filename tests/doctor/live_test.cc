// The examination of programs that were watched while they ran: marks of all steps, a profile of
// some, and the load of their processes.
#include "ridge/doctor/live/live.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/doctor/read/read_kineto.h"
#include "ridge/doctor/report/html.h"
#include "ridge/doctor/report/json.h"
#include "ridge/doctor/report/text.h"
#include "tests/doctor/live_trace.h"

namespace ridge::doctor {
namespace {

// The first finding that is not about the recording.
const Finding* first(const Examination& examination) {
  for (const Finding& each : examination.diagnosis.findings)
    if (each.rule != "R00") return &each;
  return nullptr;
}

const Finding* found(const Examination& examination, std::string_view rule) {
  for (const Finding& each : examination.diagnosis.findings)
    if (each.rule == rule) return &each;
  return nullptr;
}

std::string reason(const Examination& examination, std::string_view rule) {
  for (const NotFired& each : examination.diagnosis.not_fired)
    if (each.rule == rule) return each.reason;
  return {};
}

LiveFacts quiet() {
  LiveFacts facts;
  facts.cpus = 2;
  facts.seconds = 10;
  facts.main_cpu = 0.95;
  facts.main_queue = facts.queue = 0.01;
  facts.busy_threads = facts.used_cpus = 1.8;
  facts.torch_threads = 2;
  facts.step_source = "optimizer";
  return facts;
}

// Steps of 20 ms in a few large operators.
Profile healthy() {
  Profile profile{.step_ms = 20, .layers = {}};
  for (int i = 0; i < 6; ++i)
    profile.layers.push_back(
        {.name = "aten::linear", .shapes = "[[256, 784], [784, 784], [784]]", .us = 3000});
  for (int i = 0; i < 40; ++i)
    profile.layers.push_back(
        {.name = "aten::add_", .shapes = fmt::format("[[{}]]", 10 + i), .us = 5});
  return profile;
}

TEST(Live, HealthyProgramHasNothingWorthFixing) {
  const Examination examination =
      examine_live(profile_of(healthy()), marks_of({.steps = 300, .step_ms = 20}), quiet());
  EXPECT_FALSE(has_findings(examination.diagnosis)) << doctor_text(examination);
  EXPECT_NE(verdict_text(examination).find("nothing here is worth fixing"), std::string::npos)
      << verdict_text(examination);
}

TEST(Live, TimesAreThoseOfStepsWithoutAProfiler) {
  Profile profile = healthy();
  profile.step_ms = 26;
  profile.layers[0].us = 9000;
  const Examination examination =
      examine_live(profile_of(profile), marks_of({.steps = 300, .step_ms = 20}), quiet());
  ASSERT_TRUE(examination.analysis.unprofiled);
  EXPECT_EQ(examination.analysis.unprofiled->steps, 300);
  EXPECT_NEAR(examination.analysis.unprofiled->slowdown, 0.3, 1e-6);
  EXPECT_NEAR(examination.analysis.step_ms_median, 20, 1e-6);
  const Breakdown& mean = examination.analysis.breakdown;
  EXPECT_NEAR(mean.wall, 20, 1e-6);
  EXPECT_NEAR(mean.compute + mean.starved, 20, 1e-6);
  EXPECT_NEAR(mean.busy + mean.idle, 20, 1e-6);
  const auto report = nlohmann::json::parse(doctor_json(examination));
  EXPECT_EQ(report.at("unprofiled").at("steps"), 300);
  EXPECT_NEAR(report.at("step_ms").at("median").get<double>(), 20, 1e-6);
  const std::string text = doctor_text(examination);
  EXPECT_NE(text.find("300 steps without a profiler, which makes them 30 % longer: a step takes "
                      "20.00 ms"),
            std::string::npos)
      << text;
  EXPECT_NE(doctor_html(examination).find("300 steps without a profiler"), std::string::npos);
  const Finding* doubt = found(examination, "R00");
  ASSERT_NE(doubt, nullptr);
  EXPECT_EQ(doubt->severity, Severity::kInfo);
  EXPECT_NE(doubt->evidence.at(0).text.find("30 % longer"), std::string::npos);
}

TEST(Live, DataThatIsMadeBetweenStepsIsNamed) {
  Profile profile{
      .step_ms = 100, .loader_ms = 80, .layers = {{.us = 6000}, {.us = 6000}, {.us = 6000}}};
  const Examination examination = examine_live(
      profile_of(profile), marks_of({.steps = 200, .step_ms = 100, .loader_ms = 80}), quiet());
  const Finding* finding = first(examination);
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->rule, "R01");
  EXPECT_EQ(finding->severity, Severity::kHigh);
  EXPECT_NEAR(finding->cost_ms, 80, 0.1);
  EXPECT_NEAR(finding->share, 0.8, 1e-3);
  EXPECT_NEAR(finding->ceiling, 5, 0.05);
  // Two processors: 80 ms of loading and 20 of both are 60 at worst, and 40 at best.
  EXPECT_NEAR(finding->predicted.low, 1 + 0.7 * (100.0 / 60 - 1), 0.01);
  EXPECT_NEAR(finding->predicted.high, 2.5, 0.02);
  EXPECT_NE(finding->fix.find("num_workers"), std::string::npos);
  EXPECT_NEAR(
      examination.analysis.breakdown.starved_by[static_cast<size_t>(HostCause::kLoader)], 80, 0.1);
}

TEST(Live, WhatWorkersDoToBatchesIsThatOfTheWatch) {
  const Profile profile{
      .step_ms = 100, .loader_ms = 50, .layers = {{.us = 16000}, {.us = 16000}, {.us = 16000}}};
  const auto told = [&](const LiveFacts& facts) {
    const Examination examination = examine_live(
        profile_of(profile), marks_of({.steps = 200, .step_ms = 100, .loader_ms = 50}), facts);
    const Finding* finding = found(examination, "R01");
    return finding == nullptr ? Finding{} : *finding;
  };
  LiveFacts facts = quiet();
  EXPECT_EQ(told(facts).semantic_class, SemanticClass::kTrajectory);
  facts.batches = {
      .workers_class = SemanticClass::kBitIdentical, .reason = "", .make_ms = 49, .bytes = 100'000};
  const Finding two = told(facts);
  EXPECT_EQ(two.semantic_class, SemanticClass::kBitIdentical);
  // Operators use both processors: workers would take half of the loading over at most.
  EXPECT_LT(two.fix.find("less work"), two.fix.find("let workers")) << two.fix;
  facts.cpus = 16;
  const Finding many = told(facts);
  EXPECT_LT(many.fix.find("let workers"), many.fix.find("less work")) << many.fix;
  facts.batches = {.workers_class = SemanticClass::kTrajectory,
                   .reason = "samples draw random numbers (random)",
                   .make_ms = 49,
                   .bytes = 100'000};
  EXPECT_EQ(told(facts).semantic_class, SemanticClass::kTrajectory);
  EXPECT_NE(told(facts).fix.find("samples draw random numbers (random)"), std::string::npos);
}

TEST(Live, WorkersWithoutAProcessorAreNotToBecomeMore) {
  LiveFacts facts = quiet();
  facts.loader_workers = 4;
  facts.used_cpus = 1.97;
  const Marks marks{
      .steps = 200, .step_ms = 100, .loader_ms = 60, .loader = "DataLoader.__next__ (workers)"};
  Profile profile{.step_ms = 100, .loader_ms = 60, .layers = {{.us = 18000}, {.us = 18000}}};
  profile.loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
  const Examination full = examine_live(profile_of(profile), marks_of(marks), facts);
  ASSERT_NE(first(full), nullptr);
  EXPECT_EQ(first(full)->rule, "R02") << doctor_text(full);
  EXPECT_EQ(first(full)->semantic_class, SemanticClass::kBitIdentical);
  EXPECT_NE(reason(full, "R01").find("R02"), std::string::npos);
  facts.used_cpus = 1.2;
  const Examination idle = examine_live(profile_of(profile), marks_of(marks), facts);
  ASSERT_NE(first(idle), nullptr);
  EXPECT_EQ(first(idle)->rule, "R01") << doctor_text(idle);
}

TEST(Live, CheckpointsOfAllStepsAreCountedNotOnlyThoseOfTheProfile) {
  const Examination examination =
      examine_live(profile_of(healthy()),
                   marks_of({.steps = 300, .step_ms = 20, .save_each = 5, .save_ms = 60}),
                   quiet());
  const Finding* finding = first(examination);
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->rule, "R29");
  EXPECT_EQ(finding->title, "a step stalls: each 5 steps");
  EXPECT_NEAR(finding->cost_ms, 12, 0.2);
  EXPECT_NEAR(finding->share, 12.0 / 32, 0.01);
  EXPECT_NE(finding->evidence.at(1).text.find("'torch.save' takes 60"), std::string::npos)
      << finding->evidence.at(1).text;
  EXPECT_NEAR(examination.analysis.breakdown.wall, 32, 0.2);
  EXPECT_NEAR(examination.analysis.step_ms_median, 20, 0.1);
}

TEST(Live, CheckpointsOfEachSecondStepAreNoStallsButTooMany) {
  const Examination examination =
      examine_live(profile_of(healthy()),
                   marks_of({.steps = 300, .step_ms = 20, .save_each = 2, .save_ms = 20}),
                   quiet());
  const Finding* finding = first(examination);
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->rule, "R29");
  EXPECT_EQ(finding->title, "torch.save takes 33 % of the time");
  EXPECT_NEAR(finding->cost_ms, 10, 0.1);
}

TEST(Live, CheckpointsAmongUnevenStepsAreNoNoise) {
  // Steps differ by more than a checkpoint of 10 ms takes: only some of those are slow.
  Marks marks{.steps = 300, .step_ms = 20, .save_each = 5, .save_ms = 10};
  for (int step = 0; step < 300; ++step) marks.slow[step] = 20 + 0.5 * ((step * 7) % 13);
  for (int step = 4; step < 300; step += 15) marks.slow[step] = 60;
  const Examination examination = examine_live(profile_of(healthy()), marks_of(marks), quiet());
  const Finding* finding = first(examination);
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->rule, "R29");
  EXPECT_NE(finding->evidence.at(0).text.find("'torch.save' is called once in 5 steps"),
            std::string::npos)
      << doctor_text(examination);
}

TEST(Live, SlowStepsOneAfterTheOtherAreNoPeriod) {
  Marks marks{.steps = 300, .step_ms = 20};
  for (int step : {100, 101, 102, 103, 104, 105}) marks.slow[step] = 400;
  const Examination examination = examine_live(profile_of(healthy()), marks_of(marks), quiet());
  EXPECT_FALSE(has_findings(examination.diagnosis)) << doctor_text(examination);
}

TEST(Live, NowAndThenASlowStepThatNothingExplainsIsARemark) {
  Marks marks{.steps = 300, .step_ms = 20};
  for (int step : {7, 31, 77, 90, 143, 171, 200, 222, 271}) marks.slow[step] = 90;
  const Examination examination = examine_live(profile_of(healthy()), marks_of(marks), quiet());
  const Finding* finding = found(examination, "R29");
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->severity, Severity::kInfo);
}

TEST(Live, MoreThreadsThanProcessorsAreNamed) {
  LiveFacts facts = quiet();
  facts.torch_threads = 16;
  facts.busy_threads = 6.5;
  facts.queue = 4.6;
  facts.used_cpus = 1.9;
  facts.main_queue = 0.12;
  const auto told = [&](const LiveFacts& given) {
    return examine_live(profile_of(healthy()), marks_of({.steps = 300, .step_ms = 20}), given);
  };
  const Examination examination = told(facts);
  const Finding* finding = first(examination);
  ASSERT_NE(finding, nullptr) << doctor_text(examination);
  EXPECT_EQ(finding->rule, "R30");
  EXPECT_GT(finding->severity, Severity::kInfo);
  EXPECT_TRUE(finding->title.starts_with("16 threads for 2 processors")) << finding->title;
  EXPECT_NE(finding->fix.find("torch.set_num_threads(2)"), std::string::npos);
  EXPECT_LE(finding->predicted.high, finding->ceiling);
  LiveFacts ranks = facts;
  ranks.ranks = 4;
  ranks.cpus = 8;
  ranks.main_queue = 0.01;
  ranks.queue = 0.1;
  const Examination several = told(ranks);
  EXPECT_EQ(first(several), nullptr) << doctor_text(several);  // 16 threads, but few at a time
  ranks.used_cpus = 7.9;
  ranks.queue = 4.6;
  const Examination crowded = told(ranks);
  ASSERT_NE(first(crowded), nullptr) << doctor_text(crowded);
  EXPECT_TRUE(first(crowded)->title.starts_with("16 threads of 4 processes for 8 processors"))
      << first(crowded)->title;
  EXPECT_NE(first(crowded)->fix.find("in each torch.set_num_threads(2)"), std::string::npos);
  // With as many processors as threads they wait for work.
  facts.cpus = 16;
  facts.main_queue = 0.01;
  facts.queue = 0.1;
  EXPECT_EQ(first(told(facts)), nullptr) << doctor_text(told(facts));
  facts.quota_cpus = 2;
  facts.throttled = 0.4;
  const Examination stopped = told(facts);
  ASSERT_NE(first(stopped), nullptr);
  EXPECT_EQ(first(stopped)->rule, "R30");
  EXPECT_NE(first(stopped)->title.find("quota is 2 processors"), std::string::npos);
}

TEST(Live, OtherProgramsOnTheProcessorsAreNamed) {
  LiveFacts facts = quiet();
  facts.main_queue = 0.3;
  facts.main_cpu = 0.5;
  const Examination examination =
      examine_live(profile_of(healthy()), marks_of({.steps = 300, .step_ms = 20}), facts);
  ASSERT_NE(first(examination), nullptr);
  EXPECT_EQ(first(examination)->rule, "R30");
  EXPECT_NEAR(first(examination)->cost_ms, 6, 0.1);
  EXPECT_EQ(first(examination)->title, "the thread that trains waits for a processor");
}

TEST(Live, MarksSayWhatWasDoneBetweenTheOperatorsOfTheProfile) {
  Profile profile = healthy();
  profile.step_ms = 30;
  Trace recorded = profile_of(profile);
  Trace marks = marks_of({.steps = 100,
                          .step_ms = 20,
                          .save_each = 1,
                          .save_ms = 10,
                          .profiled_from = 50,
                          .profiled_to = 60});
  const auto unknown = [&] {
    return examine_live(recorded, marks, quiet())
        .analysis.breakdown.starved_by[static_cast<size_t>(HostCause::kUnknown)];
  };
  EXPECT_GT(unknown(), 5) << "the clocks are not known to agree";
  marks.base_ns = 1'000'000'000;
  recorded.base_ns = marks.base_ns + 51 * 30'000'000;
  // 1.6 ms of each step are neither in an operator nor in torch.save.
  EXPECT_LT(unknown(), 2);
}

TEST(Live, ThreadsThatAnotherProgramKeepsFromTheirProcessorAreNamed) {
  LiveFacts facts = quiet();
  // The thread that trains spins; the other one of an operator has no processor half of the time.
  facts.queue = 0.55;
  facts.main_queue = 0.05;
  const auto told = [&] {
    return examine_live(profile_of(healthy()), marks_of({.steps = 300, .step_ms = 20}), facts);
  };
  const Examination examination = told();
  ASSERT_NE(first(examination), nullptr) << doctor_text(examination);
  EXPECT_EQ(first(examination)->rule, "R30");
  EXPECT_NEAR(first(examination)->share, 0.5, 1e-6);
  EXPECT_NE(first(examination)->title.find("threads of theirs"), std::string::npos);
  facts.loader_workers = 4;  // It may be these that wait: that is the loader's business.
  EXPECT_EQ(first(told()), nullptr) << doctor_text(told());
}

TEST(Live, TheRankThatOthersWaitForCommunicatesLeast) {
  const auto row = [](double step_ms, double communication_ms) {
    RankRow rank;
    rank.step_ms = step_ms;
    rank.communication_ms = communication_ms;
    return rank;
  };
  const std::vector<RankRow> together = {row(100.2, 40), row(100, 5), row(100.1, 38)};
  EXPECT_EQ(slowest_rank(together), 1u);
  const std::vector<RankRow> apart = {row(10, 0), row(20, 0), row(20, 0)};
  EXPECT_EQ(slowest_rank(apart), 1u);
  EXPECT_EQ(slowest_rank({}), 0u);
}

// ---- one of both, or none ----

// A program that goes on has not closed its file: that is no reason to doubt what it holds.
TEST(Live, MarksThatGoOnAreWhole) {
  std::string text = R"({"baseTimeNanoseconds":1000000000,"traceEvents":[)";
  for (int step = 0; step < 100; ++step)
    text += fmt::format(
        R"({}{{"ph":"X","cat":"user_annotation","name":"Step#{}","pid":1,"tid":1,"ts":{},"dur":{}}})",
        step == 0 ? "" : ",",
        step,
        step * 20000,
        20000);
  const auto told = [](std::string_view marks) {
    const auto source = [&](std::span<std::byte> out) {
      const size_t bytes = marks.copy(reinterpret_cast<char*>(out.data()), out.size());
      marks.remove_prefix(bytes);
      return bytes;
    };
    return doctor_text(examine_live({}, read_kineto(source, "marks"), quiet()));
  };
  EXPECT_EQ(told(text), told(text + "]}"));
  EXPECT_NE(told(text).find(" steady steps"), std::string::npos) << told(text);
}

TEST(Live, MarksAloneStillTell) {
  const Examination saved = examine_live(
      {}, marks_of({.steps = 100, .step_ms = 20, .save_each = 5, .save_ms = 60}), quiet());
  ASSERT_NE(first(saved), nullptr);
  EXPECT_EQ(first(saved)->rule, "R29");
  const Examination loaded =
      examine_live({}, marks_of({.steps = 100, .step_ms = 20, .loader_ms = 12}), quiet());
  ASSERT_NE(first(loaded), nullptr);
  EXPECT_EQ(first(loaded)->rule, "R01");
  const Examination plain = examine_live({}, marks_of({.steps = 100, .step_ms = 20}), quiet());
  EXPECT_EQ(first(plain), nullptr);
  EXPECT_EQ(verdict_text(plain),
            "no rule found what to fix, but what a step computes was not recorded");
  ASSERT_NE(found(plain, "R00"), nullptr);
  EXPECT_NE(doctor_text(plain).find("no operators were recorded"), std::string::npos)
      << doctor_text(plain);
  EXPECT_NEAR(plain.analysis.step_ms_median, 20, 1e-6);
}

TEST(Live, ProfileAloneIsExaminedAsATraceIs) {
  LiveFacts facts = quiet();
  facts.main_queue = 0.3;
  const Examination examination = examine_live(profile_of(healthy()), {}, facts);
  EXPECT_FALSE(examination.analysis.unprofiled);
  EXPECT_NEAR(examination.analysis.step_ms_median, 20, 1e-6);
  ASSERT_NE(first(examination), nullptr);
  EXPECT_EQ(first(examination)->rule, "R30");
}

TEST(Live, NoStepIsToldWithWhatWasLookedFor) {
  const Examination examination = examine_live({}, {}, LiveFacts{});
  const Finding* finding = found(examination, "R00");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title, "no training step was seen");
  EXPECT_NE(finding->evidence.at(0).text.find("torch.optim"), std::string::npos);
  EXPECT_TRUE(has_findings(examination.diagnosis));
  EXPECT_TRUE(nlohmann::json::accept(doctor_json(examination)));
  EXPECT_NE(doctor_text(examination).find("torch.nn.Module"), std::string::npos);
  EXPECT_FALSE(doctor_html(examination).empty());
}

TEST(Live, StepsThatWereProfiledAreNotCounted) {
  Marks marks{.steps = 100, .step_ms = 20};
  for (int step = 50; step < 59; ++step) marks.slow[step] = 35;
  marks.profiled_from = 50;
  marks.profiled_to = 59;
  const Examination examination = examine_live(profile_of(healthy()), marks_of(marks), quiet());
  EXPECT_EQ(examination.analysis.unprofiled->steps, 91);
  EXPECT_NEAR(examination.analysis.step_ms_max, 20, 0.1);
  EXPECT_EQ(found(examination, "R29"), nullptr) << doctor_text(examination);
}

// ---- beside a device ----

TEST(Live, LoaderBesideABusyDeviceCostsNothing) {
  Profile profile{.step_ms = 20, .loader_ms = 10, .layers = {{.us = 2000}}};
  profile.device_ms = 19;
  const Examination examination = examine_live(
      profile_of(profile), marks_of({.steps = 200, .step_ms = 20, .loader_ms = 10}), quiet());
  EXPECT_FALSE(examination.analysis.is_cpu_only);
  EXPECT_EQ(found(examination, "R01"), nullptr) << doctor_text(examination);
  EXPECT_FALSE(has_findings(examination.diagnosis)) << doctor_text(examination);
}

}  // namespace
}  // namespace ridge::doctor
