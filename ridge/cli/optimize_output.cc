#include "ridge/cli/optimize_output.h"

#include <unistd.h>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/output.h"
#include "ridge/io/file.h"
#include "ridge/train/stop.h"
#include "ridge/tune/optimize_report.h"
#include "ridge/tune/trial_text.h"

namespace ridge {
namespace {

constexpr double kLeastBudget = 5, kMostBudget = 1e6;

// Who watches both on one terminal has seen the trials already.
std::span<const TrialRecord> unseen_trials(const OptimizeResult& result) {
  if (isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0) return {};
  return result.trials;
}

}  // namespace

void TrialLog::on_message(const std::string& text) { write_stderr(text + "\n"); }

void TrialLog::on_trial(const TrialRecord& record) {
  if (record.number == 1) write_stderr(trial_heading());
  write_stderr(trial_line(record));
  if (ledger_ != nullptr) ledger_->add(record);
}

void check_budget(double seconds) {
  check(seconds >= kLeastBudget && seconds <= kMostBudget,
        "--budget is {} s: it may be {} to {}",
        seconds,
        kLeastBudget,
        kMostBudget);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "cannot make the folder '{}': {}", folder.string(), error.message());
}

int tell_result(const OptimizeResult& result, bool json) {
  write_stdout(json ? optimize_json(result.summary, result.trials)
                    : optimize_text(result.summary, unseen_trials(result)));
  return stop_signal() == 0 ? kFine : kSignalBase + stop_signal();
}

int write_result(OptimizeResult result, const std::filesystem::path& out, bool json) {
  OptimizeSummary& summary = result.summary;
  summary.ledger_path = (out / "ledger.jsonl").string();
  const std::filesystem::path recipe = out / "recipe.toml";
  if (summary.gained()) {
    summary.recipe_path = recipe.string();
    write_file_atomically(summary.recipe_path, summary.recipe);
  } else if (stop_signal() == 0) {
    // That of an earlier run is no result of this one.
    std::error_code ignored;
    std::filesystem::rename(recipe, out / "recipe.previous.toml", ignored);
  }
  summary.report_path = (out / "report.html").string();
  write_file_atomically(summary.report_path, optimize_html(summary, result.trials));
  return tell_result(result, json);
}

}  // namespace ridge
