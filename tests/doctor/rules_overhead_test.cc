// R03 and R18 of programs on the CPU: what calling operators costs beside their work.
#include <gtest/gtest.h>

#include "ridge/doctor/examination.h"
#include "ridge/doctor/live/live.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/rules/small_operators.h"
#include "tests/doctor/live_trace.h"
#include "tests/doctor/made_run.h"

namespace ridge::doctor {
namespace {

struct Judged {
  RuleOutput r03, r18;
};

Judged judged(const Trace& trace, int64_t batch = -1, double slowdown = 0) {
  Analysis analysis = analyse(trace);
  analysis.batch = batch;
  if (slowdown > 0) analysis.unprofiled = Unprofiled{.steps = 100, .slowdown = slowdown};
  Judged all;
  r03_launch_bound(trace, analysis, all.r03);
  r18_small_micro_batch(trace, analysis, all.r18);
  return all;
}

// A step of 4 ms: 480 calls of 3 us, 5 us apart, that are alike.
Profile loop() {
  return {.step_ms = 4,
          .layers = {{.name = "aten::add",
                      .shapes = "[[32, 16], [32, 16], []]",
                      .us = 3,
                      .gap_us = 5,
                      .times = 480,
                      .frame = "train.py(12): forward"}}};
}

// A step of 1 ms: 100 operators, all different, on `rows` rows.
Profile tiny(int rows) {
  Profile profile{.step_ms = 1, .layers = {}};
  for (int i = 0; i < 100; ++i)
    profile.layers.push_back({.name = i % 4 == 0 ? "aten::linear" : "aten::relu",
                              .shapes = fmt::format("[[{}, {}]]", rows, 16 + i),
                              .us = 4,
                              .gap_us = 5});
  return profile;
}

TEST(R03OnCpu, LoopOverSmallOperatorsFires) {
  const Judged all = judged(profile_of(loop()));
  ASSERT_EQ(all.r03.findings.size(), 1u) << reason(all.r03);
  const Finding& finding = all.r03.findings[0];
  EXPECT_NE(finding.title.find("loop"), std::string::npos);
  EXPECT_EQ(finding.severity, Severity::kHigh);
  // 480 calls of 3 us and what lies between them, of a step of 4 ms.
  EXPECT_NEAR(finding.cost_ms, 480 * 8e-3, 0.1);
  EXPECT_LE(finding.predicted.high, finding.ceiling);
  EXPECT_EQ(finding.semantic_class, SemanticClass::kReassociation);
  EXPECT_EQ(finding.evidence.at(2).place, "train.py(12): forward");
  EXPECT_NE(finding.evidence.at(1).text.find("'aten::add [[32, 16], [32, 16], []]' is called 480"),
            std::string::npos)
      << finding.evidence.at(1).text;
  EXPECT_TRUE(all.r18.findings.empty());
}

TEST(R03OnCpu, LoopWithFewRowsIsALoopFirst) {
  EXPECT_EQ(judged(profile_of(loop()), 2).r03.findings.size(), 1u);
  EXPECT_TRUE(judged(profile_of(loop()), 2).r18.findings.empty());
}

TEST(R03OnCpu, WhatTheProfilerAddsIsNotTheProgramsOwn) {
  const double before = judged(profile_of(loop())).r03.findings.at(0).share;
  const Judged slowed = judged(profile_of(loop()), -1, 0.5);
  ASSERT_EQ(slowed.r03.findings.size(), 1u) << reason(slowed.r03);
  EXPECT_LT(slowed.r03.findings[0].share, before);
  // The profiler took 4/3 of 4 ms, at 480 calls of 3 us: the rest of these remains, and 5 us
  // between.
  EXPECT_NEAR(
      slowed.r03.findings[0].share, 480 * (3 + 5 - 4000.0 / 3 / 480) / (4000.0 * 2 / 3), 0.01);
}

TEST(R03OnCpu, UpdatesOfManyTensorsAreNoLoop) {
  MadeTrace made;
  for (int step = 0; step < 8; ++step) {
    double at = 10'000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 10'000});
    made.op("aten::linear", {at + 5, 8000});
    made.range("Optimizer.step#Adam.step", {at + 8010, 1500});
    double call = at + 8015;
    for (int i = 0; i < 150; ++i, call += 9) made.op("aten::add_", {call, 4});
  }
  const Judged all = judged(made.done());
  EXPECT_TRUE(all.r03.findings.empty());
  EXPECT_TRUE(all.r18.findings.empty());
  EXPECT_NE(reason(all.r03).find("the rest is their work"), std::string::npos) << reason(all.r03);
}

