// The report of `ridge optimize` as JSON, and for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/json_fields.h"
#include "ridge/base/json_writer.h"
#include "ridge/proof/ledger/ledger.h"
#include "ridge/proof/report/no_gain.h"
#include "ridge/proof/report/report.h"
#include "ridge/proof/report/words.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

void write_known(JsonWriter& json, std::string_view name, std::optional<double> value) {
  json.key(name);
  if (value)
    json.value(*value);
  else
    json.value(nullptr);
}

// 0 stands for "not measured".
std::optional<double> positive(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

void write_variant(JsonWriter& json, const OptimizeSummary& summary, const VariantSpeed& variant) {
  json.begin_object();
  write_known(json, "step_ms", positive(variant.step_ms));
  write_known(json, "step_samples", positive(variant.step_samples));
  write_known(json, "samples_per_s", positive(variant.samples_per_s));
  json.field("loader_wait_share", variant.loader_wait_share);
  for (const auto& [name, bytes] : {std::pair{"planned_bytes", variant.planned_bytes},
                                    std::pair{"measured_bytes", variant.measured_bytes},
                                    std::pair{"device_bytes", variant.device_bytes}}) {
    json.key(name);
    if (bytes > 0)
      json.value(bytes);
    else
      json.value(nullptr);
  }
  write_known(json, "joules_per_step", variant.joules_per_step);
  write_known(json, "cpu_idle_share", variant.cpu_idle_share);
  write_known(json, "device_idle_share", variant.device_idle_share);
  write_known(json, "p50_ms", variant.p50_ms);
  write_known(json, "p99_ms", variant.p99_ms);
  write_known(json, "first_ms", variant.first_ms);
  write_known(json, "price_of_1000_steps", price_of_1000_steps(summary, variant));
  json.key("memory").begin_array();
  for (const MemoryShare& share : variant.memory)
    json.begin_object().field("role", share.role).field("bytes", share.bytes).end_object();
  json.end_array().key("timeline");
  if (variant.timeline.launches.empty())
    json.value(nullptr);
  else
    FieldWriter(json).write(variant.timeline);
  json.field("config", variant.config).end_object();
}

void write_guard(JsonWriter& json, const OptimizeGuard& guard) {
  json.key("guard").begin_object();
  write_known(json, "margin", guard.margin);
  write_known(json, "power", guard.power);
  json.field("verdict", guard.verdict).field("text", guard.text).end_object();
}

void write_confirmation(JsonWriter& json, const std::optional<OptimizeConfirmation>& confirmation) {
  json.key("confirmation");
  if (!confirmation) {
    json.value(nullptr);
    return;
  }
  json.begin_object().field("verdict", name_of(confirmation->verdict));
  json.field("loss", confirmation->loss).field("pairs", confirmation->pairs);
  json.field("steps", confirmation->steps);
  write_known(json, "margin", confirmation->margin);
  write_known(json, "difference", confirmation->difference);
  json.field("text", confirmation->text).end_object();
}

void write_examination(JsonWriter& json, const std::optional<StepExamination>& examination) {
  json.key("examination");
  if (!examination) {
    json.value(nullptr);
    return;
  }
  json.begin_object().field("problem", examination->problem).key("findings").begin_array();
  for (const StepFinding& finding : examination->findings) {
    json.begin_object().field("rule", finding.rule).field("title", finding.title);
    json.field("share", finding.share).field("ceiling", finding.ceiling);
    json.field("fix", finding.fix).end_object();
  }
  json.end_array().end_object();
}

std::string labelled(std::string_view name, std::string_view text) {
  return fmt::format("  {:<26} {}\n", name, plain_line(text));
}

std::string indented(const std::string& lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string line = plain_line(lines.substr(at, end - at));
    text += line.empty() ? "\n" : "  " + line + "\n";
    at = end + 1;
  }
  return text;
}

std::vector<TrialRecord> without_proof(std::span<const TrialRecord> trials) {
  std::vector<TrialRecord> others;
  for (const TrialRecord& trial : trials)
    if (trial.technique != kProofTechnique) others.push_back(trial);
  return others;
}

