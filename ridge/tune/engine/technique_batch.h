// The technique "batch": a larger global batch, with all that has to follow it.
#pragma once

#include <string>
#include <vector>

#include "ridge/tune/engine/techniques.h"

namespace ridge {

/// What to change so that a step takes `growth` times as many samples and the run stays the same by
/// its samples: learning rate, decays that are counted in steps, and all numbers of steps.
std::vector<ConfigFlag> grown_batch(const TrainConfig& config, int64_t growth);
/// The same but for the batch itself: what has to follow steps of `growth` times as many samples.
std::vector<ConfigFlag> grown_steps(const TrainConfig& config, double growth);

/// Why so many times the samples a step are too many for the run; empty where they are not.
std::string too_few_steps(const Situation& situation, double growth);

/// Twice and four times the batch, where data and memory allow it.
Proposals propose_batch(const Situation& situation);

}  // namespace ridge
