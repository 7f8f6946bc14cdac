// The doctor's reports: the same numbers in all forms, and nothing in them that obeys a trace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/report/compare_html.h"
#include "ridge/doctor/report/html.h"
#include "ridge/doctor/report/json.h"
#include "ridge/doctor/report/pictures.h"
#include "ridge/doctor/report/text.h"
#include "tests/doctor/made_run.h"

namespace ridge::doctor {
namespace {

using nlohmann::json;

struct Event {
  EventKind kind;
  std::string name;
  double at, ms;
};

// Twelve steps of 10 ms that wait 4 ms for data, then compute and copy.
std::vector<Event> some_events() {
  std::vector<Event> events;
  for (int step = 0; step < 12; ++step) {
    const double at = 10 * step;
    events.push_back({EventKind::kRange, "next_batch", at, 4});
    events.push_back({EventKind::kKernel, "gemm", at + 4, 3});
    events.push_back({EventKind::kKernel, "relu", at + 7, 2.5});
  }
  return events;
}

Examination examined(const std::vector<Event>& events, std::string name = "run.json") {
  MadeRun run(12, 10);
  for (const Event& event : events)
    if (event.kind == EventKind::kKernel)
      run.kernel(event.name, event.at, event.ms);
    else
      run.host(event.kind, event.name, event.at, event.ms);
  for (int step = 0; step < 12; ++step) run.starve(HostCause::kLoader, 10 * step, 4);
  Analysis& analysis = run.analysis();
  analysis.breakdown.compute = analysis.breakdown.busy = 5.5;
  analysis.breakdown.idle = 4.5;
  analysis.breakdown.launch = 0.5;
  analysis.step_ms_median = analysis.step_ms_min = analysis.step_ms_max = 10;
  run.trace().source = std::move(name);
  run.trace().recorder = "kineto";
  run.trace().sort();
  Diagnosis diagnosis = diagnose(run.trace(), analysis);
  return {run.trace(), analysis, std::move(diagnosis)};
}

TEST(DoctorReport, JsonHasTheFieldsOfItsSchemaAndTheyAddUp) {
  const json report = json::parse(doctor_json(examined(some_events())));
  EXPECT_EQ(report.at("schema"), "ridge.doctor/1");
  EXPECT_EQ(report.at("input").at("file"), "run.json");
  EXPECT_EQ(report.at("steps").at("count"), 12);
  EXPECT_EQ(report.at("step_ms").at("median"), 10.0);
  const json& parts = report.at("breakdown_ms");
  const double wall = report.at("step_ms").at("mean");
  EXPECT_NEAR(parts.at("busy").get<double>() + parts.at("idle").get<double>(), wall, 1e-9);
  double sum = 0;
  for (const char* part : {"compute", "starved", "launch", "blocking", "unknown"})
    sum += parts.at(part).get<double>();
  EXPECT_NEAR(sum, wall, 1e-9);
  EXPECT_NEAR(parts.at("starved_by").at("loader").get<double>(), 4, 1e-9);
  EXPECT_TRUE(report.at("replay_error").is_null());
  const json& first = report.at("findings").at(0);
  EXPECT_EQ(first.at("rule"), "R01");
  EXPECT_EQ(first.at("severity"), "high");
  EXPECT_NEAR(first.at("cost_ms").get<double>(), 4, 1e-9);
  EXPECT_NEAR(first.at("share").get<double>(), 0.4, 1e-9);
  EXPECT_LE(first.at("predicted").at("lo"), first.at("predicted").at("hi"));
  EXPECT_LE(first.at("predicted").at("hi"), first.at("ceiling"));
  for (const char* field : {"title", "fix", "command", "class", "confidence", "evidence"})
    EXPECT_TRUE(first.contains(field)) << field;
  EXPECT_EQ(report.at("kernels").at(0).at("name"), "gemm");
  EXPECT_NEAR(report.at("kernels").at(0).at("ms").get<double>(), 3, 1e-9);
  EXPECT_NEAR(report.at("kernels").at(0).at("count").get<double>(), 1, 1e-9);
  EXPECT_FALSE(report.at("not_fired").empty());
}

TEST(DoctorReport, OrderOfEventsDoesNotMatter) {
  std::vector<Event> events = some_events();
  const Examination first = examined(events);
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(events.begin(), events.end(), random);
    const Examination other = examined(events);
    ASSERT_EQ(doctor_json(other), doctor_json(first));
    ASSERT_EQ(doctor_text(other), doctor_text(first));
    ASSERT_EQ(doctor_html(other), doctor_html(first));
  }
}

TEST(DoctorReport, TextHasTheNumbersOfTheJson) {
  const Examination examination = examined(some_events());
  const std::string text = doctor_text(examination);
  EXPECT_TRUE(text.starts_with("run.json: first R01: ")) << text;
  for (const char* part : {"12 steady steps (ProfilerStep)",
                           "a step takes 10.00 ms",
                           "compute          5.50 ms   55 %",
                           "starved          4.00 ms   40 %",
                           "waits for data 4.00 ms",
                           "1. R01 ",
                           "4.00 ms a step, 40 %",
                           "1.67 at most",
                           "   fix: ",
                           "   try:  ridge doctor --compare run.json AFTER",
                           "Not seen: R00 "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const std::string page = doctor_html(examination);
  for (const char* part : {"10.00 ms", "55.0 %", "4.000 ms of a step, 40.0 %", "gemm", "3.000"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(DoctorReport, NothingToFixIsSaidWithItsCeiling) {
  MadeRun run(12, 10);
  for (int step = 0; step < 12; ++step) run.kernel("gemm", 10 * step, 9.7);
  run.analysis().breakdown.compute = 9.7;
  run.analysis().breakdown.launch = 0.3;
  run.trace().sort();
  const Examination examination{run.trace(), run.analysis(), diagnose(run.trace(), run.analysis())};
  EXPECT_FALSE(has_findings(examination.diagnosis));
  EXPECT_EQ(verdict_text(examination), "nothing here is worth fixing; ceiling 1.03x");
  run.analysis().breakdown.compute = 6;
  run.analysis().breakdown.unknown = 3.7;
  const std::string verdict = verdict_text({run.trace(), run.analysis(), {}});
  EXPECT_EQ(verdict.find("nothing here is worth"), std::string::npos) << verdict;
  EXPECT_NE(verdict.find("1.67x"), std::string::npos) << verdict;
}

TEST(DoctorReport, FiveFindingsAreShownAndAllAreKept) {
  Examination examination = examined(some_events());
  examination.diagnosis.findings.resize(1);
  for (int i = 0; i < 7; ++i)
    examination.diagnosis.findings.push_back(examination.diagnosis.findings.front());
  const std::string text = doctor_text(examination);
  EXPECT_NE(text.find("\n5. R01"), std::string::npos);
  EXPECT_EQ(text.find("\n6. R01"), std::string::npos);
  EXPECT_NE(text.find("\nNot shown: 3 findings of lesser gain; --all shows them\n"),
            std::string::npos)
      << text;
  EXPECT_NE(doctor_text(examination, true).find("\n8. R01"), std::string::npos);
  EXPECT_EQ(json::parse(doctor_json(examination)).at("findings").size(), 8u);
}

// Two warnings beside R01: the fix of one is predicted to gain nothing, the other 1.02 at most.
Examination with_a_vain_finding() {
  Examination examination = examined(some_events());
  std::vector<Finding>& findings = examination.diagnosis.findings;
  findings.resize(1);
  Finding vain = findings.front();
  vain.rule = "R05";
  vain.title = "vain";
  vain.predicted = {1, 1.0049};
  Finding small = vain;
  small.rule = "R07";
  small.title = "small";
  small.predicted = {1, 1.02};
  findings.insert(findings.begin(), vain);
  findings.push_back(small);
  return examination;
}

TEST(DoctorReport, FindingsThatGainNothingAreFolded) {
  const Examination examination = with_a_vain_finding();
  const std::string text = doctor_text(examination);
  EXPECT_TRUE(text.starts_with("run.json: first R01: ")) << text;
  EXPECT_NE(text.find("\n1. R01 "), std::string::npos) << text;
  EXPECT_NE(text.find("\n2. R07 small"), std::string::npos) << text;
  EXPECT_EQ(text.find("R05 vain"), std::string::npos) << text;
  EXPECT_NE(
      text.find("\nNot shown: 1 finding expected to gain nothing (1.00 to 1.00 times as fast); "
                "--all shows them\n"),
      std::string::npos)
      << text;
  const std::string all = doctor_text(examination, true);
  EXPECT_NE(all.find("\n1. R05 vain"), std::string::npos) << all;
  EXPECT_NE(all.find("\n3. R07 small"), std::string::npos) << all;
  EXPECT_EQ(all.find("Not shown"), std::string::npos) << all;
  const json report = json::parse(doctor_json(examination));
  ASSERT_EQ(report.at("findings").size(), 3u);
  for (const json& finding : report.at("findings"))
    EXPECT_EQ(finding.at("folded"), finding.at("rule") == "R05") << finding;
  const std::string page = doctor_html(examination);
  const size_t fold = page.find("Findings that are expected to gain nothing (1)");
  ASSERT_NE(fold, std::string::npos);
  EXPECT_LT(page.find("1. R01"), fold);
  EXPECT_GT(page.find("3. R05 vain"), fold);
}

Examination run_of(double step_ms, size_t steps = 12) {
  std::vector<double> times;
  for (size_t i = 0; i < steps; ++i) times.push_back(step_ms + 0.01 * static_cast<double>(i));
  MadeRun run(times);
  run.kernel("gemm", 0, step_ms / 2);
  run.trace().sort();
  return {run.trace(), run.analysis(), diagnose(run.trace(), run.analysis())};
}

TEST(DoctorReport, FindingsThatGainNothingAreNothingToFix) {
  Examination examination = with_a_vain_finding();
  EXPECT_TRUE(has_findings(examination.diagnosis));
  examination.diagnosis.findings.resize(1);
  EXPECT_FALSE(has_findings(examination.diagnosis));
  EXPECT_TRUE(verdict_text(examination).starts_with("no rule found what to fix"));
  const Examination clean = run_of(10);
  EXPECT_TRUE(compare_traces(clean, examination, 3).appeared.empty());
  EXPECT_NE(comparison_html(compare_traces(clean, examination, 3), clean, examination)
                .find("Neither before nor after"),
            std::string::npos);
}

const std::string kHostile =
    "\x1b]0;owned\x07\x1b[2J\n<script src=\"http://x/\">alert(1)</script><img src=x onerror=y>"
    "\xc2\x9b"
    "31m\xff\xfe'\"&";

bool is_harmless_text(const std::string& text) {
  bool harmless = text.find("\xc2\x9b") == std::string::npos;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    harmless &= byte == '\n' || (byte >= 0x20 && byte != 0x7f);
  }
  return harmless;
}

// All text of the page that is not a tag of ours.
void expect_harmless_page(const std::string& page) {
  EXPECT_TRUE(is_harmless_text(page));
  for (const char* part : {"<script", "<img", "=\"http", "onerror=y>", "\"&'"})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(DoctorReport, HostileNamesAreInert) {
  std::vector<Event> events = some_events();
  for (Event& event : events)
    if (event.name == "gemm") event.name = kHostile;
  Examination examination = examined(events, kHostile + ".json");
  examination.trace.recorder = kHostile;
  examination.trace.warnings.push_back({kHostile, 3});
  examination.analysis.steps.source = kHostile;
  examination.ranks.push_back({kHostile, 1, 2, 3, 4});
  Finding& finding = examination.diagnosis.findings.front();
  finding.title += kHostile;
  finding.fix += kHostile;
  finding.command += kHostile;
  finding.evidence.push_back({.rows = {3}, .text = kHostile, .place = kHostile});
  examination.diagnosis.not_fired.push_back({"R31", kHostile});
  EXPECT_TRUE(is_harmless_text(doctor_text(examination))) << doctor_text(examination);
  expect_harmless_page(doctor_html(examination));
  const std::string text = doctor_json(examination);
  EXPECT_TRUE(is_harmless_text(text));  // JSON escapes what controls
  const json report = json::parse(text);
  EXPECT_EQ(report.at("warnings").at(0).at("count"), 3);
  const Comparison comparison = compare_traces(examination, examination, 3);
  EXPECT_TRUE(is_harmless_text(comparison_text(comparison)));
  expect_harmless_page(comparison_html(comparison, examination, examination));
  EXPECT_NO_THROW(json::parse(comparison_json(comparison)));
}

TEST(DoctorReport, CommandIsOneLineThatAShellTakesAsMeant) {
  Examination examination = examined(some_events(), "my run; rm -rf 'x'.json");
  EXPECT_EQ(examination.diagnosis.findings.front().command,
            "ridge doctor --compare 'my run; rm -rf '\\''x'\\''.json' AFTER");
}

TEST(DoctorReport, LargeTraceGivesASmallPage) {
  MadeRun run(10, 100);
  for (int step = 0; step < 10; ++step)
    for (int i = 0; i < 1200; ++i)
      run.kernel("kernel " + std::to_string(i % 300) + std::string(2000, 'x'),
                 100 * step + 0.08 * i,
                 0.03);
  run.analysis().step_ms_median = 100;
  run.analysis().breakdown.compute = 36;
  run.analysis().breakdown.launch = 64;
  run.trace().sort();
  const std::string page =
      doctor_html({run.trace(), run.analysis(), diagnose(run.trace(), run.analysis())});
  EXPECT_LT(page.size(), size_t{2} << 20);
  EXPECT_NE(page.find("<svg"), std::string::npos);
}

// Four causes have four colours, each named in the key below the picture.
TEST(DoctorReport, CausesOfGapsHaveColoursAndAKey) {
  MadeRun run(12, 10);
  for (int step = 0; step < 12; ++step) run.kernel("gemm", 10 * step, 2);
  run.analysis().gaps.clear();
  const Interval& first = run.analysis().steps.windows.front();
  for (const Interval& window : run.analysis().steps.windows) {
    Gap gap{};
    gap.at = {window.begin + 3'000'000, window.begin + 9'000'000};
    gap.starved_ns = 3'000'000, gap.blocking_ns = 1'500'000;
    gap.launch_ns = 1'000'000, gap.unknown_ns = 500'000;
    run.analysis().gaps.push_back(gap);
  }
  ASSERT_GT(first.length(), 0);
  run.trace().sort();
  const Picture picture = step_picture(run.trace(), run.analysis());
  const PictureKey* causes = nullptr;
  std::set<std::string_view> names, inks;
  for (const PictureKey& key : picture.keys) {
    if (key.title == "nothing computes")
      causes = &key;
    else
      for (const auto& entry : key.entries) names.insert(entry.ink);
  }
  ASSERT_NE(causes, nullptr);
  ASSERT_EQ(causes->entries.size(), 4u);
  const char* expected[] = {"starved 3 ms", "launch 1 ms", "blocking 1.5 ms", "unknown 0.5 ms"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(causes->entries[i].text, expected[i]);
    inks.insert(causes->entries[i].ink);
    EXPECT_FALSE(names.contains(causes->entries[i].ink)) << expected[i];
    EXPECT_NE(picture.svg.find(fmt::format("fill:{}", causes->entries[i].ink)), std::string::npos);
  }
  EXPECT_EQ(inks.size(), 4u);
  EXPECT_NE(doctor_html({run.trace(), run.analysis(), {}}).find("</i>blocking 1.5 ms</span>"),
            std::string::npos);
}

TEST(DoctorReport, EmptyTraceIsTold) {
  Trace trace;
  trace.source = "empty.json";
  const Analysis analysis;
  const Examination examination{trace, analysis, diagnose(trace, analysis)};
  EXPECT_NE(doctor_text(examination).find("no steady step"), std::string::npos);
  EXPECT_TRUE(has_findings(examination.diagnosis));  // R00: fit for nothing
  EXPECT_NO_THROW(json::parse(doctor_json(examination)));
  EXPECT_NE(doctor_html(examination).find("no steady step"), std::string::npos);
  EXPECT_THROW(compare_traces(examination, examination, 3), std::exception);
}

TEST(DoctorCompare, SlowerByMoreThanTheGateIsARegression) {
  const Comparison slower = compare_traces(run_of(10), run_of(11), 3);
  EXPECT_TRUE(slower.is_regression);
  EXPECT_NEAR(slower.speedup, 10.055 / 11.055, 1e-6);
  EXPECT_LT(slower.high, 1);
  EXPECT_FALSE(compare_traces(run_of(10), run_of(11), 15).is_regression);
  const Comparison faster = compare_traces(run_of(11), run_of(10), 3);
  EXPECT_FALSE(faster.is_regression);
  EXPECT_GT(faster.low, 1);
  EXPECT_NE(comparison_verdict(faster).find("1.10 times as fast"), std::string::npos);
  EXPECT_FALSE(compare_traces(run_of(10), run_of(10), 0).is_regression);
}

TEST(DoctorCompare, NoiseIsNoRegression) {
  // Medians differ by 5 %, steps by far more.
  std::vector<double> before, after;
  for (int i = 0; i < 12; ++i) {
    before.push_back(10 + i % 6);
    after.push_back(10.6 + i % 6);
  }
  MadeRun first(before), second(after);
  first.trace().sort(), second.trace().sort();
  const Comparison comparison = compare_traces(
      {first.trace(), first.analysis(), {}}, {second.trace(), second.analysis(), {}}, 3);
  EXPECT_FALSE(comparison.is_regression);
  EXPECT_NE(comparison_verdict(comparison).find("no difference is certain"), std::string::npos);
}

TEST(DoctorCompare, FindingsThatWentAndCameAreNamed) {
  const Examination starved = examined(some_events()), clean = run_of(10);
  const Comparison comparison = compare_traces(starved, clean, 3);
  ASSERT_EQ(comparison.gone.size(), 1u);
  EXPECT_TRUE(comparison.gone[0].starts_with("R01 "));
  EXPECT_TRUE(comparison.appeared.empty());
  ASSERT_FALSE(comparison.parts.empty());
  EXPECT_NEAR(comparison.parts[1].before_ms, 4, 1e-9);
  EXPECT_EQ(compare_traces(clean, starved, 3).appeared, comparison.gone);
}

void expect_parts(const std::string& page, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(DoctorCompare, PageHasTheNumbersOfTheJson) {
  const Examination slow = run_of(11), fast = run_of(10);
  const Comparison comparison = compare_traces(slow, fast, 4);
  const std::string page = comparison_html(comparison, slow, fast);
  const json report = json::parse(comparison_json(comparison));
  for (const char* side : {"before", "after"}) {
    const std::string median = fmt::format("{:.3f}", report.at("step_ms").at(side).get<double>());
    EXPECT_NE(page.find(">" + median + "<"), std::string::npos) << median;
  }
  EXPECT_NE(page.find(report.at("verdict").get<std::string>()), std::string::npos);
  // Steps of 10.00, 10.01 ... 10.11 ms: the third and the tenth bound the median's interval.
  expect_parts(page,
               {"10.020 to 10.090", "11.020 to 11.090", "10.110", "4.0 % longer", "1.10x", "<svg"});
  EXPECT_EQ(page.find("What is left to fix"), std::string::npos);
}

TEST(DoctorCompare, PageTellsWhichFindingsWentCameAndStay) {
  const Examination starved = examined(some_events()), clean = run_of(10);
  const std::string title = starved.diagnosis.findings.front().title;
  const auto page_of = [](const Examination& before, const Examination& after) {
    return comparison_html(compare_traces(before, after, 3), before, after);
  };
  const std::string gone = page_of(starved, clean), appeared = page_of(clean, starved);
  expect_parts(gone, {">gone<", ">4.000<", title.c_str()});
  EXPECT_EQ(gone.find("What is left to fix"), std::string::npos);
  expect_parts(appeared, {">new<", "What is left to fix", "1. R01"});
  expect_parts(page_of(starved, starved), {">still there<", "What is left to fix"});
  EXPECT_NE(page_of(clean, clean).find("Neither before nor after"), std::string::npos);
}

TEST(DoctorCompare, PageOfManyStepsIsSmall) {
  const Examination before = run_of(10, 20'000), after = run_of(11, 20'000);
  EXPECT_LT(comparison_html(compare_traces(before, after, 3), before, after).size(), 500'000u);
}

}  // namespace
}  // namespace ridge::doctor
