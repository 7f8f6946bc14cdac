#include "ridge/cli/calibrate.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/threads.h"
#include "ridge/cli/verbs.h"
#include "ridge/run/backends.h"

namespace ridge {
namespace {

std::string age_text(const KeptCalibration& kept) {
  if (!kept.from_cache) return "measured now";
  const auto seconds = static_cast<double>(wall_ns() / 1000000000 - kept.measured_at);
  constexpr double kDay = 86400;
  if (seconds < kDay) return fmt::format("measured {} ago", duration_text(seconds));
  return fmt::format("measured {:.0f} days ago", seconds / kDay);
}

/// Those that were measured.
std::vector<DeviceNumber> measured_numbers(Calibration& values) {
  std::vector<DeviceNumber> all = device_numbers(values);
  std::erase_if(all, [](const DeviceNumber& each) { return !(*each.value > 0); });
  return all;
}

std::string text_report(const CalibrateOptions& options,
                        KeptCalibration& kept,
                        const std::string& hardware) {
  const std::string& model = hardware.empty() ? cpu_info().model : hardware;
  std::string text = fmt::format("{} on {} with {} thread{}, {}\n\n",
                                 options.device,
                                 model.empty() ? "an unknown processor" : model,
                                 num_threads(),
                                 num_threads() == 1 ? "" : "s",
                                 age_text(kept));
  const std::vector<DeviceNumber> more = measured_numbers(kept.values);
  const int width = more.empty() ? 8 : 21;
  const auto add_rate = [&](std::string_view label, double rate, std::string_view unit) {
    text += fmt::format("  {:<{}}{:>10}{}\n", label, width, scaled(rate), unit);
  };
  const auto add_time = [&](std::string_view label, double seconds) {
    text += fmt::format("  {:<{}}{:>9.1f} ns\n", label, width, seconds * 1e9);
  };
  for (const auto& [dtype, rate] : kept.values.flops_per_s)
    add_rate(name_of(dtype), rate, "FLOP/s");
  add_rate("copy", kept.values.copy_bytes_per_s, "B/s");
  add_time("launch", kept.values.launch_s);
  for (const DeviceNumber& each : more) {
    if (each.is_time)
      add_time(each.label, *each.value);
    else
      add_rate(each.label, *each.value, "B/s");
  }
  if (!kept.file.empty()) text += fmt::format("\nkept in {}\n", kept.file.string());
  return text;
}

std::string json_report(const CalibrateOptions& options,
                        KeptCalibration& kept,
                        const std::string& machine) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.calibrate/1").field("device", options.device);
  json.field("processor", cpu_info().model).field("threads", num_threads());
  json.key("flops_per_s").begin_object();
  for (const auto& [dtype, rate] : kept.values.flops_per_s) json.field(name_of(dtype), rate);
  json.end_object();
  json.field("copy_bytes_per_s", kept.values.copy_bytes_per_s);
  json.field("launch_s", kept.values.launch_s);
  for (const DeviceNumber& each : measured_numbers(kept.values)) json.field(each.key, *each.value);
  json.field("measured_at", kept.measured_at).field("from_cache", kept.from_cache);
  json.field("machine", machine);
  json.field("file", kept.file.string()).end_object().finish();
  return text + "\n";
}

}  // namespace

std::string calibrate(const CalibrateOptions& options) {
  const std::unique_ptr<Backend> backend = make_backend(options.device, write_note);
  if (!options.threads.empty()) set_threads(options.threads, "--threads");
  const std::string machine = device_fingerprint(options.device, *backend);
  KeptCalibration kept = kept_calibration(
      cache_folder(), machine, options.fresh, [&] { return backend->calibrate(); });
  if (!kept.note.empty()) write_note(kept.note);
  return options.json ? json_report(options, kept, machine)
                      : text_report(options, kept, backend->hardware());
}

void add_calibrate(CLI::App& app, int&) {
  const auto options = std::make_shared<CalibrateOptions>();
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Measure what this machine can do: peak FLOP/s, copy bandwidth, launch cost");
  verb->add_option("--device", options->device, "What to measure; default: cpu");
  verb->add_option("--threads", options->threads, "Threads to measure with; default: all CPUs");
  verb->add_flag("--fresh", options->fresh, "Measure anew, whatever is kept");
  verb->add_flag("--json", options->json, "One JSON object (ridge.calibrate/1)");
  verb->callback([options] { write_stdout(calibrate(*options)); });
}

}  // namespace ridge
