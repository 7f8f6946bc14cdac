// `ridge ledger show|explain|predictions|replay FILE`: what `ridge optimize` tried, and why it kept
// what it kept.
#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/recipe_trust.h"
#include "ridge/cli/optimize_model.h"
#include "ridge/cli/optimize_program.h"
#include "ridge/cli/signals.h"
#include "ridge/cli/verbs.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/io/file.h"
#include "ridge/proof/ledger/ledger_predictions.h"
#include "ridge/proof/ledger/ledger_text.h"
#include "ridge/proof/trial_text.h"
#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/pytorch/program_target.h"
#include "ridge/tune/replay.h"

namespace ridge {
namespace {

struct LedgerOptions {
  RerunOptions rerun;
  std::string file;
  std::vector<std::string> files;
  int64_t number = 0;
  double budget = 60;
  uint64_t seed = 1;
  bool json = false;
  bool is_trusted = false;
};

Ledger read_ledger(const std::string& file) {
  Ledger ledger = read_ledger_file(file);
  if (!ledger.note.empty()) write_note(ledger.note);
  return ledger;
}

void run_show(const LedgerOptions& options) {
  const Ledger ledger = read_ledger(options.file);
  write_stdout(options.json ? ledger_json(ledger) : ledger_table(ledger));
}

void run_predictions(const LedgerOptions& options) {
  std::vector<Ledger> ledgers;
  for (const std::string& file : options.files) ledgers.push_back(read_ledger(file));
  const PredictionScore score = prediction_score(ledgers);
  write_stdout(options.json ? predictions_json(score) : predictions_text(score));
}

// The target is a model, a program or a configuration.
std::string hash_of_any_recipe(std::string_view text) {
  return is_model_recipe(text, "recipe") ? recipe_hash(parse_model_recipe(text, "recipe"))
                                         : hash_of_recipe_text(text);
}

int run_explain(const LedgerOptions& options) {
  const Ledger ledger = read_ledger(options.file);
  const TrialRecord& record = trial_of(ledger, options.number);
  const std::vector<std::string> found = contradictions(record, hash_of_any_recipe);
  write_stdout(explain_trial(record, found));
  return found.empty() ? kFine : kFindings;
}

/// The trial that is asked for; without a number the last one that was proven.
const TrialRecord& trial_to_replay(const Ledger& ledger, int64_t number) {
  if (number > 0) return trial_of(ledger, number);
  for (auto record = ledger.trials.rbegin(); record != ledger.trials.rend(); ++record)
    if (record->technique == kProofTechnique) return *record;
  throw UserError("the ledger has no proof: nothing was gained",
                  "name a trial by its number, as 'ridge ledger show' lists it");
}

std::string replay_json(const TrialRecord& record, const TrialResult& trial) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.ledger.replay/1").field("number", record.number);
  json.field("technique", record.technique).field("speedup", std::exp(trial.gain));
  json.field("lo", trial.interval ? std::exp(trial.interval->low) : NAN);
  json.field("hi", trial.interval ? std::exp(trial.interval->high) : NAN);
  json.field("pairs", static_cast<int64_t>(trial.pairs.size()) - trial.dropped);
  json.field("dropped", trial.dropped).end_object().finish();
  return text + "\n";
}

std::string replay_text(const TrialRecord& record, const TrialResult& trial) {
  const std::string name = fmt::format("trial {} ({})", record.number, record.technique);
  if (!trial.interval)
    return fmt::format("{}: {} pairs are too few to tell\n", name, trial.pairs.size());
  return fmt::format(
      "{}: {:.2f} times as fast ({:.2f} to {:.2f}) in {} pairs; the ledger says {}\n",
      name,
      std::exp(trial.gain),
      std::exp(trial.interval->low),
      std::exp(trial.interval->high),
      trial.pairs.size(),
      measured_text(record));
}

/// The subject of the ledger: the command behind `--`, or the configuration beside the ledger.
std::unique_ptr<Target> subject_of(const LedgerOptions& options,
                                   const Ledger& ledger,
                                   const ForeignCommand& command) {
  if (command)
    return program_target(
        {.target = make_target(command, options.rerun), .trust = trust_of(options.is_trusted)});
  const std::filesystem::path folder = std::filesystem::path(options.file).parent_path();
  if (is_onnx_file(ledger.run.config))
    if (std::unique_ptr<Target> model = model_of_ledger(folder)) return model;
  const std::filesystem::path config = folder / "config.toml";
  check(std::filesystem::exists(config),
        "'{}' does not lie there: the ledger is of a command, which 'ridge ledger replay {} "
        "(--sandbox | --rerun) -- COMMAND' runs again: {}",
        config.string(),
        options.file,
        ledger.run.config);
  return config_target({.config_text = read_file(config),
                        .config_name = config.string(),
                        .program = std::filesystem::read_symlink("/proc/self/exe").string()});
}

int run_replay(const LedgerOptions& options, const ForeignCommand& command) {
  const Ledger ledger = read_ledger(options.file);
  const TrialRecord& record = trial_to_replay(ledger, options.number);
  const std::unique_ptr<Target> target = subject_of(options, ledger, command);
  const StopSignals signals;
  const TrialResult trial = replay(record, *target, options.budget, options.seed);
  write_stdout(options.json ? replay_json(record, trial) : replay_text(record, trial));
  return trial.interval && trial.interval->low > 0 ? kFine : kFindings;
}

}  // namespace

void add_ledger(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<LedgerOptions>();
  CLI::App* verb = app.add_subcommand("ledger", "Read what ridge optimize tried");
  verb->require_subcommand(1);
  CLI::App* show = verb->add_subcommand("show", "All trials");
  show->add_option("file", options->file, "The ledger.jsonl of a run")->required();
  show->add_flag("--json", options->json, "One JSON object (ridge.ledger.show/1)");
  show->callback([options] { run_show(*options); });
  CLI::App* predictions = verb->add_subcommand(
      "predictions", "How many measured gains lie within what was predicted, over all these runs");
  predictions->add_option("files", options->files, "The ledger.jsonl of each run")->required();
  predictions->add_flag("--json", options->json, "One JSON object (ridge.ledger.predictions/1)");
  predictions->callback([options] { run_predictions(*options); });
  CLI::App* explain = verb->add_subcommand(
      "explain",
      "Everything about one trial; proves its verdict again from what was measured, and exits with "
      "1 where it does not follow");
  explain->add_option("file", options->file, "The ledger.jsonl of a run")->required();
  explain->add_option("number", options->number, "Of the trial, as show lists it")->required();
  CLI::App* again = verb->add_subcommand(
      "replay", "Time a kept step again, in fresh processes; exits with 1 where it is not faster");
  again->add_option("file", options->file, "The ledger.jsonl of a run")->required();
  again->add_option("number", options->number, "Of the trial; without it the last proof");
  again->add_option("--budget", options->budget, "Seconds that it may take (60)");
  again->add_option("--seed", options->seed, "Of the order of measurements (1)");
  again->add_flag("--json", options->json, "One JSON object (ridge.ledger.replay/1)");
  again->add_flag("--sandbox", options->rerun.sandbox, "As of 'ridge optimize', for a command");
  again->add_flag("--rerun", options->rerun.rerun, "As of 'ridge optimize', for a command");
  add_trust(*again, options->is_trusted);
  again->callback([options, &exit_code, &command] { exit_code = run_replay(*options, command); });
  explain->callback([options, &exit_code] { exit_code = run_explain(*options); });
}

}  // namespace ridge
