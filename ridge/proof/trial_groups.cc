#include "ridge/proof/trial_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/base/html/markup.h"
#include "ridge/proof/trial_order.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

double gain_of(const TrialRecord* record) {
  const double gain = record->measured ? record->measured->mid : 0;
  return std::isfinite(gain) ? gain : 0;
}

bool could_help(const TrialRecord& record) {
  if (came_too_late(record) || needs_leave(record)) return true;
  return record.verdict == TrialVerdict::kNotTried && !record.change.empty() &&
         record.ceiling.value_or(kLeastCeiling) >= kLeastCeiling;
}

bool is_likely_to_gain(const TrialRecord& record) {
  return record.predicted && middle_of(*record.predicted) >= kLeastCeiling;
}

}  // namespace

bool was_run(const TrialRecord& record) {
  switch (record.verdict) {
    case TrialVerdict::kRefused:
    case TrialVerdict::kNotTried:
      return record.measured.has_value();
    default:
      return true;
  }
}

bool came_too_late(const TrialRecord& record) {
  return record.verdict == TrialVerdict::kNotTried &&
         (record.reason.starts_with(kNoTime) || record.reason == kWasStopped);
}

bool needs_leave(const TrialRecord& record) {
  return record.semantic_class == SemanticClass::kTrajectory && !record.change.empty() &&
         record.reason.find("--allow-trajectory") != std::string::npos;
}

TrialGroups group_trials(std::span<const TrialRecord> trials) {
  TrialGroups groups;
  const std::vector<const TrialRecord*> steps = kept_steps(trials);
  std::vector<const TrialRecord*> promising;
  for (const TrialRecord& record : trials) {
    if (record.technique == kProofTechnique) continue;
    const bool is_step = std::find(steps.begin(), steps.end(), &record) != steps.end();
    const bool is_so = record.verdict == TrialVerdict::kKept && !record.measured;
    if (is_step || (is_so && is_of_technique(record)))
      groups.kept.push_back(&record);
    else if (was_run(record))
      groups.close.push_back(&record);
    else if (record.reason == kUnsupported)
      groups.untried.push_back(&record);
    else if (!could_help(record) || (record.predicted && !is_worth_trying(*record.predicted)))
      groups.useless.push_back(&record);
    else
      (is_likely_to_gain(record) ? promising : groups.untried).push_back(&record);
  }
  std::ranges::stable_sort(groups.close, {}, [](const TrialRecord* record) {
    return std::pair(!is_of_technique(*record), -gain_of(record));
  });
  groups.close.insert(groups.close.end(), promising.begin(), promising.end());
  return groups;
}

std::vector<std::string> untried_lines(const TrialGroups& groups) {
  std::map<std::string, std::vector<std::string>> names;
  for (const TrialRecord* record : groups.untried) {
    std::vector<std::string>& of_reason = names[plain_line(record->reason)];
    const std::string name = plain_line(record->technique);
    if (std::find(of_reason.begin(), of_reason.end(), name) == of_reason.end())
      of_reason.push_back(name);
  }
  std::vector<std::string> lines;
  for (const auto& [reason, of_reason] : names)
    lines.push_back(fmt::format("not tried ({}): {}", reason, fmt::join(of_reason, ", ")));
  return lines;
}

std::string useless_words(const TrialGroups& groups) {
  const size_t count = groups.useless.size();
  if (count == 0) return {};
  const bool is_all = groups.kept.empty() && groups.close.empty() && groups.untried.empty();
  return fmt::format(
      "{} {}{} cannot help here", count, is_all ? "change" : "other", count == 1 ? "" : "s");
}

std::string verdict_words(const TrialRecord& record, bool is_kept) {
  if (is_kept || record.verdict != TrialVerdict::kKept) return words_of(record.verdict);
  return is_of_technique(record) ? words_of(TrialVerdict::kDropped) : "stays";
}

}  // namespace ridge
