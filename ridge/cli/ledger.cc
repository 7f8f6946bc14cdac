// `ridge ledger show|explain FILE`: what `ridge optimize` tried, and why it kept what it kept.
#include <CLI/CLI.hpp>
#include <memory>

#include "ridge/cli/command.h"
#include "ridge/cli/output.h"
#include "ridge/cli/verbs.h"
#include "ridge/tune/ledger_text.h"

namespace ridge {
namespace {

struct LedgerOptions {
  std::string file;
  int64_t number = 0;
  bool json = false;
};

Ledger read_ledger(const std::string& file) {
  Ledger ledger = read_ledger_file(file);
  if (!ledger.note.empty()) write_stderr(fmt::format("note: {}\n", ledger.note));
  return ledger;
}

void run_show(const LedgerOptions& options) {
  const Ledger ledger = read_ledger(options.file);
  write_stdout(options.json ? ledger_json(ledger) : ledger_table(ledger));
}

int run_explain(const LedgerOptions& options) {
  const Ledger ledger = read_ledger(options.file);
  const TrialRecord& record = trial_of(ledger, options.number);
  write_stdout(explain_trial(record));
  return contradictions(record).empty() ? kFine : kFindings;
}

}  // namespace

void add_ledger(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<LedgerOptions>();
  CLI::App* verb = app.add_subcommand("ledger", "Read what ridge optimize tried");
  verb->require_subcommand(1);
  CLI::App* show = verb->add_subcommand("show", "All trials, a line each");
  show->add_option("file", options->file, "The ledger.jsonl of a run")->required();
  show->add_flag("--json", options->json, "One JSON object (ridge.ledger.show/1)");
  show->callback([options] { run_show(*options); });
  CLI::App* explain = verb->add_subcommand(
      "explain",
      "Everything about one trial; proves its verdict again from what was measured, and exits with "
      "1 where it does not follow");
  explain->add_option("file", options->file, "The ledger.jsonl of a run")->required();
  explain->add_option("number", options->number, "Of the trial, as show lists it")->required();
  explain->callback([options, &exit_code] { exit_code = run_explain(*options); });
}

}  // namespace ridge
