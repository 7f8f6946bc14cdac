#include "ridge/proof/ledger/ledger_history.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "ridge/base/error.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// More runs than that say nothing new, and reading them takes time.
constexpr size_t kMostLedgers = 64;

// Nearly no time is left of a step: a gain beyond any that is told.
constexpr double kLeastRest = 1e-3;

double share_below(std::optional<double> ceiling) {
  return ceiling && *ceiling > 1 ? 1 - 1 / *ceiling : ceiling ? 0 : 1;
}

}  // namespace

double saved_share(double gain, std::optional<double> ceiling) {
  const double share = share_below(ceiling);
  return gain > 0 && share > 0 ? (1 - 1 / gain) / share : 0;
}

double gain_of_share(double share, std::optional<double> ceiling) {
  return 1 / std::max(kLeastRest, 1 - std::min(1.0, share) * share_below(ceiling));
}

GainHistory gain_history(std::span<const Ledger> ledgers, std::string_view machine) {
  GainHistory history;
  for (const Ledger& ledger : ledgers) {
    if (ledger.run.machine != machine) continue;
    for (const TrialRecord& trial : ledger.trials) {
      const bool is_blind = trial.ceiling && *trial.ceiling < kLeastCeiling;
      const std::optional<double> gain = trial.gain();
      if (is_of_technique(trial) && gain && !is_blind)
        history[trial.change].push_back({*gain, trial.ceiling});
    }
  }
  return history;
}

std::vector<Ledger> ledgers_beneath(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const fs::path file = each->path() / "ledger.jsonl";
    std::error_code unknown;
    const fs::file_time_type written = fs::last_write_time(file, unknown);
    if (!unknown) files.emplace_back(written, file);
  }
  std::ranges::sort(files, std::greater{});
  if (files.size() > kMostLedgers) files.resize(kMostLedgers);
  std::vector<Ledger> ledgers;
  for (const auto& [written, file] : files) {
    try {
      ledgers.push_back(read_ledger_file(file));
    } catch (const UserError&) {
      continue;  // A ledger of a version that wrote others is no reason to end.
    }
  }
  return ledgers;
}

}  // namespace ridge
