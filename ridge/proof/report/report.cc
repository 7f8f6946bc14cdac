// The page.
#include "ridge/proof/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/html/charts.h"
#include "ridge/base/html/html_writer.h"
#include "ridge/proof/report/no_gain.h"
#include "ridge/proof/report/pictures.h"
#include "ridge/proof/report/trial_pictures.h"
#include "ridge/proof/report/words.h"
#include "ridge/proof/trial_groups.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

std::vector<HtmlReport::Figure> key_figures(const OptimizeSummary& summary) {
  const VariantSpeed &a = summary.baseline, &b = summary.result;
  std::vector<HtmlReport::Figure> figures;
  const auto add = [&](double before, double after, auto text_of, std::string caption) {
    if (!(before > 0) || !(after > 0)) return;
    const std::string text = text_of(before), other = text_of(after);
    const bool is_same = !summary.is_faster() || text == other;
    figures.push_back({is_same ? text : text + " \u2192 " + other, std::move(caption)});
  };
  const auto plain = [](double value) { return readable_number(value); };
  if (!summary.claim.per_sample) add(a.step_ms, b.step_ms, plain, "ms a step");
  add(a.samples_per_s, b.samples_per_s, plain, "samples a second");
  add(static_cast<double>(a.planned_bytes),
      static_cast<double>(b.planned_bytes),
      mebibytes,
      "memory, planned");
  return figures;
}

void add_claim(HtmlReport& page,
               const OptimizeSummary& summary,
               std::span<const TrialRecord> trials) {
  page.callout(summary.is_faster() ? Tone::kGood : Tone::kNeutral,
               claim_title(summary),
               claim_text(summary));
  if (const auto figures = key_figures(summary); !figures.empty()) page.key_figures(figures);
  if (!summary.notes.empty()) page.list(summary.notes);
  if (!summary.is_faster()) page.facts(no_gain_rows(summary, trials));
}

void add_comparison(HtmlReport& page, const OptimizeSummary& summary) {
  if (!summary.is_faster()) {
    page.heading(2, "A step as it is");
    return page.facts(baseline_rows(summary));
  }
  page.heading(2, "Before and after");
  HtmlTable table{{{""}, {"before", true}, {"after", true}}, {}};
  for (const ComparisonRow& row : comparison_rows(summary))
    table.rows.push_back({row.name, row.before, row.after});
  page.table(table);
  page.paragraph(summary.energy_problem.empty()
                     ? fmt::format("Energy is that of {} while the blocks of the proof ran.",
                                   summary.energy_of)
                     : "Energy was not measured: " + summary.energy_problem + ".");
  if (summary.price_per_hour)
    page.paragraph(fmt::format("Money at {} an hour, in its currency.",
                               readable_number(*summary.price_per_hour)));
}

void add_examination(HtmlReport& page, const OptimizeSummary& summary) {
  if (!summary.examination) return;
  const StepExamination& seen = *summary.examination;
  page.heading(2, summary.gained() ? "What holds it back now" : "What holds it back");
  if (seen.findings.empty()) {
    for (const auto& [name, said] : examination_rows(summary)) page.paragraph(said);
    return;
  }
  HtmlTable table{{{"finding"}, {"share of a step", true}, {"ceiling", true}, {"advice"}}, {}};
  for (const StepFinding& finding : seen.findings)
    table.rows.push_back({finding.rule + " " + finding.title,
                          fmt::format("{:.0f} %", 100 * finding.share),
                          fmt::format("{:.2f}", finding.ceiling),
                          finding.fix});
  page.table(table);
}

void add_waterfall(HtmlReport& page,
                   const OptimizeSummary& summary,
                   std::span<const TrialRecord> trials) {
  if (!summary.is_faster()) return;
  page.heading(2, "From the old step to the new one");
  page.figure(waterfall(summary, trials),
              fmt::format("What each kept change took off {} when it was tried, and what all of "
                          "them together were proven to give.",
                          summary.claim.per_sample ? "the time for the samples of a step before"
                                                   : "a step"));
}

Tone tone_of(ConfirmVerdict verdict) {
  switch (verdict) {
    case ConfirmVerdict::kConfirmed:
      return Tone::kGood;
    case ConfirmVerdict::kRefused:
      return Tone::kBad;
    case ConfirmVerdict::kCannotTell:
      break;
  }
  return Tone::kWarning;
}

void add_numbers(HtmlReport& page, const OptimizeSummary& summary) {
  if (!summary.gained() && !summary.confirmation) return;
  page.heading(2, "The numbers");
  const bool passed = summary.guard.verdict == "passed" || summary.guard.verdict == "not_needed";
  if (summary.gained())
    page.callout(passed ? Tone::kGood : Tone::kWarning, "Guard", guard_text(summary.guard));
  if (summary.confirmation)
    page.callout(
        tone_of(summary.confirmation->verdict), "Confirmation", confirmation_text(summary));
}

void add_recipe(HtmlReport& page, const OptimizeSummary& summary) {
  if (!summary.gained()) return;
  page.heading(2, "Use it");
  page.code(recipe_command(summary));
  page.begin_details("The recipe");
  page.code(summary.recipe);
  page.end_details();
}

