// The doctor's examination of a synthetic program.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "ridge/doctor/examination.h"
#include "tests/doctor/synthetic_trace.h"

namespace ridge::doctor::synthetic {

/// Examines all its ranks.
inline Examination examined(const Program& program, const Options& options) {
  std::vector<Trace> traces;
  for (SyntheticTrace& each : simulate(program, options)) traces.push_back(std::move(each.trace));
  return examine(std::move(traces));
}

/// The first finding that is not about the trace itself; null where there is none.
inline const Finding* first_of(const Diagnosis& diagnosis) {
  const auto found = std::find_if(diagnosis.findings.begin(),
                                  diagnosis.findings.end(),
                                  [](const Finding& finding) { return finding.rule != "R00"; });
  return found == diagnosis.findings.end() ? nullptr : &*found;
}

/// Its rule, or "none".
inline std::string_view first_rule(const Diagnosis& diagnosis) {
  const Finding* first = first_of(diagnosis);
  return first == nullptr ? "none" : first->rule;
}

}  // namespace ridge::doctor::synthetic
