// Techniques for samples that differ in length.
#pragma once

#include "ridge/tune/engine/techniques.h"

namespace ridge {

/// Batches cut to their longest sample.
Proposals propose_padding(const Situation& situation);

/// Samples of like length in a batch: another training run.
Proposals propose_buckets(const Situation& situation);

/// Batches with room for as many tokens as a padded one has, and all that has to follow a larger
/// batch: another training run.
Proposals propose_tokens(const Situation& situation);

}  // namespace ridge