std::string dry_run_text(const OptimizeSummary& summary,
                         std::span<const TrialRecord> trials,
                         bool all) {
  std::string text = fmt::format("{}: nothing was tried\n\n", plain_line(summary.target));
  for (const std::string& part : summary.parts) text += fmt::format("  {}\n", plain_line(part));
  for (const std::string& note : summary.notes) text += labelled("note", note);
  text += labelled("took", fmt::format("{:.0f} s of {:.0f} s", summary.seconds, summary.budget_s));
  return trials.empty() ? text
                        : text + "\n" + grouped_trials(trials, {.all = all, .untried = true});
}

std::string numbers_text(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  std::string text;
  if (summary.is_faster()) {
    for (const ComparisonRow& row : comparison_rows(summary))
      text += labelled(row.name,
                       row.before == row.after ? row.before : row.before + " -> " + row.after);
    if (!summary.energy_problem.empty()) text += labelled("energy", summary.energy_problem);
  } else {
    for (const auto& rows : {no_gain_rows(summary, trials), baseline_rows(summary)})
      for (const auto& [name, said] : rows) text += labelled(name, said);
  }
  for (const auto& [name, said] : examination_rows(summary)) text += labelled(name, said);
  return text;
}

}  // namespace

std::string optimize_json(const OptimizeSummary& summary, std::span<const TrialRecord> trials) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.optimize/1").field("target", summary.target);
  json.field("machine", summary.machine).key("baseline");
  write_variant(json, summary, summary.baseline);
  json.key("result");
  write_variant(json, summary, summary.result);
  const OptimizeClaim claim = claim_of(summary);
  json.key("claim").begin_object().field("speedup", claim.speedup);
  json.field("lo", claim.low).field("hi", claim.high).field("pairs", claim.pairs);
  json.field("confidence", claim.confidence).field("per_sample", claim.per_sample);
  json.field("than", claim.than);
  json.end_object().key("trials").begin_array();
  for (const TrialRecord& trial : without_proof(trials)) {
    json.begin_object();
    write_fields(json, trial);
    json.end_object();
  }
  json.end_array();
  write_guard(json, summary.guard);
  write_confirmation(json, summary.confirmation);
  write_examination(json, summary.examination);
  json.field("recipe", summary.recipe).field("budget_s", summary.budget_s);
  json.field("seconds", summary.seconds);
  write_known(json, "price_per_hour", summary.price_per_hour);
  json.key("energy").begin_object();
  write_known(json, "ratio", energy_ratio(summary));
  json.field("of", summary.energy_of).field("problem", summary.energy_problem).end_object();
  json.field("advice", summary.advice);
  json.field("dry_run", summary.is_dry).key("parts").begin_array();
  for (const std::string& part : summary.parts) json.value(part);
  json.end_array().key("notes").begin_array();
  for (const std::string& note : summary.notes) json.value(note);
  json.end_array().field("recipe_path", summary.recipe_path);
  json.field("ledger_path", summary.ledger_path).field("report_path", summary.report_path);
  json.end_object().finish();
  return text + "\n";
}

std::string optimize_text(const OptimizeSummary& summary,
                          std::span<const TrialRecord> trials,
                          bool all) {
  if (summary.is_dry) return dry_run_text(summary, trials, all);
  std::string text = fmt::format("{}: {}\n", plain_line(summary.target), claim_title(summary));
  text += claim_text(summary) + "\n\n";
  text += numbers_text(summary, trials);
  if (summary.gained()) text += labelled("guard", guard_text(summary.guard));
  if (summary.confirmation) text += labelled("confirmation", confirmation_text(summary));
  text += labelled("took", fmt::format("{:.0f} s of {:.0f} s", summary.seconds, summary.budget_s));
  for (const std::string& note : summary.notes) text += labelled("note", note);
  if (!trials.empty()) text += "\n" + grouped_trials(trials, {.all = all});
  if (summary.gained()) text += "\n" + indented(summary.recipe);
  std::string written;
  for (const auto& [name, path] : {std::pair("recipe", &summary.recipe_path),
                                   std::pair("ledger", &summary.ledger_path),
                                   std::pair("report", &summary.report_path)})
    if (!path->empty()) written += labelled(name, *path);
  if (summary.gained() && !summary.recipe_path.empty())
    written += labelled("use", recipe_command(summary));
  return written.empty() ? text : text + "\n" + written;
}

}  // namespace ridge
