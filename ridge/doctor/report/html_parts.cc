#include "ridge/doctor/report/html_parts.h"

#include <fmt/format.h>

#include "ridge/base/html/markup.h"
#include "ridge/doctor/report/text.h"

namespace ridge::doctor {

Tone tone_of(Severity severity) {
  switch (severity) {
    case Severity::kHigh:
      return Tone::kBad;
    case Severity::kWarning:
      return Tone::kWarning;
    case Severity::kInfo:
      break;
  }
  return Tone::kNeutral;
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

void add_finding(HtmlReport& page, size_t number, const Finding& finding) {
  page.heading(3, shortened(fmt::format("{}. {} {}", number, finding.rule, finding.title), 300));
  std::string cost = "a remark without a cost of its own";
  if (finding.cost_ms > 0)
    cost = fmt::format("{:.3f} ms of a step, {}; {}; confidence {:.2f}",
                       finding.cost_ms,
                       percent_text(finding.share),
                       gain_text(finding),
                       finding.confidence);
  page.callout(tone_of(finding.severity), name_of(finding.severity), cost);
  std::vector<std::string> seen;
  for (const Evidence& evidence : finding.evidence)
    seen.push_back(shortened(evidence.place.empty()
                                 ? evidence.text
                                 : fmt::format("{} ({})", evidence.text, evidence.place),
                             kTextLength));
  if (!seen.empty()) page.list(seen);
  if (!finding.fix.empty())
    page.paragraph(fmt::format(
        "Fix ({}): {}.", class_text(finding.semantic_class), shortened(finding.fix, kTextLength)));
  if (!finding.recipe.empty()) page.code(finding.recipe);
  if (!finding.command.empty()) page.code(plain_line(finding.command));
}

}  // namespace ridge::doctor
