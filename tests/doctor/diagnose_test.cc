// Ranking, and no time charged twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/made_run.h"

namespace ridge::doctor {
namespace {

// A step takes 100 ms; each finding is charged with [at, at + cost] of it.
Finding found(std::string_view rule, double at, double cost, double certain, double trust = 1) {
  Finding finding{.rule = rule, .title = std::string(rule) + " it is", .cost_ms = cost};
  finding.severity = Severity::kWarning;
  finding.confidence = trust;
  finding.ceiling = 100 / (100 - cost);
  finding.predicted = {100 / (100 - certain), finding.ceiling};
  finding.at = {{ns(at), ns(at + cost)}};
  return finding;
}

Diagnosis ranked_of(std::vector<Finding> findings) {
  RuleOutput all;
  all.findings = std::move(findings);
  return ranked(std::move(all), MadeRun(10, 100).analysis());
}

std::vector<std::string_view> ids(const Diagnosis& diagnosis) {
  std::vector<std::string_view> ids;
  for (const Finding& finding : diagnosis.findings) ids.push_back(finding.rule);
  return ids;
}

TEST(Diagnose, WhatComesBackForSureStandsFirst) {
  // 20 ms at most, of which 4 are sure; 10 ms that are all sure; 30 ms that hardly anyone trusts.
  const Diagnosis diagnosis =
      ranked_of({found("R01", 0, 20, 4), found("R05", 30, 10, 10), found("R07", 50, 30, 30, 0.1)});
  EXPECT_EQ(ids(diagnosis), (std::vector<std::string_view>{"R05", "R01", "R07"}));
  EXPECT_TRUE(diagnosis.not_fired.empty());
}

TEST(Diagnose, SameTimeIsChargedOnce) {
  const Diagnosis diagnosis = ranked_of({found("R05", 10, 20, 18), found("R03", 12, 16, 9)});
  ASSERT_EQ(ids(diagnosis), (std::vector<std::string_view>{"R05"}));
  EXPECT_DOUBLE_EQ(diagnosis.findings[0].cost_ms, 20);
  ASSERT_EQ(diagnosis.not_fired.size(), 1u);
  EXPECT_EQ(diagnosis.not_fired[0].rule, "R03");
  EXPECT_NE(diagnosis.not_fired[0].reason.find("R05"), std::string::npos);
  ASSERT_EQ(diagnosis.findings[0].evidence.size(), 1u);
  EXPECT_NE(diagnosis.findings[0].evidence[0].text.find("R03"), std::string::npos);
}

TEST(Diagnose, SharedPartIsTakenFromTheLesser) {
  // [10, 30] and [25, 45]: 5 of the second one's 20 ms are charged already.
  const Diagnosis diagnosis = ranked_of({found("R05", 10, 20, 18), found("R10", 25, 20, 8)});
  ASSERT_EQ(ids(diagnosis), (std::vector<std::string_view>{"R05", "R10"}));
  const Finding& less = diagnosis.findings[1];
  EXPECT_NEAR(less.cost_ms, 15, 1e-9);
  EXPECT_NEAR(less.ceiling, 100.0 / 85, 1e-9);
  EXPECT_NEAR(less.predicted.low, 100.0 / 94, 1e-9);
  EXPECT_EQ(less.at, (Intervals{{ns(30), ns(45)}}));
}

TEST(Diagnose, CeilingsOfAllTogetherAreNoMoreThanTheStep) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> at(0, 60), cost(1, 40);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Finding> findings;
    for (std::string_view rule : {"R01", "R03", "R05", "R07", "R10", "R22"}) {
      const double ms = cost(random);
      findings.push_back(found(rule, at(random), ms, ms / 2));
    }
    const Diagnosis diagnosis = ranked_of(findings);
    double sum = 0;
    std::vector<Interval> all;
    for (const Finding& finding : diagnosis.findings) {
      sum += finding.cost_ms;
      all.insert(all.end(), finding.at.begin(), finding.at.end());
    }
    ASSERT_LE(sum, 100 + 1e-6);
    // Disjoint: the union is as long as all of them.
    ASSERT_NEAR(static_cast<double>(total_length(union_of(all))) / 1e6, sum, 1e-4);
  }
}

