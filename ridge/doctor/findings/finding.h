// The findings of the rules (rules/rules.h), and their ranking.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

enum class Severity : uint8_t { kInfo, kWarning, kHigh };
std::string_view name_of(Severity severity);

/// How many times as fast, from low to high.
struct Gain {
  double low = 1, high = 1;
};

struct Evidence {
  std::vector<size_t> rows{};  ///< At most a few rows of the trace; `text` counts all.
  std::string text{};          ///< "412 calls of cudaStreamSynchronize, 3.1 ms a step"
  std::string place{};         ///< "train.py(88): step", where the trace has stacks.
};

struct Finding {
  std::string_view rule;  ///< "R05"
  std::string title{};    ///< One line, lower case, no full stop.
  Severity severity = Severity::kInfo;
  double cost_ms = 0;     ///< A step, that could be recovered at most.
  double share = 0;       ///< Share of the step.
  double confidence = 1;  ///< 0 to 1.
  double ceiling = 1;     ///< Times as fast, if all of cost_ms were gone.
  Gain predicted{};       ///< Within the ceiling.
  std::vector<Evidence> evidence{};
  Intervals at{};         ///< The stretches that it is charged with, to tell overlapping findings.
  std::string fix{};      ///< Advice in one or two sentences.
  std::string recipe{};   ///< TOML that Ridge can apply; empty where it cannot.
  std::string command{};  ///< A command line that proves the fix.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;  ///< The class of the fix.
};

/// True of a finding whose fix is predicted to gain less than two decimals show ("1.00 to 1.00
/// times as fast"). Reports fold such findings.
bool gains_nothing(const Finding& finding);

/// True of a finding above a remark whose fix is predicted to gain something.
bool is_worth_fixing(const Finding& finding);

struct NotFired {
  std::string_view rule;
  std::string reason;
};

/// Fills either `findings` or `not_fired`, at least one row.
struct RuleOutput {
  std::vector<Finding> findings;
  std::vector<NotFired> not_fired;
};

struct Diagnosis {
  std::vector<Finding> findings;  ///< By the lower bound of what can be recovered, most first.
  std::vector<NotFired> not_fired;
};

/// Applies all rules, ranks, and merges findings that are charged with the same stretches. Rules
/// that `known` has rows of already, such as those over several ranks, are not applied again.
Diagnosis diagnose(const Trace& trace, const Analysis& analysis, RuleOutput known = {});

/// Ranks and merges alone: what is mostly charged to a finding above it goes to not_fired, what is
/// so in part is charged with the rest. The order of `all` does not matter.
Diagnosis ranked(RuleOutput all, const Analysis& analysis);

}  // namespace ridge::doctor
