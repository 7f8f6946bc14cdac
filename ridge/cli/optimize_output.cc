#include "ridge/cli/optimize_output.h"

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/stop.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/io/file.h"
#include "ridge/proof/report/report.h"
#include "ridge/proof/trial_text.h"

namespace ridge {
namespace {

constexpr double kLeastBudget = 5, kMostBudget = 1e6;

}  // namespace

TrialLog::TrialLog(LedgerWriter* ledger) : ledger_(ledger), is_terminal_(style_for(stderr).bar) {}

void TrialLog::on_message(const std::string& text) {
  clear();
  write_stderr(text + "\n");
}

void TrialLog::on_trial(const TrialRecord& record) {
  clear();
  if (const std::string note = trial_note(record); !note.empty()) write_stderr(note + "\n");
  if (ledger_ != nullptr) ledger_->add(record);
}

void TrialLog::on_work(const std::string& what) {
  if (!is_terminal_) return;
  clear();
  write_stderr(shortened(what, 70) + " ...");
  is_shown_ = true;
}

void TrialLog::clear() {
  if (is_shown_) write_stderr(kClearLine);
  is_shown_ = false;
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

int tell_result(const OptimizeResult& result, ResultForm form) {
  write_stdout(form.json ? optimize_json(result.summary, result.trials)
                         : optimize_text(result.summary, result.trials, form.all));
  if (stop_signal() != 0) return kSignalBase + stop_signal();
  const auto& confirmation = result.summary.confirmation;
  return confirmation && confirmation->verdict == ConfirmVerdict::kRefused ? kFindings : kFine;
}

int write_result(OptimizeResult result,
                 const std::filesystem::path& out,
                 ResultForm form,
                 const std::string& recipe_path) {
  OptimizeSummary& summary = result.summary;
  summary.ledger_path = (out / "ledger.jsonl").string();
  const std::filesystem::path recipe =
      recipe_path.empty() ? out / "recipe.toml" : std::filesystem::path(recipe_path);
  if (summary.gained()) {
    summary.recipe_path = recipe.string();
    write_file_atomically(summary.recipe_path, summary.recipe);
  } else if (stop_signal() == 0 && recipe_path.empty()) {
    // A recipe of an earlier run is no result of this one.
    std::error_code ignored;
    std::filesystem::rename(recipe, out / "recipe.previous.toml", ignored);
  }
  summary.report_path = (out / "report.html").string();
  write_file_atomically(summary.report_path, optimize_html(summary, result.trials));
  return tell_result(result, form);
}

}  // namespace ridge