TEST(Diagnose, OrderOfRulesDoesNotMatter) {
  std::vector<Finding> findings = {found("R01", 0, 20, 10),
                                   found("R05", 15, 20, 10),
                                   found("R05", 70, 20, 10),
                                   found("R07", 30, 10, 10),
                                   found("R10", 60, 12, 3)};
  const Diagnosis first = ranked_of(findings);
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::pair(a.rule, a.at[0].begin) < std::pair(b.rule, b.at[0].begin);
  });
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    std::shuffle(findings.begin(), findings.end(), random);
    const Diagnosis other = ranked_of(findings);
    ASSERT_EQ(ids(other), ids(first));
    for (size_t i = 0; i < first.findings.size(); ++i) {
      ASSERT_EQ(other.findings[i].at, first.findings[i].at);
      ASSERT_EQ(other.findings[i].cost_ms, first.findings[i].cost_ms);
    }
  }
}

TEST(Diagnose, FinerRuleStandsForTheCoarserOne) {
  // R02 says why R01 is, though less of it is sure.
  const Diagnosis diagnosis = ranked_of({found("R01", 0, 20, 15), found("R02", 0, 20, 5)});
  ASSERT_EQ(ids(diagnosis), (std::vector<std::string_view>{"R02"}));
  ASSERT_EQ(diagnosis.not_fired.size(), 1u);
  EXPECT_EQ(diagnosis.not_fired[0].rule, "R01");
}

TEST(Diagnose, RemarksWithoutCostStandBesideTheirTime) {
  Finding remark = found("R15", 10, 20, 0);
  remark.cost_ms = 0;
  const Diagnosis diagnosis = ranked_of({remark, found("R05", 10, 20, 18)});
  EXPECT_EQ(ids(diagnosis), (std::vector<std::string_view>{"R05", "R15"}));
}

TEST(Diagnose, RulesAreInTheOrderOfTheirIds) {
  EXPECT_EQ(kRules[0].id, "R00");
  for (size_t i = 1; i < std::size(kRules); ++i) EXPECT_LT(kRules[i - 1].id, kRules[i].id);
}

TEST(Diagnose, EveryRuleSaysSomethingOfAnyTrace) {
  for (size_t steps : {0, 1, 12}) {
    MadeRun run(steps, 10);
    run.host(EventKind::kOperator, "aten::mm", 1, 2);
    run.trace().sort();
    const Diagnosis diagnosis = diagnose(run.trace(), run.analysis());
    for (const Rule& rule : kRules) {
      const auto is_it = [&](const auto& row) { return row.rule == rule.id; };
      EXPECT_TRUE(std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(), is_it) ||
                  std::any_of(diagnosis.not_fired.begin(), diagnosis.not_fired.end(), is_it))
          << rule.id << " with " << steps << " steps";
      if (!rule.needs_device || steps == 0) continue;
      const auto row = std::find_if(diagnosis.not_fired.begin(), diagnosis.not_fired.end(), is_it);
      ASSERT_NE(row, diagnosis.not_fired.end()) << rule.id;
      EXPECT_EQ(row->reason, "not applicable: the trace has no device work");
    }
  }
}

TEST(Diagnose, TraceThatIsNotFitLowersConfidence) {
  const auto confidence = [](int64_t dropped) {
    MadeRun run(10, 10);
    for (int step = 0; step < 10; ++step) run.starve(HostCause::kLoader, 10 * step, 4);
    run.kernel("gemm", 5, 1);
    run.trace().dropped = dropped;
    run.trace().sort();
    const Diagnosis diagnosis = diagnose(run.trace(), run.analysis());
    for (const Finding& finding : diagnosis.findings)
      if (finding.rule == "R01") return finding.confidence;
    return -1.0;
  };
  EXPECT_GT(confidence(0), 0.5);
  EXPECT_LT(confidence(5), confidence(0));
  EXPECT_GT(confidence(5), 0);
}

}  // namespace
}  // namespace ridge::doctor
