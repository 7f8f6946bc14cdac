// Applies the rules, ranks what they found, and charges no time twice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ridge/doctor/findings/doubts.h"
#include "ridge/doctor/findings/finding.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr double kMostly = 0.5;  // of a finding's time that another is charged with

// The first says why of the second: where both are charged with the same time, it is kept.
constexpr std::pair<std::string_view, std::string_view> kRefines[] = {
    {"R02", "R01"}, {"R06", "R07"}, {"R24", "R22"}, {"R23", "R22"}};

bool refines(std::string_view fine, std::string_view coarse) {
  return std::find(std::begin(kRefines), std::end(kRefines), std::pair(fine, coarse)) !=
         std::end(kRefines);
}

double finite_or(double value, double other) { return std::isfinite(value) ? value : other; }

// Clamps a rule's numbers to possible values: the gain to its ceiling, the cost to the step.
void bound(Finding& finding, const Analysis& analysis, double trust) {
  const double wall = analysis.breakdown.wall;
  finding.cost_ms = std::clamp(finite_or(finding.cost_ms, 0), 0.0, std::max(0.0, wall));
  finding.share = share_of(finding.cost_ms, analysis);
  finding.ceiling = std::max(1.0, finite_or(finding.ceiling, 1));
  if (finding.cost_ms > 0) finding.ceiling = speedup_without(finding.cost_ms, wall);
  Gain& gain = finding.predicted;
  if (!(gain.high > 1)) gain = {speedup_without(finding.cost_ms / 2, wall), finding.ceiling};
  gain.high = std::clamp(gain.high, 1.0, finding.ceiling);
  gain.low = std::clamp(finite_or(gain.low, 1), 1.0, gain.high);
  finding.confidence = std::clamp(finite_or(finding.confidence, 0), 0.0, 1.0);
  if (finding.rule != "R00") finding.confidence *= trust;
}

// Milliseconds of a step that come back for sure, as far as it can be trusted.
double score_of(const Finding& finding) {
  if (!(finding.ceiling > 1)) return 0;
  const double least = (1 - 1 / finding.predicted.low) / (1 - 1 / finding.ceiling);
  return std::min(1.0, least) * finding.cost_ms * finding.confidence;
}

// A total order: equal scores go by what the findings say.
bool ranks_before(const Finding& a, const Finding& b) {
  const auto key = [](const Finding& finding) {
    return std::tuple(-score_of(finding), -static_cast<int>(finding.severity), -finding.cost_ms);
  };
  const auto text = [](const Finding& finding) {
    return std::tuple(finding.rule,
                      std::string_view(finding.title),
                      finding.at.empty() ? int64_t{0} : finding.at.front().begin);
  };
  return std::pair(key(a), text(a)) < std::pair(key(b), text(b));
}

// The share of `finding`'s time that `other` is charged with.
double overlap(const Finding& finding, const Finding& other) {
  const int64_t whole = total_length(finding.at);
  if (whole == 0) return 0;
  return static_cast<double>(total_length(intersection_of(finding.at, other.at))) /
         static_cast<double>(whole);
}

// Takes the time that others are charged with from `finding`.
void reduce(Finding& finding, double share, const Analysis& analysis) {
  const double wall = analysis.breakdown.wall, kept = 1 - share;
  const double least = wall * (1 - 1 / finding.predicted.low) * kept;
  const double most = wall * (1 - 1 / finding.predicted.high) * kept;
  finding.cost_ms *= kept;
  finding.share *= kept;
  finding.ceiling = speedup_without(finding.cost_ms, wall);
  finding.predicted = {speedup_without(least, wall), speedup_without(most, wall)};
}

class Merger {
 public:
  Merger(const Analysis& analysis, Diagnosis& diagnosis)
      : analysis_(analysis), diagnosis_(diagnosis) {}

