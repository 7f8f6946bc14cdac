// `ridge optimize CONFIG`, and the process that its trials run in.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/config_options.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/optimize_model.h"
#include "ridge/cli/optimize_output.h"
#include "ridge/cli/optimize_program.h"
#include "ridge/cli/signals.h"
#include "ridge/cli/verbs.h"
#include "ridge/config/recipe.h"
#include "ridge/infer/load_model.h"
#include "ridge/io/file.h"
#include "ridge/proof/ledger/ledger.h"
#include "ridge/run/backends.h"
#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/engine/worker.h"
#include "ridge/tune/onnx/model_worker.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr double kConfigBudget = 120;

struct OptimizeOptions {
  ConfigOptions config;
  std::string memory;
  OptimizeModelOptions model;
  OptimizeProgramOptions both;  ///< Options that commands have too, or alone.
};

/// "2GiB", "512 MiB", "1e9": bytes. UserError for what is none.
int64_t parse_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},
                             {"B", 1},
                             {"KiB", 0x1p10},
                             {"MiB", 0x1p20},
                             {"GiB", 0x1p30},
                             {"TiB", 0x1p40},
                             {"kB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12}};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& each : kUnits)
    if (end != text.c_str() && unit == each.name && value > 0 && value * each.bytes < 0x1p60)
      return static_cast<int64_t>(value * each.bytes);
  throw UserError(fmt::format("--memory is '{}', which is no amount of memory", text),
                  "write it as 2GiB or 500MB");
}

/// A request, and the folder that takes the results.
struct Job {
  OptimizeRequest request;
  LoadedConfig loaded;
  fs::path out;
};

Job make_job(const OptimizeOptions& options) {
  const double budget = options.both.budget.value_or(kConfigBudget);
  check_budget(budget);
  Job job;
  OptimizeRequest& request = job.request;
  for (const std::string& text : options.config.set) request.flags.push_back(parse_set(text));
  if (!options.config.device.empty())
    request.flags.push_back({"train.device", options.config.device, "--device"});
  // Errors in the configuration are reported here, not by a worker.
  job.loaded = load_config_options(options.config);
  apply_threads();
  make_backend(job.loaded.config.train.device, write_note);
  request.config_text = read_file(options.config.file);
  request.config_name = options.config.file;
  request.program = fs::read_symlink("/proc/self/exe").string();
  request.loop = {.budget_seconds = budget,
                  .allow_trajectory = options.both.allow_trajectory,
                  .seed = options.both.seed,
                  .is_dry = options.both.dry_run};
  if (!options.memory.empty()) request.memory_bytes = parse_bytes(options.memory);
  job.out = options.both.out.empty()
                ? fs::path("runs") / (fs::path(options.config.file).stem().string() + "-optimize")
                : fs::path(options.both.out);
  return job;
}

int run_optimize(const OptimizeOptions& options) {
  const Job job = make_job(options);
  const OptimizeRequest& request = job.request;
  if (request.loop.is_dry) {
    const StopSignals signals;
    TrialLog log(nullptr);
    return tell_result(run_loop(*config_target(request), request.loop, log),
                       {options.both.json, options.both.all});
  }
  make_folder(job.out);
  const std::string& device = job.loaded.config.train.device;
  // `ridge ledger replay` begins with this copy, whatever becomes of the user's file.
  write_file_atomically(job.out / "config.toml", to_toml(job.loaded, settings()));
  LedgerWriter ledger(job.out / "ledger.jsonl",
                      {.target = fmt::format("{} on {}", request.config_name, device),
                       .config = request.config_name,
                       .config_hash = config_hash(job.loaded.config),
                       .machine = device_fingerprint(device),
                       .version = RIDGE_VERSION,
                       .started = utc_time(wall_ns()),
                       .budget_s = request.loop.budget_seconds,
                       .seed = request.loop.seed});
  const StopSignals signals;
  TrialLog log(&ledger);
  OptimizeResult result = run_loop(*config_target(request), request.loop, log);
  if (options.both.price_per_hour > 0) result.summary.price_per_hour = options.both.price_per_hour;
  return write_result(std::move(result), job.out, {options.both.json, options.both.all});
}

void check_no_model_options(const OptimizeOptions& options) {
  const std::string flag = options.model.given();
  check(flag.empty(), "{} is for an ONNX model, as in 'ridge optimize model.onnx'", flag);
}

