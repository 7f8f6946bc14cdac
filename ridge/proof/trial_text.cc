#include "ridge/proof/trial_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ridge/proof/trial_groups.h"

namespace ridge {
namespace {

// Columns of 80 characters in all: what decides stands first.
std::string cells(std::string_view number,
                  std::string_view technique,
                  std::string_view verdict,
                  std::string_view measured,
                  std::string_view predicted) {
  return fmt::format(
      "{:>3}  {:<23} {:<12} {:<20} {}\n", number, technique, verdict, measured, predicted);
}

std::string heading() { return cells("", "technique", "verdict", "measured", "predicted"); }

// Shows the leading changes that fit into kRoom characters, and at least the first; a ledger has
// all.
std::string shown_change(std::string_view change) {
  constexpr size_t kRoom = 60;
  std::string plain = plain_line(change);
  std::vector<size_t> ends;  // of each change
  for (size_t at = plain.find(", "); at != std::string::npos; at = plain.find(", ", at + 1))
    ends.push_back(at);
  ends.push_back(plain.size());
  size_t shown = ends.size();
  while (shown > 1 && ends[shown - 1] > kRoom) --shown;
  if (shown == ends.size()) return plain;
  return fmt::format("{}, and {} more", plain.substr(0, ends[shown - 1]), ends.size() - shown);
}

// Puts the lines of a reason, such as a program's last output, on one line and cuts it at kMost
// characters.
std::string reason_of(const TrialRecord& record) {
  constexpr size_t kMost = 200;
  std::string line;
  for (char c : record.reason) line += c == '\n' ? std::string(" | ") : std::string(1, c);
  return shortened(line, kMost);
}

// One line, and a second one for what was changed and why it was not kept.
std::string row(const TrialRecord& record, std::string_view verdict) {
  const std::string number = fmt::format("{}", record.number);
  const std::string technique = plain_line(record.technique);
  if (!record.measured && !record.predicted) {
    std::string text =
        fmt::format("{:>3}  {:<23} {:<12} {}\n", number, technique, verdict, reason_of(record));
    if (!record.change.empty()) text += fmt::format("     {}\n", shown_change(record.change));
    return text;
  }
  std::string text =
      cells(number, technique, verdict, measured_text(record), predicted_text(record));
  if (const std::string more = change_and_reason(record); !more.empty())
    text += fmt::format("     {}\n", more);
  return text;
}

}  // namespace

std::string words_of(TrialVerdict verdict) {
  std::string words(name_of(verdict));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string_view words_of(SemanticClass semantic_class) {
  switch (semantic_class) {
    case SemanticClass::kBitIdentical:
      return "the same bits";
    case SemanticClass::kReassociation:
      return "the same formula in another order";
    case SemanticClass::kPrecision:
      return "numbers of another precision";
    case SemanticClass::kTrajectory:
      break;
  }
  return "other updates: another trajectory";
}

std::optional<double> telling_bound(const TrialRecord& record) {
  return record.ceiling && *record.ceiling < kTellingBound ? record.ceiling : std::nullopt;
}

std::string predicted_text(const TrialRecord& record) {
  if (record.predicted)
    return fmt::format("{:.2f} to {:.2f}", record.predicted->low, record.predicted->high);
  const std::optional<double> bound = telling_bound(record);
  return bound ? fmt::format("bound {:.2f}", *bound) : "-";
}

std::string measured_text(const TrialRecord& record) {
  if (!record.measured) return "-";
  const SpeedEstimate& measured = *record.measured;
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", measured.mid, measured.low, measured.high);
}

std::string change_and_reason(const TrialRecord& record) {
  std::string text = shown_change(record.change);
  const std::string reason = reason_of(record);
  const bool is_kept_step = record.verdict == TrialVerdict::kKept && record.measured;
  if (is_kept_step || reason.empty() || reason == words_of(record.verdict)) return text;
  return text.empty() ? reason : text + ": " + reason;
}

std::string trial_table(std::span<const TrialRecord> trials) {
  std::string text = heading();
  for (const TrialRecord& record : trials) text += row(record, words_of(record.verdict));
  return text;
}

std::string grouped_trials(std::span<const TrialRecord> trials, GroupedForm form) {
  TrialGroups groups = group_trials(trials);
  if (form.untried) {
    const auto unsupported =
        std::ranges::stable_partition(groups.untried, [](const TrialRecord* record) {
          return record->reason != kUnsupported;
        }).begin();
    groups.close.insert(groups.close.end(), groups.untried.begin(), unsupported);
    groups.untried.erase(groups.untried.begin(), unsupported);
  }
  std::string text;
  if (!groups.kept.empty() || !groups.close.empty()) text += heading();
  for (const TrialRecord* record : groups.kept) text += row(*record, verdict_words(*record, true));
  for (const TrialRecord* record : groups.close)
    text += row(*record, verdict_words(*record, false));
  std::string rest;
  for (const std::string& line : untried_lines(groups)) rest += fmt::format("  {}\n", line);
  if (const std::string words = useless_words(groups); !words.empty())
    rest += fmt::format("  {}{}\n", words, form.all ? ":" : "; --all says why");
  if (form.all)
    for (const TrialRecord* record : groups.useless)
      rest += row(*record, verdict_words(*record, false));
  return text.empty() || rest.empty() ? text + rest : text + "\n" + rest;
}

std::string trial_note(const TrialRecord& record) {
  if (!was_run(record)) return {};
  return fmt::format(
      "trial {}: {}: {}{}",
      record.number,
      record.change.empty() ? plain_line(record.technique) : shown_change(record.change),
      words_of(record.verdict),
      record.measured ? ", " + measured_text(record) + " times as fast" : "");
}

}  // namespace ridge
