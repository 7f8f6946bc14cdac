// The gains that changes had in earlier runs, as ledgers tell them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/proof/ledger/ledger.h"

namespace ridge {

struct PastGain {
  double gain = 1;
  std::optional<double> ceiling{};  ///< The most that it could have been.
};
/// The gains of each change, by its text.
using GainHistory = std::map<std::string, std::vector<PastGain>, std::less<>>;

/// The share that a gain saves of the time below the ceiling; of the whole step without a ceiling.
/// It is below 0 where that time became longer.
double saved_share(double gain, std::optional<double> ceiling);
/// The gain where this share is saved, at most the ceiling.
double gain_of_share(double share, std::optional<double> ceiling);

/// The timed trials of techniques in the ledgers of this machine, those that were given up too,
/// without those whose ceiling lets nothing be seen.
GainHistory gain_history(std::span<const Ledger> ledgers, std::string_view machine);

/// The newest of FOLDER/RUN/ledger.jsonl; those that cannot be read are left out.
std::vector<Ledger> ledgers_beneath(const std::filesystem::path& folder);

}  // namespace ridge
