// Proves a step of a ledger once more, in fresh processes.
#pragma once

#include <string>

#include "ridge/proof/trial.h"
#include "ridge/proof/trial_record.h"

namespace ridge {

struct ReplayRequest {
  std::string config_text;  ///< TOML of the configuration that the ledger's run began with.
  std::string config_name;  ///< Its path, for messages.
  std::string program;      ///< Path of ridge.
  double seconds = 60;      ///< That it may take.
  uint64_t seed = 0;        ///< Of the coin.
};

/// Times the record's recipe against the one before it, on an epoch that no trial saw. UserError
/// where the record changed nothing, or a variant cannot be run.
TrialResult replay(const TrialRecord& record, const ReplayRequest& request);

}  // namespace ridge
