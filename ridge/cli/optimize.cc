// `ridge optimize CONFIG`, and the process that its trials run in.
#include "ridge/tune/optimize.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/machine.h"
#include "ridge/base/parallel.h"
#include "ridge/cli/command.h"
#include "ridge/cli/config_options.h"
#include "ridge/cli/output.h"
#include "ridge/cli/signals.h"
#include "ridge/cli/verbs.h"
#include "ridge/io/file.h"
#include "ridge/train/recipe.h"
#include "ridge/train/stop.h"
#include "ridge/tune/ledger.h"
#include "ridge/tune/optimize_report.h"
#include "ridge/tune/trial_text.h"
#include "ridge/tune/worker.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastBudget = 5, kMostBudget = 1e6;

struct OptimizeOptions {
  ConfigOptions config;
  std::string memory;
  std::string out;
  double budget = 120;
  uint64_t seed = 0;
  double price_per_hour = 0;
  bool allow_trajectory = false;
  bool json = false;
  bool dry_run = false;
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

/// Shows every trial as it ends, and keeps it in the ledger where there is one.
class TrialLog final : public OptimizeObserver {
 public:
  explicit TrialLog(LedgerWriter* ledger) : ledger_(ledger) {}

  void on_message(const std::string& text) override { write_stderr(text + "\n"); }
  void on_trial(const TrialRecord& record) override {
    if (record.number == 1) write_stderr(trial_heading());
    write_stderr(trial_line(record));
    if (ledger_ != nullptr) ledger_->add(record);
  }

 private:
  LedgerWriter* ledger_;
};

/// What is to be done, and the folder that takes what is found.
struct Job {
  OptimizeRequest request;
  LoadedConfig loaded;
  fs::path out;
};

Job make_job(const OptimizeOptions& options) {
  check(options.budget >= kLeastBudget && options.budget <= kMostBudget,
        "--budget is {} s: it may be {} to {}",
        options.budget,
        kLeastBudget,
        kMostBudget);
  Job job;
  OptimizeRequest& request = job.request;
  for (const std::string& text : options.config.set) request.flags.push_back(parse_set(text));
  if (!options.config.device.empty())
    request.flags.push_back({"train.device", options.config.device, "--device"});
  // What is wrong with it is said here, not by a worker.
  job.loaded = load_config_options(options.config);
  apply_threads();
  request.config_text = read_file(options.config.file);
  request.config_name = options.config.file;
  request.program = fs::read_symlink("/proc/self/exe").string();
  request.budget_seconds = options.budget;
  request.seed = options.seed;
  request.allow_trajectory = options.allow_trajectory;
  if (!options.memory.empty()) request.memory_bytes = parse_bytes(options.memory);
  job.out = options.out.empty()
                ? fs::path("runs") / (fs::path(options.config.file).stem().string() + "-optimize")
                : fs::path(options.out);
  request.is_dry = options.dry_run;
  return job;
}

int exit_code_of_stop() { return stop_signal() == 0 ? kFine : kSignalBase + stop_signal(); }

// Who watches both on one terminal has seen the trials already.
std::span<const TrialRecord> unseen_trials(const OptimizeResult& result) {
  if (isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0) return {};
  return result.trials;
}

int run_dry(const OptimizeOptions& options, const Job& job) {
  const StopSignals signals;
  TrialLog log(nullptr);
  const OptimizeResult result = optimize(job.request, log);
  write_stdout(options.json ? optimize_json(result.summary, result.trials)
                            : optimize_text(result.summary, unseen_trials(result)));
  return exit_code_of_stop();
}

int run_optimize(const OptimizeOptions& options) {
  const Job job = make_job(options);
  if (options.dry_run) return run_dry(options, job);
  const OptimizeRequest& request = job.request;
  std::error_code error;
  fs::create_directories(job.out, error);
  check(!error, "cannot make the folder '{}': {}", job.out.string(), error.message());
  const std::string& device = job.loaded.config.train.device;
  // What `ridge ledger replay` begins with, whatever becomes of the user's file.
  write_file_atomically(job.out / "config.toml", to_toml(job.loaded, settings()));
  LedgerWriter ledger(job.out / "ledger.jsonl",
                      {.target = fmt::format("{} on {}", request.config_name, device),
                       .config = request.config_name,
                       .config_hash = config_hash(job.loaded.config),
                       .machine = machine_fingerprint(device),
                       .version = RIDGE_VERSION,
                       .started = utc_time(wall_ns()),
                       .budget_s = request.budget_seconds,
                       .seed = request.seed});
  const StopSignals signals;
  TrialLog log(&ledger);
  OptimizeResult result = optimize(request, log);
  OptimizeSummary& summary = result.summary;
  if (options.price_per_hour > 0) summary.price_per_hour = options.price_per_hour;
  summary.ledger_path = (job.out / "ledger.jsonl").string();
  const std::filesystem::path recipe = job.out / "recipe.toml";
  if (summary.gained()) {
    summary.recipe_path = recipe.string();
    write_file_atomically(summary.recipe_path, summary.recipe);
  } else if (stop_signal() == 0) {
    // That of an earlier run is no result of this one.
    std::filesystem::rename(recipe, job.out / "recipe.previous.toml", error);
  }
  summary.report_path = (job.out / "report.html").string();
  write_file_atomically(summary.report_path, optimize_html(summary, result.trials));
  write_stdout(options.json ? optimize_json(summary, result.trials)
                            : optimize_text(summary, unseen_trials(result)));
  return exit_code_of_stop();
}

/// Ends with the process that started it, and leaves signals from the terminal to that one.
void run_worker() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);
  serve_variant(std::cin, std::cout);
}

}  // namespace

void add_optimize(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<OptimizeOptions>();
  CLI::App* verb =
      app.add_subcommand("optimize", "Find what makes a configuration faster, and prove it");
  verb->add_option("config", options->config.file, "TOML file; docs/config.md lists its keys")
      ->required();
  verb->add_option("--device", options->config.device, "Where it runs (train.device)");
  verb->add_option("--set", options->config.set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option(
          "--out", options->out, "Folder of recipe, ledger and report (runs/NAME-optimize)")
      ->type_name("DIR");
  verb->add_option("--budget", options->budget, "Seconds that it may take (120)");
  verb->add_option("--memory", options->memory, "The fastest way that needs no more, such as 2GiB")
      ->type_name("SIZE");
  verb->add_flag(
      "--allow-trajectory",
      options->allow_trajectory,
      "Also try what makes other updates, such as a larger batch with its learning rate");
  verb->add_option("--seed", options->seed, "Of the order of measurements (0)");
  verb->add_option("--price-per-hour", options->price_per_hour, "Of this machine: money is told")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag(
      "--dry-run", options->dry_run, "Measure and predict alone; nothing is tried or written");
  verb->add_flag("--json", options->json, "One JSON object (ridge.optimize/1)");
  verb->callback([options, &exit_code] { exit_code = run_optimize(*options); });
  app.add_subcommand("trial-worker", "Run one variant, as `ridge optimize` tells it on stdin")
      ->group("")
      ->callback([] { run_worker(); });
}

}  // namespace ridge
