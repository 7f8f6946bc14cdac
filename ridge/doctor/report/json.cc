#include "ridge/doctor/report/json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "ridge/base/json_writer.h"

namespace ridge::doctor {
namespace {

constexpr size_t kMostRows = 40;

// DEL and U+0080 to U+009F, which only texts can hold, as escapes: who prints JSON to a terminal
// gets no controls from a trace.
std::string without_controls(const std::string& json) {
  std::string text;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = static_cast<unsigned char>(i + 1 < json.size() ? json[i + 1] : 0);
    if (byte == 0x7f)
      text += "\\u007f";
    else if (byte == 0xc2 && next < 0xa0)
      text += fmt::format("\\u{:04x}", next), ++i;
    else
      text += json[i];
  }
  return text;
}

void write_input(JsonWriter& json, const Trace& trace, const Analysis& analysis) {
  json.key("input").begin_object().field("file", trace.source);
  json.field("recorder", trace.recorder).field("events", trace.size());
  json.field("dropped", trace.dropped).field("truncated", trace.is_truncated);
  json.field("rank", trace.rank).field("world", trace.world);
  json.field("device", analysis.device).field("cpu_only", analysis.is_cpu_only).end_object();
}

void write_steps(JsonWriter& json, const Analysis& analysis) {
  json.key("steps").begin_object().field("count", analysis.steps.windows.size());
  json.field("source", analysis.steps.source).field("left_out", analysis.steps.left_out);
  json.end_object();
  json.key("step_ms").begin_object().field("median", analysis.step_ms_median);
  json.field("min", analysis.step_ms_min).field("max", analysis.step_ms_max);
  json.field("mean", analysis.breakdown.wall).end_object();
  if (!analysis.unprofiled) return;
  // Then the times above and below are of steps that no profiler slowed.
  json.key("unprofiled").begin_object().field("steps", analysis.unprofiled->steps);
  json.field("slowdown", analysis.unprofiled->slowdown).end_object();
}

void write_breakdown(JsonWriter& json, const Breakdown& mean) {
  json.key("breakdown_ms").begin_object().field("busy", mean.busy);
  json.field("compute", mean.compute).field("copy", mean.copy);
  json.field("communication", mean.communication).field("idle", mean.idle);
  json.field("starved", mean.starved).field("launch", mean.launch);
  json.field("blocking", mean.blocking).field("unknown", mean.unknown);
  constexpr std::array<std::string_view, kHostCauses> kKeys = {"loader",
                                                               "sync",
                                                               "allocation",
                                                               "module",
                                                               "pageable",
                                                               "checkpoint",
                                                               "interpreter",
                                                               "off_cpu",
                                                               "operators",
                                                               "unknown"};
  json.key("starved_by").begin_object();
  for (size_t i = 0; i < kHostCauses; ++i) json.field(kKeys[i], mean.starved_by[i]);
  json.end_object().end_object();
}

void write_evidence(JsonWriter& json, const Trace& trace, const Evidence& evidence) {
  json.begin_object().field("text", evidence.text).field("place", evidence.place);
  json.key("events").begin_array();
  for (size_t row : evidence.rows) {
    if (row >= trace.size()) continue;
    json.begin_object().field("row", row).field("name", trace.name_text(row));
    json.key("start_ms").decimal(trace.start_ns[row], 6);
    json.key("duration_ms").decimal(trace.duration_ns[row], 6);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_finding(JsonWriter& json, const Trace& trace, const Finding& finding) {
  json.begin_object().field("rule", finding.rule).field("title", finding.title);
  json.field("severity", name_of(finding.severity)).field("cost_ms", finding.cost_ms);
  json.field("share", finding.share).field("confidence", finding.confidence);
  json.field("ceiling", finding.ceiling).key("predicted").begin_object();
  json.field("lo", finding.predicted.low).field("hi", finding.predicted.high).end_object();
  json.key("evidence").begin_array();
  for (const Evidence& evidence : finding.evidence) write_evidence(json, trace, evidence);
  json.end_array().field("fix", finding.fix).field("recipe", finding.recipe);
  json.field("command", finding.command)
      .field("class", static_cast<int64_t>(finding.semantic_class));
  json.field("folded", gains_nothing(finding)).end_object();
}

void write_rows(JsonWriter& json, const Examination& examination) {
  json.key(examination.analysis.is_cpu_only ? "operators" : "kernels").begin_array();
  for (const NameRow& row : rows_by_name(examination.trace, examination.analysis, kMostRows)) {
    json.begin_object().field("name", row.name).field("count", row.count).field("ms", row.ms);
    json.field("share", row.share).end_object();
  }
  json.end_array();
}

void write_ranks(JsonWriter& json, const std::vector<RankRow>& rows) {
  json.key("ranks").begin_array();
  for (const RankRow& row : rows) {
    json.begin_object().field("file", row.file).field("rank", row.rank);
    json.field("step_ms", row.step_ms).field("compute_ms", row.compute_ms);
    json.field("communication_ms", row.communication_ms).end_object();
  }
  json.end_array();
}

}  // namespace

std::string doctor_json(const Examination& examination) {
  const auto& [trace, analysis, diagnosis, ranks] = examination;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.doctor/1");
  write_input(json, trace, analysis);
  json.field("verdict", verdict_text(examination));
  write_steps(json, analysis);
  write_breakdown(json, analysis.breakdown);
  json.key("findings").begin_array();
  for (const Finding& finding : diagnosis.findings) write_finding(json, trace, finding);
  json.end_array().key("not_fired").begin_array();
  for (const NotFired& row : diagnosis.not_fired)
    json.begin_object().field("rule", row.rule).field("reason", row.reason).end_object();
  json.end_array();
  write_rows(json, examination);
  write_ranks(json, ranks);
  json.field("replay_error", analysis.replay_error.value_or(NAN));
  json.key("warnings").begin_array();
  for (const Warning& warning : trace.warnings)
    json.begin_object().field("text", warning.text).field("count", warning.count).end_object();
  json.end_array().end_object().finish();
  return without_controls(text) + "\n";
}

std::string comparison_json(const Comparison& comparison) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.doctor.compare/1");
  json.field("before", comparison.before).field("after", comparison.after);
  json.key("step_ms").begin_object().field("before", comparison.before_ms);
  json.field("after", comparison.after_ms).end_object();
  json.field("speedup", comparison.speedup)
      .field("lo", comparison.low)
      .field("hi", comparison.high);
  json.field("gate_percent", comparison.gate_percent);
  json.field("regression", comparison.is_regression)
      .field("verdict", comparison_verdict(comparison));
  for (const auto& [key, rows] :
       {std::pair("parts_ms", &comparison.parts), std::pair("names_ms", &comparison.names)}) {
    json.key(key).begin_array();
    for (const ComparedRow& row : *rows) {
      json.begin_object().field("name", row.name).field("before", row.before_ms);
      json.field("after", row.after_ms).end_object();
    }
    json.end_array();
  }
  json.key("gone").begin_array();
  for (const std::string& finding : comparison.gone) json.value(finding);
  json.end_array().key("new").begin_array();
  for (const std::string& finding : comparison.appeared) json.value(finding);
  json.end_array().end_object().finish();
  return without_controls(text) + "\n";
}

}  // namespace ridge::doctor
