#include "ridge/tune/trial_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ridge/tune/prediction.h"

namespace ridge {
namespace {

std::string cells(std::string_view number,
                  std::string_view technique,
                  std::string_view change,
                  std::string_view predicted,
                  std::string_view measured) {
  return fmt::format(
      "{:>3}  {:<16} {:<34} {:<14} {:<21} ", number, technique, change, predicted, measured);
}

// Of many changes those that a line has room for, and at least the first; a ledger has all.
std::string shown_change(std::string_view change) {
  constexpr size_t kRoom = 60;
  const std::string plain = plain_line(change);
  if (plain.empty()) return "-";
  std::vector<size_t> ends;  // of each change
  for (size_t at = plain.find(", "); at != std::string::npos; at = plain.find(", ", at + 1))
    ends.push_back(at);
  ends.push_back(plain.size());
  size_t shown = ends.size();
  while (shown > 1 && ends[shown - 1] > kRoom) --shown;
  if (shown == ends.size()) return plain;
  return fmt::format("{}, and {} more", plain.substr(0, ends[shown - 1]), ends.size() - shown);
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

std::string predicted_text(const TrialRecord& record) {
  if (record.predicted)
    return fmt::format("{:.2f} .. {:.2f}", record.predicted->low, record.predicted->high);
  const bool is_bounded = record.ceiling && *record.ceiling < kNoCeiling;
  return is_bounded ? fmt::format("at most {:.2f}", *record.ceiling) : "-";
}

std::string measured_text(const TrialRecord& record) {
  if (!record.measured) return "-";
  const SpeedEstimate& measured = *record.measured;
  return fmt::format("{:.2f} ({:.2f} .. {:.2f})", measured.mid, measured.low, measured.high);
}

std::string trial_heading() {
  return cells("", "technique", "change", "predicted", "measured") + "verdict\n";
}

std::string trial_line(const TrialRecord& record) {
  std::string line = cells(fmt::format("{}", record.number),
                           plain_line(record.technique),
                           shown_change(record.change),
                           predicted_text(record),
                           measured_text(record)) +
                     words_of(record.verdict);
  if (record.verdict != TrialVerdict::kKept && !record.reason.empty())
    line += ": " + plain_line(record.reason);
  return line + "\n";
}

std::string trial_table(std::span<const TrialRecord> trials) {
  std::string text = trial_heading();
  for (const TrialRecord& record : trials) text += trial_line(record);
  return text;
}

}  // namespace ridge