// Options that only the other form understands are refused.
int run_either(const OptimizeOptions& options, const ForeignCommand& command) {
  const RerunOptions& rerun = options.both.rerun;
  if (command) {
    check_no_model_options(options);
    check(options.config.file.empty() && options.config.set.empty() &&
              options.config.device.empty() && options.memory.empty(),
          "a configuration, --set, --device and --memory are for training in Ridge, not for a "
          "command behind '--'");
    return run_optimize_program(options.both, command);
  }
  check(!options.config.file.empty(),
        "no configuration is given, nor a command: ridge optimize config.toml, or ridge optimize "
        "--sandbox -- python train.py");
  check(!rerun.sandbox && !rerun.rerun && options.both.only.empty() && !options.both.confirm,
        "--sandbox, --rerun, --only and --confirm are for a command behind '--', not for a "
        "configuration");
  if (is_onnx_file(options.config.file)) {
    check(options.config.set.empty() && options.config.device.empty() && options.memory.empty() &&
              !options.both.allow_trajectory,
          "--set, --device, --memory and --allow-trajectory are for training in Ridge, not for an "
          "ONNX model");
    return run_optimize_model(options.config.file, options.model, options.both);
  }
  check_no_model_options(options);
  return run_optimize(options);
}

/// Ends with the process that started it, and leaves signals from the terminal to that one.
void run_worker(bool is_of_model) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);
  is_of_model ? serve_model(std::cin, std::cout) : serve_variant(std::cin, std::cout);
}

}  // namespace

void add_optimize(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<OptimizeOptions>();
  OptimizeProgramOptions& both = options->both;
  CLI::App* verb = app.add_subcommand(
      "optimize",
      "Find what makes a configuration, a model or a program behind '--' faster, and prove it");
  verb->add_option("config",
                   options->config.file,
                   "TOML file (docs/config.md lists its keys), or MODEL.onnx (docs/onnx.md)");
  add_model_options(*verb, options->model);
  verb->add_option("--device", options->config.device, "Where it runs (train.device)");
  verb->add_option("--set", options->config.set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--out",
                   both.out,
                   "Folder of recipe, ledger and report (runs/NAME-optimize; for a command a "
                   "folder beneath ~/.local/state/ridge)")
      ->type_name("DIR");
  verb->add_option("--budget", both.budget, "Seconds that it may take (120; for a command 300)");
  verb->add_option("--memory", options->memory, "The fastest way that needs no more, such as 2GiB")
      ->type_name("SIZE");
  verb->add_flag("--sandbox",
                 both.rerun.sandbox,
                 "Run the command in a private copy of the working folder: what it writes there is "
                 "dropped");
  verb->add_flag("--rerun",
                 both.rerun.rerun,
                 "The command may run again and again as it is, over what it writes. Neither is "
                 "needed where it names {out}, a folder that each run gets of its own; {steps} is "
                 "how many steps a run needs");
  verb->add_option(
          "--planned",
          both.planned,
          "Seconds that your own run takes: what a change costs once must come back (what the "
          "command takes, or 3600 where its end is not seen)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--confirm",
                   both.confirm,
                   "After the proof, train a command as it is and with what was kept for so many "
                   "seconds each, and compare their losses; ends with 1 where they are worse")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  verb->add_option("--only",
                   both.only,
                   "Try these alone on a command, as ridge doctor names them at its findings")
      ->type_name("KEY,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_flag(
      "--allow-trajectory",
      both.allow_trajectory,
      "Also try what makes other updates, such as a larger batch with its learning rate");
  verb->add_option("--seed", both.seed, "Of the order of measurements (0)");
  verb->add_option("--price-per-hour", both.price_per_hour, "Of this machine: money is told")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag(
      "--dry-run", both.dry_run, "Measure and predict alone; nothing is tried or written");
  verb->add_flag("--all", both.all, "Also say of each change that cannot help here why");
  verb->add_flag("--json", both.json, "One JSON object (ridge.optimize/1)");
  verb->callback([options, &exit_code, &command] { exit_code = run_either(*options, command); });
  CLI::App* worker =
      app.add_subcommand("trial-worker", "Run one variant, as `ridge optimize` tells it on stdin")
          ->group("");
  const auto is_of_model = std::make_shared<bool>(false);
  worker->add_flag("--model", *is_of_model, "A variant of an ONNX model");
  worker->callback([is_of_model] { run_worker(*is_of_model); });
}

}  // namespace ridge
