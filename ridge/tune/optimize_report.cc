// The page.
#include "ridge/tune/optimize_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/charts.h"
#include "ridge/base/html_writer.h"
#include "ridge/tune/optimize_pictures.h"
#include "ridge/tune/optimize_words.h"
#include "ridge/tune/trial_text.h"

namespace ridge {
namespace {

void add_claim(HtmlReport& page, const OptimizeSummary& summary) {
  page.callout(
      summary.gained() ? Tone::kGood : Tone::kNeutral, claim_title(summary), claim_text(summary));
  const auto change = [](double before, double after, std::string_view unit) {
    return fmt::format("{} \u2192 {}{}", readable_number(before), readable_number(after), unit);
  };
  std::vector<HtmlReport::Figure> figures;
  const VariantSpeed &a = summary.baseline, &b = summary.result;
  if (a.step_ms > 0 && b.step_ms > 0 && !summary.claim.per_sample)
    figures.push_back({change(a.step_ms, b.step_ms, " ms"), "a step"});
  if (a.samples_per_s > 0 && b.samples_per_s > 0)
    figures.push_back({change(a.samples_per_s, b.samples_per_s, ""), "samples a second"});
  if (a.planned_bytes > 0 && b.planned_bytes > 0)
    figures.push_back({fmt::format("{} \u2192 {}",
                                   mebibytes(static_cast<double>(a.planned_bytes)),
                                   mebibytes(static_cast<double>(b.planned_bytes))),
                       "memory"});
  if (!figures.empty()) page.key_figures(figures);
  if (!summary.notes.empty()) page.list(summary.notes);
}

void add_comparison(HtmlReport& page, const OptimizeSummary& summary) {
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

void add_numbers(HtmlReport& page, const OptimizeSummary& summary) {
  page.heading(2, "The numbers");
  const bool passed = summary.guard.verdict == "passed" || summary.guard.verdict == "not_needed";
  page.callout(passed ? Tone::kGood : Tone::kWarning, "Guard", guard_text(summary.guard));
}

void add_recipe(HtmlReport& page, const OptimizeSummary& summary) {
  if (!summary.gained()) return;
  page.heading(2, "Recipe");
  page.code(summary.recipe);
  const std::string path = summary.recipe_path.empty() ? "FILE" : summary.recipe_path;
  page.paragraph(
      fmt::format("To be used with: {} {}{}", summary.recipe_use, path, summary.recipe_rest));
}

std::string steps_caption(const OptimizeSummary& summary) {
  std::string text =
      "One step of median length of each variant, to the same scale: what ran when, by thread, and "
      "where the step ends. Names, sites and times show on each piece; in the legend they are "
      "summed, "
      "before and after.";
  const int64_t merged = summary.baseline.timeline.merged + summary.result.timeline.merged;
  if (merged > 0)
    text +=
        fmt::format(" The {} shortest pieces are drawn together with their neighbours.", merged);
  return text;
}

void add_pictures(HtmlReport& page, const OptimizeSummary& summary) {
  if (const std::string steps = step_timeline(summary); !steps.empty()) {
    page.heading(2, "One step");
    page.figure(steps, steps_caption(summary));
  }
  if (const std::string map = memory_map(summary); !map.empty()) {
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

std::vector<std::string> trial_cells(const TrialRecord& trial) {
  std::string what = trial.change.empty() ? trial.hypothesis : trial.change;
  return {fmt::format("{}", trial.number),
          trial.technique,
          what,
          trial.change.empty() ? "" : class_words(trial.semantic_class),
          predicted_text(trial),
          measured_text(trial),
          words_of(trial.verdict),
          trial.reason};
}

void add_trials(HtmlReport& page,
                const OptimizeSummary& summary,
                std::span<const TrialRecord> trials) {
  page.heading(2, "What was tried");
  page.paragraph(
      "Predictions and measurements are factors of speed against what was kept before; measured "
      "ones with the interval that holds at 95 %. What was not tried shows the most that it could "
      "have gained.");
  HtmlTable table{{{"", true},
                   {"technique"},
                   {"change"},
                   {"class"},
                   {"predicted", true},
                   {"measured", true},
                   {"verdict"},
                   {"why"}},
                  {}};
  for (const TrialRecord& trial : trials)
    if (trial.technique != kProofTechnique) table.rows.push_back(trial_cells(trial));
  page.table(table);
  if (!summary.ledger_path.empty())
    page.paragraph("Every measured block is in " + summary.ledger_path +
                   "; ridge ledger explain proves a verdict again.");
}

void add_configurations(HtmlReport& page, const OptimizeSummary& summary) {
  for (const auto& [title, variant] : {std::pair("Configuration before", &summary.baseline),
                                       std::pair("Configuration after", &summary.result)}) {
    if (variant->config.empty()) continue;
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
  add_claim(page, summary);
  add_comparison(page, summary);
  page.heading(2, "From the old step to the new one");
  page.figure(waterfall(summary, trials),
              fmt::format("What each kept change took off {} when it was tried, and what all of "
                          "them together were proven to give.",
                          summary.claim.per_sample ? "the time for the samples of a step before"
                                                   : "a step"));
  add_recipe(page, summary);
  add_numbers(page, summary);
  add_pictures(page, summary);
  add_trials(page, summary, trials);
  add_configurations(page, summary);
  return page.finish();
}

}  // namespace ridge
