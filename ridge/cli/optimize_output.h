// Output of both forms of `ridge optimize`: its messages and its files.
#pragma once

#include <filesystem>

#include "ridge/proof/ledger/ledger.h"
#include "ridge/tune/loop.h"

namespace ridge {

/// Reports on stderr how the search goes, and keeps every trial in the ledger if there is one. On a
/// terminal the last line says what is being done.
class TrialLog final : public OptimizeObserver {
 public:
  explicit TrialLog(LedgerWriter* ledger);
  ~TrialLog() override { clear(); }
  void on_message(const std::string& text) override;
  void on_trial(const TrialRecord& record) override;
  void on_work(const std::string& what) override;

 private:
  void clear();

  LedgerWriter* ledger_;
  bool is_terminal_;
  bool is_shown_ = false;
};

/// The form in which a result is printed.
struct ResultForm {
  bool json = false;
  bool all = false;  ///< In the text: also why what cannot help does not.
};

/// UserError where a budget in seconds is none.
void check_budget(double seconds);

/// UserError where it cannot be made.
void make_folder(const std::filesystem::path& folder);

/// The result to stdout, as text or JSON; returns the exit code: 128 + the signal that stopped it,
/// kFindings where a confirmation was refused.
int tell_result(const OptimizeResult& result, ResultForm form);

/// Report and recipe into `out`, where the ledger lies, or the recipe to `recipe_path`, then
/// tell_result().
int write_result(OptimizeResult result,
                 const std::filesystem::path& out,
                 ResultForm form,
                 const std::string& recipe_path = {});

}  // namespace ridge
