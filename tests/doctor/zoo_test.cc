// The rules on programs that are sick, and on their healthy twins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ridge/doctor/examination.h"
#include "ridge/doctor/read_trace.h"
#include "tests/doctor/synthetic_trace.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor::synthetic {
namespace {

// Programs of rules that are not among rules() are left out.
bool has_rule(std::string_view id) {
  const auto known = rules();
  return std::any_of(known.begin(), known.end(), [&](const Rule& rule) { return rule.id == id; });
}

Examination examined(const Program& program, const Options& options) {
  std::vector<SyntheticTrace> made = simulate(program, options);
  if (program.ranks == 1) return examine(std::move(made[0].trace));
  std::vector<Trace> traces;
  for (SyntheticTrace& each : made) traces.push_back(std::move(each.trace));
  return examine(std::move(traces));
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

// The first finding that is not about the trace itself.
std::string_view first_rule(const Diagnosis& diagnosis) {
  for (const Finding& each : diagnosis.findings)
    if (each.rule != "R00") return each.rule;
  return "none";
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

INSTANTIATE_TEST_SUITE_P(Scales, Zoo, testing::Values(.3, 1., 3.));

}  // namespace
}  // namespace ridge::doctor::synthetic
