#include "ridge/proof/report/words.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "ridge/base/html/charts.h"
#include "ridge/base/shell_word.h"

namespace ridge {
namespace {

constexpr const char* kUnknown = "not measured";

// Findings that a report shows; what stands further down holds back little.
constexpr size_t kMostFindings = 3;

std::string positive(double value, std::string_view unit) {
  return value > 0 ? readable_number(value) + std::string(unit) : kUnknown;
}

std::string energy(const OptimizeSummary& summary, const VariantSpeed& variant) {
  if (!variant.joules_per_step) return kUnknown;
  return readable_number(steps_as_1000(summary, variant) * *variant.joules_per_step) + " J";
}

bool steps_differ(const OptimizeSummary& summary) {
  return summary.baseline.step_samples != summary.result.step_samples;
}

// "300 J: 1.67 times less"
std::string energy_after(const OptimizeSummary& summary) {
  const std::string joules = energy(summary, summary.result);
  const std::optional<double> ratio = energy_ratio(summary);
  if (!ratio) return joules;
  return *ratio >= 1 ? fmt::format("{}: {:.2f} times less", joules, *ratio)
                     : fmt::format("{}: {:.2f} times more", joules, 1 / *ratio);
}

std::string memory(int64_t bytes) {
  return bytes > 0 ? mebibytes(static_cast<double>(bytes)) : kUnknown;
}

std::string share(std::optional<double> value) {
  return value ? fmt::format("{:.1f} %", 100 * *value) : kUnknown;
}

std::string money(const OptimizeSummary& summary, const VariantSpeed& variant) {
  const std::optional<double> price = price_of_1000_steps(summary, variant);
  return price ? readable_number(*price) : kUnknown;
}

}  // namespace

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1 << 20)); }

double steps_as_1000(const OptimizeSummary& summary, const VariantSpeed& variant) {
  const double before = summary.baseline.step_samples;
  return before > 0 && variant.step_samples > 0 ? 1000 * before / variant.step_samples : 1000;
}

std::optional<double> price_of_1000_steps(const OptimizeSummary& summary,
                                          const VariantSpeed& variant) {
  if (!summary.price_per_hour || !(variant.step_ms > 0)) return std::nullopt;
  return *summary.price_per_hour * variant.step_ms * steps_as_1000(summary, variant) / 3.6e6;
}

std::optional<double> energy_ratio(const OptimizeSummary& summary) {
  const auto joules = [&](const VariantSpeed& variant) {
    return steps_as_1000(summary, variant) * variant.joules_per_step.value_or(0);
  };
  const double before = joules(summary.baseline), after = joules(summary.result);
  if (!(before > 0 && after > 0) || !std::isfinite(before / after)) return std::nullopt;
  return before / after;
}

std::vector<ComparisonRow> comparison_rows(const OptimizeSummary& summary) {
  const VariantSpeed &a = summary.baseline, &b = summary.result;
  std::vector<ComparisonRow> rows;
  const auto add = [&](std::string name, auto text) {
    rows.push_back({std::move(name), text(a), text(b)});
  };
  add("time of a step", [](const VariantSpeed& v) { return positive(v.step_ms, " ms"); });
  if (steps_differ(summary))
    add("samples a step", [](const VariantSpeed& v) { return positive(v.step_samples, ""); });
  add("samples a second", [](const VariantSpeed& v) { return positive(v.samples_per_s, ""); });
  add("median of a run",
      [](const VariantSpeed& v) { return positive(v.p50_ms.value_or(0), " ms"); });
  add("99 % of runs take at most",
      [](const VariantSpeed& v) { return positive(v.p99_ms.value_or(0), " ms"); });
  add("from the file to a result",
      [](const VariantSpeed& v) { return positive(v.first_ms.value_or(0), " ms"); });
  // A run of a model has its data when it begins.
  add("share of waiting for data", [](const VariantSpeed& v) {
    return v.step_ms > 0 && !v.p50_ms ? fmt::format("{:.1f} %", 100 * v.loader_wait_share)
                                      : kUnknown;
  });
  add("processors idle", [](const VariantSpeed& v) { return share(v.cpu_idle_share); });
  add("GPU idle", [](const VariantSpeed& v) { return share(v.device_idle_share); });
  // Nobody plans the memory of a third-party program.
  const bool is_planned = a.planned_bytes > 0 || b.planned_bytes > 0;
  if (is_planned)
    add("memory, planned", [](const VariantSpeed& v) { return memory(v.planned_bytes); });
  add(is_planned ? "memory, measured" : "memory at its peak",
      [](const VariantSpeed& v) { return memory(v.measured_bytes); });
  add("GPU memory at its peak", [](const VariantSpeed& v) { return memory(v.device_bytes); });
  const char* steps = steps_differ(summary) ? "1,000 steps before" : "1,000 steps";
  rows.push_back({fmt::format("energy of {}", steps), energy(summary, a), energy_after(summary)});
  if (summary.price_per_hour)
    add(fmt::format("money for {}", steps),
        [&](const VariantSpeed& v) { return money(summary, v); });
  std::erase_if(rows, [](const ComparisonRow& row) {
    return row.before == kUnknown && row.after == kUnknown;
  });
  return rows;
}

