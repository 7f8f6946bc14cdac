// The programs of tests/attach/programs as they were recorded by tools/record_live_traces.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridge/doctor/live/live.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/report/text.h"

namespace ridge::doctor {
namespace {

const std::string kFolder = "tests/data/traces/live/";

LiveFacts facts_of(const std::string& name) {
  std::ifstream file(kFolder + name + ".facts.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  LiveFacts facts;
  facts.cpus = json.at("cpus");
  facts.quota_cpus = json.at("quota_cpus");
  facts.seconds = json.at("seconds");
  facts.main_cpu = json.at("main_cpu");
  facts.main_queue = json.at("main_queue");
  facts.throttled = json.at("throttled");
  facts.queue = json.at("queue");
  facts.busy_threads = json.at("busy_threads");
  facts.used_cpus = json.at("used_cpus");
  facts.torch_threads = json.at("torch_threads");
  facts.batch = json.at("batch");
  facts.loader_workers = json.at("loader_workers");
  facts.step_source = json.at("step_source");
  return facts;
}

enum Parts { kAll, kNoFacts };

Examination examined(const std::string& name, Parts parts = kAll) {
  return examine_live(read_kineto(kFolder + name + ".trace.json.gz"),
                      read_kineto(kFolder + name + ".spans.json.gz"),
                      parts == kAll ? facts_of(name) : LiveFacts{});
}

std::string first_rule(const Examination& examination) {
  for (const Finding& each : examination.diagnosis.findings)
    if (each.rule != "R00" && each.severity > Severity::kInfo) return std::string(each.rule);
  return "none";
}

struct Case {
  const char* program;
  const char* rule;
};

class LiveRecorded : public testing::TestWithParam<Case> {};

TEST_P(LiveRecorded, IsNamedRightly) {
  const Examination examination = examined(GetParam().program);
  EXPECT_EQ(first_rule(examination), GetParam().rule) << doctor_text(examination);
  for (const Finding& finding : examination.diagnosis.findings) {
    EXPECT_LE(finding.cost_ms, examination.analysis.breakdown.wall + 1e-9);
    EXPECT_LE(finding.predicted.low, finding.predicted.high);
    EXPECT_LE(finding.predicted.high, finding.ceiling);
  }
  EXPECT_TRUE(examination.analysis.is_cpu_only);
  ASSERT_TRUE(examination.analysis.unprofiled);
  EXPECT_GT(examination.analysis.unprofiled->steps, 10);
}

INSTANTIATE_TEST_SUITE_P(Programs,
                         LiveRecorded,
                         testing::Values(Case{"sick_jpeg", "R01"},
                                         Case{"sick_threads", "R30"},
                                         Case{"sick_tiny_batch", "R18"},
                                         Case{"sick_checkpoint", "R29"},
                                         Case{"sick_loop", "R03"},
                                         Case{"healthy", "none"},
                                         Case{"healthy_loader", "none"}),
                         [](const auto& each) { return std::string(each.param.program); });

TEST(LiveRecordedHealthy, NothingStandsAboveARemark) {
  for (const char* name : {"healthy", "healthy_loader"}) {
    const Examination examination = examined(name);
    EXPECT_FALSE(has_findings(examination.diagnosis)) << name << "\n" << doctor_text(examination);
    EXPECT_TRUE(verdict_text(examination).starts_with("nothing here is worth fixing"))
        << name << ": " << verdict_text(examination);
  }
}

// The line in its forward() where the turns of the loop call their operators.
TEST(LiveRecordedStacks, NameTheLineOfTheLoop) {
  const CallPlace place = place_of_calls(read_kineto(kFolder + "sick_loop.stacks.json.gz"));
  EXPECT_EQ(place.name, "sick_loop.py(20): forward");
  EXPECT_GT(place.share, 0.9);
  LiveFacts facts = facts_of("sick_loop");
  const auto told = [&] {
    return doctor_text(examine_live(read_kineto(kFolder + "sick_loop.trace.json.gz"),
                                    read_kineto(kFolder + "sick_loop.spans.json.gz"),
                                    facts));
  };
  EXPECT_EQ(told().find("sick_loop.py"), std::string::npos) << told();
  facts.place = place;
  EXPECT_NE(told().find("sick_loop.py(20): forward"), std::string::npos) << told();
  // Without frames no place is made up.
  EXPECT_EQ(place_of_calls(read_kineto(kFolder + "sick_loop.trace.json.gz")).share, 0);
}

// These findings follow from the trace and need no samples of processes.
TEST(LiveRecordedWithoutFacts, IsNamedRightly) {
  EXPECT_EQ(first_rule(examined("sick_jpeg", kNoFacts)), "R01");
  EXPECT_EQ(first_rule(examined("sick_tiny_batch", kNoFacts)), "R18");
  EXPECT_EQ(first_rule(examined("sick_checkpoint", kNoFacts)), "R29");
  EXPECT_EQ(first_rule(examined("healthy", kNoFacts)), "none");
}

}  // namespace
}  // namespace ridge::doctor