TEST(R03OnCpu, OperatorsThatFetchDataAreTheLoaders) {
  MadeTrace made;
  for (int step = 0; step < 8; ++step) {
    double at = 10'000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 10'000});
    made.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", {at, 5000});
    for (int i = 0; i < 500; ++i) made.op("aten::select", {at + 10 * i, 5});
    made.op("aten::linear", {at + 5005, 4900});
  }
  const Trace trace = made.done();
  EXPECT_NEAR(small_operators(trace, analyse(trace)).calls, 1, 0.01);
  EXPECT_TRUE(judged(trace).r03.findings.empty());
}

TEST(R03OnCpu, PlansOfRidgeAreNotCalledByAProgram) {
  Trace trace = profile_of(loop());
  trace.recorder = "ridge";
  EXPECT_TRUE(judged(trace).r03.findings.empty());
}

TEST(R18OnCpu, FewRowsInManyCallsFire) {
  const Judged all = judged(profile_of(tiny(2)));
  ASSERT_EQ(all.r18.findings.size(), 1u) << reason(all.r18);
  const Finding& finding = all.r18.findings[0];
  EXPECT_EQ(finding.title, "the batch is too small: 2 samples at once");
  EXPECT_GT(finding.severity, Severity::kInfo);
  EXPECT_EQ(finding.semantic_class, SemanticClass::kTrajectory);
  EXPECT_NE(finding.fix.find("only with your consent"), std::string::npos);
  EXPECT_NE(reason(all.r03).find("R18"), std::string::npos) << reason(all.r03);
}

TEST(R18OnCpu, ManyRowsDoNot) {
  const Judged all = judged(profile_of(tiny(64)));
  EXPECT_TRUE(all.r18.findings.empty());
  // Small operators they are all the same.
  ASSERT_EQ(all.r03.findings.size(), 1u);
  EXPECT_EQ(all.r03.findings[0].title.find("loop"), std::string::npos);
}

TEST(R18OnCpu, LoaderKnowsTheBatchBetter) {
  EXPECT_TRUE(judged(profile_of(tiny(2)), 64).r18.findings.empty());
  EXPECT_EQ(judged(profile_of(tiny(64)), 2).r18.findings.size(), 1u);
}

TEST(R18OnCpu, WithAccumulationTheRunStaysTheSame) {
  Profile profile = tiny(2);
  profile.step_ms = 1.1;
  for (int i = 0; i < 4; ++i)
    profile.layers.push_back(
        {.name = "aten::ones_like", .shapes = "[[], [], [], [], [], []]", .us = 4, .gap_us = 5});
  const Judged all = judged(profile_of(profile));
  ASSERT_EQ(all.r18.findings.size(), 1u) << reason(all.r18);
  EXPECT_EQ(all.r18.findings[0].semantic_class, SemanticClass::kReassociation);
  EXPECT_NE(all.r18.findings[0].fix.find("the run is the same"), std::string::npos);
}

TEST(R18OnCpu, UpdateThatOutweighsTheSamplesCounts) {
  // 0.2 ms for two samples, 0.8 ms to update what they trained.
  MadeTrace made;
  for (int step = 0; step < 8; ++step) {
    double at = 1000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 1000});
    made.op("aten::linear", {at + 5, 190});
    made.range("Optimizer.step#Adam.step", {at + 200, 790});
    for (int i = 0; i < 4; ++i) made.op("aten::addcdiv_", {at + 205 + 190 * i, 185});
  }
  EXPECT_EQ(judged(made.done(), 2).r18.findings.size(), 1u);
  EXPECT_TRUE(judged(made.done(), 256).r18.findings.empty());
}

}  // namespace
}  // namespace ridge::doctor
