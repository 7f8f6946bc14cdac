#include "ridge/proof/report/no_gain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ridge/base/shell_word.h"
#include "ridge/proof/trial_groups.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

// An open trial whose gain seems to be smaller is not worth another run.
constexpr double kSeemsToGain = 1.01;

// Gains below this factor are reported as no gain.
constexpr double kNone = 1.005;

// Waiting for data is reported from this share of the time on.
constexpr double kMuchWaiting = 0.1;

using Records = std::vector<const TrialRecord*>;

Records measured_of(const TrialGroups& groups) {
  Records measured;
  for (const Records* group : {&groups.kept, &groups.close})
    for (const TrialRecord* record : *group)
      if (record->measured && is_of_technique(*record)) measured.push_back(record);
  return measured;
}

bool passed_no_guard(const TrialRecord& record) {
  return record.verdict == TrialVerdict::kGuardFailed;
}

std::string plural(size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string tried_text(const TrialGroups& groups, const Records& measured) {
  if (measured.empty())
    return fmt::format(
        "nothing was worth a measurement{}",
        groups.useless.empty()
            ? ""
            : fmt::format(": {} cannot help here", plural(groups.useless.size(), "change")));
  size_t pairs = 0;
  for (const TrialRecord* record : measured) pairs += static_cast<size_t>(record->judged_pairs());
  const TrialRecord& closest = **std::ranges::max_element(
      measured, {}, [](const TrialRecord* record) { return record->measured->mid; });
  return fmt::format("{} in {} of runs; the closest was {}, {} times as fast{}",
                     plural(measured.size(), "change"),
                     plural(pairs, "pair"),
                     closest.technique,
                     measured_text(closest),
                     passed_no_guard(closest) ? ", which failed the guard" : "");
}

// Nothing where nothing was measured, or all of it was seen to gain.
std::string hidden_text(const Records& measured) {
  std::vector<std::pair<double, std::string>> hidden;
  for (const TrialRecord* record : measured)
    if (!passed_no_guard(*record) && record->verdict != TrialVerdict::kKept)
      hidden.emplace_back(hidden_gain(*record).value_or(1), record->technique);
  if (hidden.empty()) return {};
  std::ranges::sort(hidden, std::greater{});
  if (hidden.front().first < kNone) return "no gain: each of them was seen to be no faster";
  std::string text = fmt::format(
      "a gain of up to {:.2f} times by {}", hidden.front().first, hidden.front().second);
  if (hidden.size() > 1 && hidden[1].first >= kNone)
    text += fmt::format(", of up to {:.2f} by the others", hidden[1].first);
  return text + ": the noise of these runs hides what is smaller";
}

std::string names_of(const Records& records) {
  std::vector<std::string> names;
  for (const TrialRecord* record : records)
    if (std::ranges::find(names, record->technique) == names.end())
      names.push_back(record->technique);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Adds rows with what more time would allow, and with what only the user can allow.
void add_next(std::vector<ReportRow>& rows,
              const OptimizeSummary& summary,
              const TrialGroups& groups) {
  const auto add = [&rows](std::string text) { rows.push_back({"next", std::move(text)}); };
  Records open, late, leave;
  for (const TrialRecord* record : groups.close)
    if ((record->verdict == TrialVerdict::kOpen || record->verdict == TrialVerdict::kUnguarded) &&
        record->measured && record->measured->mid >= kSeemsToGain)
      open.push_back(record);
  for (const Records* group : {&groups.close, &groups.untried})
    for (const TrialRecord* record : *group) {
      if (came_too_late(*record)) late.push_back(record);
      if (needs_leave(*record)) leave.push_back(record);
    }
  const std::string budget = fmt::format("--budget {:.0f}", 2 * summary.budget_s);
  if (!open.empty())
    add(fmt::format(
        "{} has time for a verdict on {}, which seemed to gain", budget, names_of(open)));
  if (!late.empty()) add(fmt::format("{} has time to try {}", budget, names_of(late)));
  if (!leave.empty())
    add(fmt::format("--allow-trajectory also tries {}, which makes other updates",
                    names_of(leave)));
  for (const TrialRecord* record : groups.close)
    if (passed_no_guard(*record) && record->measured && record->measured->low > 1)
      add(fmt::format("{} gains, and its numbers failed the guard{}",
                      record->technique,
                      summary.ledger_path.empty() ? ""
                                                  : fmt::format(": ridge ledger explain {} {}",
                                                                shell_word(summary.ledger_path),
                                                                record->number)));
}

}  // namespace

std::optional<double> hidden_gain(const TrialRecord& record) {
  if (!record.measured) return std::nullopt;
  const double high = record.measured->high;
  return record.verdict == TrialVerdict::kNotFaster ? std::min(high, std::exp(record.judge.hope))
                                                    : high;
}

std::vector<ReportRow> no_gain_rows(const OptimizeSummary& summary,
                                    std::span<const TrialRecord> trials) {
  const TrialGroups groups = group_trials(trials);
  const Records measured = measured_of(groups);
  std::vector<ReportRow> rows = {{"tried", tried_text(groups, measured)}};
  for (const TrialRecord& record : trials)
    if (record.technique == kProofTechnique && record.measured)
      rows.push_back({"proof",
                      fmt::format("what was kept, together: {} times as fast, {}",
                                  measured_text(record),
                                  record.reason)});
  if (std::string hidden = hidden_text(measured); !hidden.empty())
    rows.push_back({"may be hidden", std::move(hidden)});
  add_next(rows, summary, groups);
  if (summary.doctor_use.empty()) return rows;
  const double wait = summary.baseline.loader_wait_share;
  rows.push_back({"next",
                  (wait >= kMuchWaiting
                       ? fmt::format("a step waits for data for {:.0f} % of its time; ", 100 * wait)
                       : std::string()) +
                      summary.doctor_use + " says what a step's time goes into"});
  return rows;
}

}  // namespace ridge
