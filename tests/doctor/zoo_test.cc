// The rules on programs that are sick, and on their healthy twins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/examined_program.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor::synthetic {
namespace {

// Programs of rules that are not among rules() are left out.
bool has_rule(std::string_view id) {
  const auto known = rules();
  return std::any_of(known.begin(), known.end(), [&](const Rule& rule) { return rule.id == id; });
}

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
    if (!program.is_sick || !has_rule(program.rule)) continue;
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

// Limits of both forms: Kineto knows neither locks nor processors, and nsys no shapes of operators.
bool can_tell(const Program& program, bool is_kineto) {
  if (program.ranks > 1) return false;  // the simulation has them all, a file one
  if (is_kineto) return program.rule != "R02" && program.rule != "R30";
  return program.rule != "R14";
}

TEST(ZooFiles, TellTheSame) {
  test::TempFolder folder;
  const std::string kineto = folder / "a.json", nsys = folder / "a.sqlite";
  for (const Program& program : all_programs()) {
    if (!has_rule(program.rule)) continue;
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