std::string steps_caption(const OptimizeSummary& summary) {
  std::string text = summary.is_faster()
                         ? "One step of median length of each variant, to the same scale: what ran "
                           "when, by thread, "
                           "and where the step ends. The names have their sums, before and after."
                         : "One step of median length: what ran when, by thread, and where the "
                           "step ends. The names "
                           "have their sums.";
  text += " Each piece shows its name, site and time under the pointer.";
  const int64_t merged =
      summary.baseline.timeline.merged + (summary.is_faster() ? summary.result.timeline.merged : 0);
  if (merged > 0)
    text +=
        fmt::format(" The {} shortest pieces are drawn together with their neighbours.", merged);
  return text;
}

void add_pictures(HtmlReport& page, const OptimizeSummary& summary) {
  if (const Picture steps = step_timeline(summary); !steps.empty()) {
    page.heading(2, "One step");
    page.figure(steps, steps_caption(summary), FigureWidth::kPage);
  }
  if (const Picture map = memory_map(summary); !map.empty()) {
    page.heading(2, "Memory");
    page.figure(map, "Planned bytes by what they hold.");
  }
}

// "bit identical", "trajectory".
std::string class_words(SemanticClass semantic_class) {
  std::string words(name_of(semantic_class));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

Tone tone_of(TrialVerdict verdict) {
  switch (verdict) {
    case TrialVerdict::kKept:
      return Tone::kGood;
    case TrialVerdict::kGuardFailed:
    case TrialVerdict::kFailed:
      return Tone::kBad;
    case TrialVerdict::kOpen:
    case TrialVerdict::kUnguarded:
      return Tone::kWarning;
    default:
      return Tone::kNeutral;
  }
}

HtmlEntry entry_of(const TrialRecord& trial, const TrialScale& scale, bool is_kept) {
  HtmlEntry entry{.tone = is_kept || trial.verdict != TrialVerdict::kKept ? tone_of(trial.verdict)
                                                                          : Tone::kNeutral,
                  .verdict = verdict_words(trial, is_kept),
                  .title = trial.technique,
                  .text = trial.change,
                  .svg = trial_picture(trial, scale)};
  if (!trial.change.empty() && trial.semantic_class != SemanticClass::kBitIdentical)
    entry.text += fmt::format(" ({})", class_words(trial.semantic_class));
  if (trial.measured) {
    entry.value = fmt::format("{:.2f}\u00d7", trial.measured->mid);
    entry.detail = fmt::format("{:.2f} to {:.2f}", trial.measured->low, trial.measured->high);
  }
  if (const std::string predicted = predicted_text(trial); predicted != "-")
    entry.detail += fmt::format(
        "{}{}{}", entry.detail.empty() ? "" : "\n", trial.predicted ? "predicted " : "", predicted);
  const bool says_more = trial.reason != words_of(trial.verdict);
  if (says_more && (!is_kept || !trial.measured)) entry.remark = trial.reason;
  if (!trial.guard.empty() && trial.guard != trial.reason)
    entry.remark += (entry.remark.empty() ? "guard: " : "; guard: ") + trial.guard;
  return entry;
}

void add_useless(HtmlReport& page, const TrialGroups& groups) {
  if (groups.useless.empty()) return;
  page.begin_details(useless_words(groups));
  HtmlTable table{{{"technique"}, {"why"}}, {}};
  for (const TrialRecord* trial : groups.useless)
    table.rows.push_back({trial->technique, trial->reason});
  page.table(table);
  page.end_details();
}

void add_trials(HtmlReport& page,
                const OptimizeSummary& summary,
                std::span<const TrialRecord> trials) {
  const TrialGroups groups = group_trials(trials);
  std::vector<const TrialRecord*> shown = groups.kept;
  shown.insert(shown.end(), groups.close.begin(), groups.close.end());
  if (shown.empty() && groups.untried.empty() && groups.useless.empty()) return;
  page.heading(2, "What was tried");
  if (!shown.empty()) {
    page.paragraph(
        "Times as fast as what was kept before: the point is the measurement, its line the "
        "interval "
        "that holds at 95 %, the band the prediction. A bound is what a step would gain if all "
        "that "
        "the change is about cost nothing.");
    const TrialScale scale(shown);
    std::vector<HtmlEntry> entries;
    for (size_t i = 0; i < shown.size(); ++i)
      entries.push_back(entry_of(*shown[i], scale, i < groups.kept.size()));
    page.entries(trial_axis(scale), entries);
  }
  if (const std::vector<std::string> lines = untried_lines(groups); !lines.empty())
    page.list(lines);
  add_useless(page, groups);
  if (!summary.ledger_path.empty())
    page.paragraph("Every measured block is in " + summary.ledger_path +
                   "; ridge ledger explain proves a verdict again.");
}

void add_configurations(HtmlReport& page, const OptimizeSummary& summary) {
  for (const auto& [title, variant] :
       {std::pair(summary.gained() ? "Configuration before" : "Configuration", &summary.baseline),
        std::pair("Configuration after", &summary.result)}) {
    const bool is_same = variant == &summary.result && !summary.gained();
    if (variant->config.empty() || is_same) continue;
    page.begin_details(title);
    page.code(variant->config);
    page.end_details();
  }
}

}  // namespace

std::string optimize_html(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  HtmlReport page(
      "ridge optimize: " + summary.target,
      fmt::format(
          "{}; took {:.0f} s of {:.0f} s", summary.machine, summary.seconds, summary.budget_s));
  add_claim(page, summary, trials);
  add_recipe(page, summary);
  add_trials(page, summary, trials);
  add_waterfall(page, summary, trials);
  add_comparison(page, summary);
  add_examination(page, summary);
  add_numbers(page, summary);
  add_pictures(page, summary);
  add_configurations(page, summary);
  return page.finish();
}

}  // namespace ridge
