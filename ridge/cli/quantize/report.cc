#include "ridge/cli/quantize/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

using compress::QuantizeResult;
using compress::Score;
using compress::SiteResult;
using compress::SiteTime;
using compress::TriedForm;

int64_t size_on_disk(const std::string& path) {
  std::error_code error;
  const auto size = path.empty() ? 0 : std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

int64_t written_bytes(const QuantizeFiles& files) {
  return size_on_disk(files.output) + size_on_disk(files.data_file);
}

void write_time(JsonWriter& json, const std::optional<SiteTime>& time) {
  if (time) json.field("seconds", time->in_bytes).field("seconds_as_it_is", time->as_it_is);
}

void write_sites(JsonWriter& json, const QuantizeReport& report) {
  json.key("sites").begin_array();
  for (const SiteResult& site : report.result.sites) {
    json.begin_object().field("name", site.name).field("op", site.op);
    json.field("quantized", site.is_quantized);
    if (!site.reason.empty()) json.field("reason", site.reason);
    if (site.order > 0) json.field("order", site.order).field("tied", site.is_tied);
    if (site.error) json.field("error_power", *site.error);
    if (site.order > 0) json.field("flops", site.flops);
    write_time(json, site.time);
    json.end_object();
  }
  json.end_array();
}

void write_score(JsonWriter& json, std::string_view key, const std::optional<Score>& score) {
  if (!score) return;
  json.key(key).begin_object().field("accuracy", score->accuracy).field("loss", score->loss);
  json.end_object();
}

std::string shares_text(double percent) { return fmt::format("{:.3g} %", percent); }

std::string ranges_text(compress::RangeMethod ranges, bool corrects_bias) {
  return fmt::format("{}{}", name_of(ranges), corrects_bias ? " with corrected biases" : "");
}

std::string times_text(const SiteTime& time) {
  return fmt::format("{}, {}", run_time_text(time.as_it_is), run_time_text(time.in_bytes));
}

std::string statement_text(const QuantizeReport& report) {
  const QuantizeResult& result = report.result;
  const std::string samples = fmt::format("{} {}sample{}",
                                          result.samples.held_out,
                                          result.samples.is_held_out_apart ? "held-out " : "",
                                          result.samples.held_out == 1 ? "" : "s");
  const std::string verdict = result.quantized() == 0
                                  ? "no site is quantized, and nothing is written"
                              : result.passed() ? "within the limit"
                                                : "beyond the limit, and nothing is written";
  const std::string error = fmt::format("output '{}' is off by {} of its power",
                                        result.output,
                                        shares_text(100 * result.error_power));
  if (!result.after)
    return fmt::format(
        "on {}: {} (limit {}): {}\n", samples, error, shares_text(result.limit), verdict);
  return fmt::format(
      "on {}: accuracy {:.2f} % -> {:.2f} %, loss {:.4g} -> {:.4g} (limit {:.3g} "
      "points): {}\n  {}\n",
      samples,
      100 * result.before->accuracy,
      100 * result.after->accuracy,
      result.before->loss,
      result.after->loss,
      result.limit,
      verdict,
      error);
}

}  // namespace

