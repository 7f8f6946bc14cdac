// What both forms of `ridge optimize` tell and write.
#pragma once

#include <filesystem>
#include <span>

#include "ridge/tune/ledger.h"
#include "ridge/tune/optimize.h"

namespace ridge {

/// Shows every trial as it ends, and keeps it in the ledger where there is one.
class TrialLog final : public OptimizeObserver {
 public:
  explicit TrialLog(LedgerWriter* ledger) : ledger_(ledger) {}
  void on_message(const std::string& text) override;
  void on_trial(const TrialRecord& record) override;

 private:
  LedgerWriter* ledger_;
};

/// UserError where a budget in seconds is none.
void check_budget(double seconds);

/// UserError where it cannot be made.
void make_folder(const std::filesystem::path& folder);

/// The result to stdout, as text or JSON; returns the exit code: 128 + the signal that stopped it.
int tell_result(const OptimizeResult& result, bool json);

/// Recipe and report into `out`, where the ledger lies, then tell_result().
int write_result(OptimizeResult result, const std::filesystem::path& out, bool json);

}  // namespace ridge
