// The gains that changes had in earlier runs, as ledgers tell them. A factor of speed says little
// about another program; the share that a change saves of the time that it is about says more.
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

/// Each technique has a share for each of its trials: that of the time below its ceiling which the
/// trial saved. It is below 0 where that time became longer.
using SavedShares = std::map<std::string, std::vector<double>, std::less<>>;

/// The share that a gain saves of the time below the ceiling; of the whole step without a ceiling.
double saved_share(double gain, std::optional<double> ceiling);
/// The gain where this share is saved, at most the ceiling.
double gain_of_share(double share, std::optional<double> ceiling);

/// The measured trials of techniques in the ledgers of this machine, without those whose ceiling
/// lets nothing be seen.
SavedShares saved_shares(std::span<const Ledger> ledgers, std::string_view machine);

/// The newest of FOLDER/RUN/ledger.jsonl; those that cannot be read are left out.
std::vector<Ledger> ledgers_beneath(const std::filesystem::path& folder);

}  // namespace ridge