std::vector<ReportRow> baseline_rows(const OptimizeSummary& summary) {
  std::vector<ReportRow> rows;
  for (ComparisonRow& row : comparison_rows(summary))
    rows.emplace_back(std::move(row.name), std::move(row.before));
  return rows;
}

std::string finding_words(const StepFinding& finding) {
  return fmt::format("{} {} ({:.0f} % of a step, {:.2f} times at most)",
                     finding.rule,
                     finding.title,
                     100 * finding.share,
                     finding.ceiling);
}

std::vector<ReportRow> examination_rows(const OptimizeSummary& summary) {
  if (!summary.examination) return {};
  const StepExamination& seen = *summary.examination;
  const std::string name = summary.gained() ? "holds it back now" : "holds it back";
  if (!seen.problem.empty()) return {{name, "not examined: " + seen.problem}};
  if (seen.findings.empty())
    return {{name, "nothing that the doctor finds worth fixing in the steps that were recorded"}};
  std::vector<ReportRow> rows;
  for (const StepFinding& finding : seen.findings)
    if (rows.size() < kMostFindings) rows.emplace_back(name, finding_words(finding));
  return rows;
}

std::string recipe_command(const OptimizeSummary& summary) {
  return fmt::format("{} {}{}",
                     summary.recipe_use,
                     summary.recipe_path.empty() ? "FILE" : shell_word(summary.recipe_path),
                     summary.recipe_rest);
}

std::string claim_words(const OptimizeClaim& claim) {
  return fmt::format("{:.2f} times as fast{}{}",
                     claim.speedup,
                     claim.than.empty() ? "" : " as " + claim.than,
                     claim.per_sample ? " per sample" : "");
}

std::string claim_range_words(const OptimizeClaim& claim) {
  return fmt::format("{} ({:.2f} to {:.2f}, {:.0f} %)",
                     claim_words(claim),
                     claim.low,
                     claim.high,
                     100 * claim.confidence);
}

OptimizeClaim claim_of(const OptimizeSummary& summary) {
  if (summary.gained()) return summary.claim;
  return {.speedup = 1, .low = 1, .high = 1, .pairs = 0, .confidence = summary.claim.confidence};
}

std::vector<std::string> trajectory_notes(const OptimizeSummary& summary,
                                          std::span<const TrialRecord> trials) {
  std::vector<std::string> notes;
  for (const TrialRecord* step : kept_steps(trials))
    if (step->semantic_class == SemanticClass::kTrajectory)
      notes.push_back(
          fmt::format("{} ({}) makes other updates than your {}, as --allow-trajectory allows: {}",
                      step->technique,
                      step->change,
                      summary.subject,
                      step->guard));
  return notes;
}

std::string claim_title(const OptimizeSummary& summary) {
  if (summary.is_faster()) return claim_words(summary.claim);
  return summary.gained() ? "the limit of memory is kept; nothing faster was found within it"
                          : "nothing was gained";
}

std::string claim_text(const OptimizeSummary& summary) {
  if (!summary.is_faster() && summary.gained())
    return "The recipe keeps the limit, and no change within it was faster in paired runs.";
  if (!summary.gained())
    return summary.advice.empty()
               ? fmt::format("No change beat the {} as it is in paired runs: it stays as it is.",
                             summary.subject)
               : "No proven gain. " + summary.advice;
  const OptimizeClaim& claim = summary.claim;
  return fmt::format(
      "Proven in fresh processes, against {}: between {:.2f} and {:.2f} times, with "
      "{:.4g} % confidence, from {} pairs.",
      claim.than.empty() ? fmt::format("the {} as it was", summary.subject) : claim.than,
      claim.low,
      claim.high,
      100 * claim.confidence,
      claim.pairs);
}

std::string guard_text(const OptimizeGuard& guard) {
  std::string text;
  if (guard.verdict == "passed" && guard.margin && guard.power)
    text = fmt::format(
        "no evidence of loss above {:.3g}, at power {:.2g}", *guard.margin, *guard.power);
  else if (guard.verdict == "passed")
    text = "passed";
  else if (guard.verdict == "not_needed")
    text = "not needed: nothing changes";
  else if (guard.verdict == "cannot_tell")
    text = "the runs cannot tell";
  else
    text = guard.verdict;
  return guard.text.empty() ? text : text + " (" + guard.text + ")";
}

std::string confirmation_text(const OptimizeSummary& summary) {
  const OptimizeConfirmation& said = *summary.confirmation;
  switch (said.verdict) {
    case ConfirmVerdict::kConfirmed:
      return "confirmed: " + said.text;
    case ConfirmVerdict::kRefused:
      return "refused: " + said.text;
    case ConfirmVerdict::kCannotTell:
      return said.text;
  }
  return said.text;
}

}  // namespace ridge
