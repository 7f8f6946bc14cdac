// The rules on programs that are sick, and on their healthy twins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/replay/replay.h"
#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/examined_program.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor::synthetic {
namespace {

std::string summary(const Diagnosis& diagnosis) {
  std::string text;
  for (const Finding& each : diagnosis.findings)
    text += fmt::format("{} {} {:.3f} of a step, {:.2f} to {:.2f} times as fast; ",
                        each.rule,
                        name_of(each.severity),
                        each.share,
                        each.predicted.low,
                        each.predicted.high);
  return text.empty() ? "nothing" : text;
}

class Zoo : public testing::TestWithParam<double> {};

TEST_P(Zoo, TheRightRuleComesFirst) {
  for (const Program& program : all_programs()) {
    if (!program.is_sick) continue;
    const Examination found = examined(program, {.seed = 11, .scale = GetParam()});
    EXPECT_EQ(first_rule(found.diagnosis), program.rule)
        << program.name << ": " << summary(found.diagnosis);
  }
}

TEST_P(Zoo, HealthyTwinsAreHealthy) {
  for (const Program& program : all_programs()) {
    if (program.is_sick) continue;
    const Examination found = examined(program, {.seed = 12, .scale = GetParam()});
    EXPECT_FALSE(has_findings(found.diagnosis)) << program.name << ": " << summary(found.diagnosis);
  }
}

// R00 is about the trace, and R18 is a remark where R03 speaks.
TEST(ZooRules, EachHasAProgram) {
  const std::set<std::string_view> without = {"R00", "R18"};
  const auto programs = all_programs();
  for (const Rule& rule : kRules) {
    const bool has_program = std::any_of(programs.begin(), programs.end(), [&](const auto& each) {
      return each.is_sick && each.rule == rule.id;
    });
    EXPECT_NE(has_program, without.contains(rule.id)) << rule.id;
  }
}

// A rule is applied by itself, so that no other is charged with its time.
TEST(ZooRules, EachAloneTellsTheSickFromTheirTwins) {
  for (const Program& program : all_programs()) {
    SCOPED_TRACE(program.name);
    const Trace trace = std::move(simulate(program, {.seed = 5})[0].trace);
    const Analysis analysis = analyse_and_replay(trace);
    for (const Rule& rule : kRules) {
      if (rule.id == "R24") continue;  // It compares the traces of several ranks.
      const bool is_its_own = program.is_sick && program.rule == rule.id;
      if (program.is_sick && !is_its_own) continue;
      SCOPED_TRACE(rule.id);
      RuleOutput output;
      rule.apply(trace, analysis, output);
      if (is_its_own) {
        EXPECT_EQ(output.findings.size(), 1u);
      }
      for (const Finding& finding : output.findings) {
        EXPECT_EQ(finding.severity > Severity::kInfo, is_its_own) << finding.title;
        if (!is_its_own) continue;
        EXPECT_GT(finding.predicted.high, 1);
        EXPECT_LE(finding.predicted.low, finding.predicted.high);
        EXPECT_LE(finding.predicted.high, finding.ceiling + 1e-4);
        EXPECT_FALSE(finding.evidence.empty());
        EXPECT_FALSE(finding.at.empty());
      }
    }
  }
}

// Limits of both forms: Kineto knows neither locks nor processors, and nsys no shapes and types of
// operators, so that R13 speaks of products in FP32 whatever stands beside them.
bool can_tell(const Program& program, bool is_kineto) {
  if (program.ranks > 1) return false;  // the simulation has them all, a file one
  if (is_kineto) return program.rule != "R02" && program.rule != "R30";
  return program.rule != "R14" && program.rule != "R15";
}

TEST(ZooFiles, TellTheSame) {
  test::TempFolder folder;
  const std::string kineto = folder / "a.json", nsys = folder / "a.sqlite";
  for (const Program& program : all_programs()) {
    const Trace trace = std::move(simulate(program, {.seed = 13})[0].trace);
    write_kineto(trace, 13, kineto);
    write_nsys(trace, 13, nsys);
    for (const bool is_kineto : {true, false}) {
      if (program.is_sick && !can_tell(program, is_kineto)) continue;
      const Examination found = examine(is_kineto ? read_kineto(kineto) : read_nsys(nsys));
      const std::string_view form = is_kineto ? "Kineto" : "nsys";
      if (program.is_sick)
        EXPECT_EQ(first_rule(found.diagnosis), program.rule)
            << program.name << " from " << form << ": " << summary(found.diagnosis);
      else
        EXPECT_FALSE(has_findings(found.diagnosis))
            << program.name << " from " << form << ": " << summary(found.diagnosis);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Zoo, testing::Values(.3, 1., 3.));

}  // namespace
}  // namespace ridge::doctor::synthetic
