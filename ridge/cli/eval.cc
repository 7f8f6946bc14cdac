// `ridge eval CONFIG`: how good a trained model is on the data to evaluate on.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/config_options.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/verbs.h"
#include "ridge/train/evaluate.h"

namespace ridge {
namespace {

struct EvalOptions {
  ConfigOptions config;
  std::string weights;
  bool json = false;
};

std::string json_report(const EvalResult& result) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.eval/1").field("model", result.model);
  json.field("weights", result.weights);
  json.field("loss", result.report.loss).field("accuracy", result.report.accuracy);
  json.field("samples", result.report.samples).field("seconds", result.report.seconds);
  json.end_object().finish();
  return text + "\n";
}

std::string text_report(const EvalResult& result) {
  const EvalReport& report = result.report;
  std::string text = fmt::format("{} of {}: {} samples in {}\n\n",
                                 result.model,
                                 result.weights,
                                 grouped(report.samples),
                                 duration_text(report.seconds));
  if (!std::isnan(report.accuracy))
    text += fmt::format("  accuracy  {:.2f} %\n", 100 * report.accuracy);
  return text + fmt::format("  loss      {:#.4g}\n", report.loss);
}

void run_eval(const EvalOptions& options) {
  const LoadedConfig loaded = load_config_options(options.config);
  apply_threads();
  ProgressDisplay progress(stderr);
  const EvalResult result = evaluate_model(loaded.config, options.weights, progress);
  progress.clear_bar();
  write_stdout(options.json ? json_report(result) : text_report(result));
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* verb = app.add_subcommand("eval", "Evaluate a trained model");
  add_config_options(*verb, options->config);
  verb->add_option("--weights",
                   options->weights,
                   "safetensors file, checkpoint, or folder of a run; default: the best or the "
                   "newest checkpoint in train.out")
      ->type_name("PATH");
  verb->add_flag("--json", options->json, "One JSON object (ridge.eval/1)");
  verb->callback([options] { run_eval(*options); });
}

}  // namespace ridge