std::string json_report(const QuantizeReport& report) {
  const QuantizeResult& result = report.result;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.quantize/1").field("model", report.files.model);
  json.field("method", name_of(report.options.method));
  json.field("ranges", name_of(result.ranges));
  json.field("folded_norms", result.folded_norms);
  json.field("equalized_pairs", result.equalized_pairs);
  json.field("corrects_bias", result.corrects_bias);
  json.key("tried").begin_array();
  for (const TriedForm& way : result.tried)
    json.begin_object()
        .field("ranges", name_of(way.ranges))
        .field("corrects_bias", way.corrects_bias)
        .field("error_power", way.error)
        .end_object();
  json.end_array();
  json.field("gain", name_of(report.options.gain));
  json.key("samples").begin_object().field("drawn", report.samples.is_drawn);
  const compress::SampleCounts& samples = result.samples;
  json.field("calibrated", samples.calibrated).field("chosen_by", samples.chosen_by);
  json.field("held_out", samples.held_out).field("choice_apart", samples.is_choice_apart);
  json.field("held_out_apart", samples.is_held_out_apart).end_object();
  write_sites(json, report);
  json.field("quantized", result.quantized());
  write_time(json, result.time);
  json.key("statement").begin_object().field("measure", result.after ? "top-1" : "error power");
  json.field("drop_percent", result.drop).field("limit_percent", result.limit);
  json.field("output", result.output).field("error_power", result.error_power);
  write_score(json, "before", result.before);
  write_score(json, "after", result.after);
  json.field("passed", result.passed()).end_object();
  json.field("model_bytes", size_on_disk(report.files.floats));
  if (!report.files.output.empty()) {
    json.field("file", report.files.output);
    if (!report.files.data_file.empty()) json.field("data_file", report.files.data_file);
    json.field("bytes", written_bytes(report.files));
  }
  json.end_object().finish();
  return text + "\n";
}

std::string text_report(const QuantizeReport& report) {
  const QuantizeResult& result = report.result;
  const std::string apart = result.samples.is_choice_apart
                                ? fmt::format(", {} for the choice", result.samples.chosen_by)
                                : std::string();
  std::string text = fmt::format("{}: {}, ranges by {}, {} of {} for calibration{}\n\n",
                                 report.files.model,
                                 name_of(report.options.method),
                                 ranges_text(result.ranges, result.corrects_bias),
                                 result.samples.calibrated,
                                 report.samples.words(report.samples.samples.size()),
                                 apart);
  for (const TriedForm& way : result.tried)
    text += fmt::format("  {:>9} with all sites in bytes, ranges by {}\n",
                        shares_text(100 * way.error),
                        ranges_text(way.ranges, way.corrects_bias));
  if (result.folded_norms > 0)
    text += fmt::format("  {} batch norms folded into convolutions\n", result.folded_norms);
  if (result.equalized_pairs > 0)
    text += fmt::format("  {} pairs of convolutions equalized\n", result.equalized_pairs);
  const bool is_timed = report.options.gain == compress::GainMeasure::kTime;
  size_t width = 4;
  for (const SiteResult& site : result.sites) width = std::max(width, site.name.size());
  text += fmt::format("  {:>5}  {:{}}  {:6}  {:>9}  {}\n",
                      "order",
                      "site",
                      width,
                      "op",
                      "error",
                      is_timed ? "as it is, in bytes" : "FLOP");
  for (const SiteResult& site : result.sites) {
    if (site.order == 0) continue;
    text += fmt::format("  {:>5}  {:{}}  {:6}  {:>9}  {}{}\n",
                        fmt::format("{}{}", site.is_tied ? "=" : "", site.order),
                        site.name,
                        width,
                        site.op,
                        shares_text(100 * site.error.value_or(0)),
                        site.time ? times_text(*site.time) : scaled(site.flops),
                        site.is_quantized ? "" : "  stays: " + site.reason);
  }
  for (const SiteResult& site : result.sites)
    if (site.order == 0)
      text +=
          fmt::format("      -  {:{}}  {:6}  stays: {}\n", site.name, width, site.op, site.reason);
  text += "\n  " + statement_text(report);
  if (result.time && result.quantized() > 0)
    text += fmt::format("  a run on one sample takes {}, {} before: {:.2f} times as fast\n",
                        run_time_text(result.time->in_bytes),
                        run_time_text(result.time->as_it_is),
                        result.time->as_it_is / result.time->in_bytes);
  if (!report.files.output.empty())
    text += fmt::format("  {}  {}, of {}\n",
                        report.files.output,
                        bytes_text(written_bytes(report.files)),
                        bytes_text(size_on_disk(report.files.floats)));
  return text;
}

}  // namespace ridge