  // In the order of their ranks.
  void add(Finding finding) {
    std::vector<Finding>& kept = diagnosis_.findings;
    if (finding.at.empty() || finding.cost_ms <= 0) {
      kept.push_back(std::move(finding));
      return;
    }
    const auto mostly = std::find_if(kept.begin(), kept.end(), [&](const Finding& other) {
      return other.cost_ms > 0 &&
             (overlap(finding, other) > kMostly ||
              (refines(finding.rule, other.rule) && overlap(other, finding) > kMostly));
    });
    if (mostly == kept.end()) {
      charge_the_rest(std::move(finding));
    } else if (refines(finding.rule, mostly->rule)) {
      std::swap(*mostly, finding);
      set_aside(finding, *mostly);
    } else {
      set_aside(finding, *mostly);
    }
  }

 private:
  void set_aside(const Finding& finding, Finding& in_favour_of) {
    in_favour_of.evidence.push_back(
        {.text = fmt::format("{} ({}) is charged with the same time, {:.2f} ms",
                             finding.rule,
                             finding.title,
                             finding.cost_ms)});
    diagnosis_.not_fired.push_back(
        {finding.rule,
         fmt::format("its time is charged to {}: look again when that is fixed",
                     in_favour_of.rule)});
  }

  void charge_the_rest(Finding finding) {
    Intervals taken;
    for (const Finding& other : diagnosis_.findings)
      if (other.cost_ms > 0) taken.insert(taken.end(), other.at.begin(), other.at.end());
    const Intervals left = difference_of(finding.at, union_of(std::move(taken)));
    const double whole = static_cast<double>(total_length(finding.at));
    const double share = 1 - static_cast<double>(total_length(left)) / whole;
    if (share > 0) {
      finding.evidence.push_back(
          {.text = fmt::format("{:.2f} ms more are charged to what stands above",
                               share * finding.cost_ms)});
      reduce(finding, share, analysis_);
      finding.at = left;
    }
    diagnosis_.findings.push_back(std::move(finding));
  }

  const Analysis& analysis_;
  Diagnosis& diagnosis_;
};

bool is_known(const RuleOutput& known, std::string_view id) {
  const auto is_it = [id](const auto& row) { return row.rule == id; };
  return std::any_of(known.findings.begin(), known.findings.end(), is_it) ||
         std::any_of(known.not_fired.begin(), known.not_fired.end(), is_it);
}

RuleOutput apply_all(const Trace& trace, const Analysis& analysis, RuleOutput known) {
  RuleOutput all = std::move(known);
  const bool has_device = trace.has_device_work();
  for (const Rule& rule : kRules) {
    if (is_known(all, rule.id)) continue;
    if (rule.needs_device && !has_device) {
      all.not_fired.push_back({rule.id, "not applicable: the trace has no device work"});
    } else if (analysis.steps.windows.empty() && rule.id != "R00") {
      all.not_fired.push_back({rule.id, "the trace has no steady step"});
    } else {
      rule.apply(trace, analysis, all);
    }
  }
  return all;
}

}  // namespace

bool gains_nothing(const Finding& finding) {
  constexpr double kLeastShown = 1.005;
  return finding.cost_ms > 0 && finding.predicted.high < kLeastShown;
}

bool is_worth_fixing(const Finding& finding) {
  return finding.severity > Severity::kInfo && !gains_nothing(finding);
}

Diagnosis diagnose(const Trace& trace, const Analysis& analysis, RuleOutput known) {
  RuleOutput all = apply_all(trace, analysis, std::move(known));
  const double trust = trust_in(doubts_of(trace, analysis));
  for (Finding& finding : all.findings) bound(finding, analysis, trust);
  return ranked(std::move(all), analysis);
}

Diagnosis ranked(RuleOutput all, const Analysis& analysis) {
  std::sort(all.findings.begin(), all.findings.end(), ranks_before);
  Diagnosis diagnosis;
  diagnosis.not_fired = std::move(all.not_fired);
  Merger merger(analysis, diagnosis);
  for (Finding& finding : all.findings) merger.add(std::move(finding));
  // Findings whose charge was reduced rank lower now.
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(), ranks_before);
  std::stable_sort(diagnosis.not_fired.begin(),
                   diagnosis.not_fired.end(),
                   [](const NotFired& a, const NotFired& b) { return a.rule < b.rule; });
  return diagnosis;
}

}  // namespace ridge::doctor
