// Proves a step of a ledger once more.
#pragma once

#include <cstdint>

#include "ridge/tune/target.h"

namespace ridge {

/// Times a record's recipe against the one before it, once more in fresh processes, within
/// `seconds`. `target` is not started. UserError where the record changed nothing or a variant
/// cannot be run.
TrialResult replay(const TrialRecord& record, Target& target, double seconds, uint64_t seed);

}  // namespace ridge
