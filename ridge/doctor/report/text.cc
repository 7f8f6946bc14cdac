#include "ridge/doctor/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ridge/base/html/markup.h"

namespace ridge::doctor {
namespace {

constexpr double kBarWidth = 30;
constexpr size_t kLineWidth = 96;

// `text` in lines of words, each after the first begun with `margin`.
std::string wrapped(std::string_view text, std::string_view margin) {
  std::string lines, line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!line.empty() && margin.size() + line.size() + 1 + word.size() > kLineWidth) {
      lines += line + "\n" + std::string(margin);
      line.clear();
    }
    if (!word.empty()) line += (line.empty() ? "" : " ") + std::string(word);
    at = end + 1;
  }
  return lines + line + "\n";
}

std::string labelled(std::string_view label, std::string_view text) {
  const std::string margin = "   " + std::string(label.size(), ' ') + " ";
  return fmt::format("   {} {}", label, wrapped(plain_line(text), margin));
}

std::string head(const Examination& examination) {
  const Trace& trace = examination.trace;
  const Analysis& analysis = examination.analysis;
  std::string text = fmt::format("{}: {}\n", plain_line(trace.source), verdict_text(examination));
  text = plain_line(text.substr(0, text.size() - 1)) + "\n";
  text += plain_line(fmt::format("{}, {} events by {}",
                                 steps_text(analysis.steps),
                                 trace.size(),
                                 trace.recorder.empty() ? "an unknown recorder" : trace.recorder));
  if (analysis.unprofiled)
    text += "\n" + unprofiled_text(analysis) + ":";
  else if (!analysis.steps.windows.empty())
    text += ";";
  if (!analysis.steps.windows.empty())
    text += fmt::format(" a step takes {:.2f} ms ({:.2f} to {:.2f})",
                        analysis.step_ms_median,
                        analysis.step_ms_min,
                        analysis.step_ms_max);
  return text + "\n";
}

std::string breakdown(const Analysis& analysis) {
  const Breakdown& mean = analysis.breakdown;
  if (!(mean.wall > 0)) return {};
  std::string text = fmt::format("\nWhere a step of {:.2f} ms goes, in the mean{}:\n",
                                 mean.wall,
                                 analysis.unprofiled ? ", divided as the profiled steps are" : "");
  for (const StepPart& part : parts_of_step(analysis)) {
    const double share = part.ms / mean.wall;
    if (part.ms < 0.0005 && part.name != "compute") continue;
    const auto width = static_cast<size_t>(std::clamp(share * kBarWidth + 0.5, 0.0, kBarWidth));
    text += fmt::format("  {:<10} {:>10.2f} ms {:>4.0f} %  {:<30} {}",
                        part.name,
                        part.ms,
                        100 * share,
                        std::string(width, '#'),
                        part.detail);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  if (!analysis.is_cpu_only)
    text +=
        fmt::format("  the device is busy {:.2f} ms, copies {:.2f} ms, communicates {:.2f} ms\n",
                    mean.busy,
                    mean.copy,
                    mean.communication);
  return text;
}

std::string finding_text(size_t number, const Finding& finding) {
  std::string text = plain_line(fmt::format(
      "{}. {} {} [{}]", number, finding.rule, finding.title, name_of(finding.severity)));
  text = "\n" + text + "\n";
  if (finding.cost_ms > 0)
    text += labelled("cost:",
                     fmt::format("{:.2f} ms a step, {:.0f} %; {}; confidence {:.1f}",
                                 finding.cost_ms,
                                 100 * finding.share,
                                 gain_text(finding),
                                 finding.confidence));
  for (const Evidence& evidence : finding.evidence)
    text += labelled(
        "seen:",
        evidence.place.empty() ? evidence.text : evidence.text + " (" + evidence.place + ")");
  if (!finding.fix.empty())
    text +=
        labelled("fix: ", fmt::format("{} [{}]", finding.fix, class_text(finding.semantic_class)));
  // A command is not broken into lines: it is to be copied.
  if (!finding.command.empty()) text += "   try:  " + plain_line(finding.command) + "\n";
  return text;
}

std::string not_shown(size_t further, size_t folded) {
  const auto counted = [](size_t count) {
    return fmt::format("{} finding{}", count, count == 1 ? "" : "s");
  };
  std::string text;
  if (further > 0) text = counted(further) + " of lesser gain";
  if (folded > 0)
    text += (text.empty() ? "" : ", ") + counted(folded) +
            " expected to gain nothing (1.00 to 1.00 times as fast)";
  return text.empty() ? text
                      : "\nNot shown: " + wrapped(text + "; --all shows them", "           ");
}

std::string findings(const Diagnosis& diagnosis, bool shows_all) {
  std::string text;
  size_t number = 0, further = 0, folded = 0;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.rule == "R00") continue;
    if (!shows_all && gains_nothing(finding))
      ++folded;
    else if (!shows_all && number == kShownFindings)
      ++further;
    else
      text += finding_text(++number, finding);
  }
  return text + not_shown(further, folded);
}

// Doubts about the trace, for the reader to see before the findings.
std::string caution(const Diagnosis& diagnosis) {
  std::string text;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.rule != "R00") continue;
    text += fmt::format("\nR00 {} [{}]\n", plain_line(finding.title), name_of(finding.severity));
    for (const Evidence& evidence : finding.evidence) text += labelled("seen:", evidence.text);
    text += labelled("fix: ", finding.fix);
    if (!finding.command.empty()) text += "   try:  " + plain_line(finding.command) + "\n";
  }
  return text;
}

// One line of ids: the reasons are in the JSON and the page.
std::string not_seen(const Diagnosis& diagnosis) {
  std::string ids;
  std::string_view last;
  for (const NotFired& row : diagnosis.not_fired) {
    if (row.rule == last) continue;
    last = row.rule;
    ids += (ids.empty() ? "" : " ") + std::string(row.rule);
  }
  if (ids.empty()) return {};
  return "\nNot seen: " + wrapped(ids + " (--json says why)", "          ");
}

std::string ranks(const std::vector<RankRow>& rows) {
  if (rows.empty()) return {};
  std::string text = "\n  rank    step ms  compute ms  communication ms  file\n";
  for (const RankRow& row : rows)
    text += plain_line(fmt::format("  {:>4} {:>10.2f} {:>11.2f} {:>17.2f}  {}",
                                   row.rank < 0 ? std::string("-") : std::to_string(row.rank),
                                   row.step_ms,
                                   row.compute_ms,
                                   row.communication_ms,
                                   row.file)) +
            "\n";
  return text;
}

}  // namespace

std::string gain_text(const Finding& finding) {
  if (!(finding.ceiling > 1)) return {};
  return fmt::format("{:.2f} to {:.2f} times as fast expected, {:.2f} at most",
                     finding.predicted.low,
                     finding.predicted.high,
                     finding.ceiling);
}

std::string_view class_text(SemanticClass semantic_class) {
  constexpr std::array<std::string_view, 4> kTexts = {"the same bits",
                                                      "the same formula, other rounding",
                                                      "other number formats",
                                                      "another training run"};
  return kTexts[static_cast<size_t>(semantic_class)];
}

std::string doctor_text(const Examination& examination, bool shows_all) {
  return head(examination) + breakdown(examination.analysis) + ranks(examination.ranks) +
         caution(examination.diagnosis) + findings(examination.diagnosis, shows_all) +
         not_seen(examination.diagnosis);
}

}  // namespace ridge::doctor
