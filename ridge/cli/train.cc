// `ridge train CONFIG`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ridge/base/cpu/parallel.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/signals.h"
#include "ridge/cli/train_report.h"
#include "ridge/cli/train_request.h"
#include "ridge/cli/verbs.h"
#include "ridge/run/tuning.h"
#include "ridge/train/task.h"

namespace ridge {
namespace {

int run_train(const TrainOptions& options) {
  TrainRequest request = make_train_request(options);
  apply_threads();
  Tuning tuning(request.config.train.device, false);
  request.choose = tuning.choose(kernels_of(request.config));
  const StopSignals signals;
  ProgressDisplay progress(stderr);
  const TrainResult result = train(request, progress);
  progress.clear_bar();
  if (!tuning.note().empty()) write_note(tuning.note());
  write_stdout(options.json ? train_json(result) : train_summary(result));
  if (result.verified == false) return kFindings;
  return result.interrupted_by == 0 ? kFine : kSignalBase + result.interrupted_by;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = app.add_subcommand("train", "Train a model as a configuration file says");
  add_config_options(*verb, options->config);
  verb->add_option("--steps", options->steps, "Steps to train for (train.steps)");
  verb->add_option("--seed", options->seed, "Seed of all that is random (train.seed)");
  verb->add_option("--out", options->out, "Folder of checkpoints and metrics (train.out)");
  verb->add_option("--resume",
                   options->resume,
                   "Go on from the newest checkpoint in --out (auto), from the one in a folder, or "
                   "start afresh (no, the default)")
      ->type_name("auto|no|DIR");
  verb->add_option("--init", options->init, "File of parameters to start from")->type_name("FILE");
  verb->add_option("--trace", options->trace, "Write a Chrome trace of the run to this file")
      ->type_name("FILE");
  verb->add_flag(
      "--verify", options->verify, "First check the program against the plainest way to run it");
  verb->add_flag("--json", options->json, "One JSON object (ridge.train/1) instead of the summary");
  verb->callback([options, &exit_code] { exit_code = run_train(*options); });
}

}  // namespace ridge
