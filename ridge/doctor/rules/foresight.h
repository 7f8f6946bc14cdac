// Predictions of rules, by replaying the trace with their fix in it.
#pragma once

#include <functional>
#include <string>

#include "ridge/doctor/findings/finding.h"
#include "ridge/doctor/replay/replay.h"

namespace ridge::doctor {

/// The replay that a prediction stands on, or why there is none.
struct Foresight {
  const Replay* replay = nullptr;  ///< The analysis has it.
  std::string refusal;             ///< Empty where the replay is good.
};
Foresight foresee(const Analysis& analysis);

/// Predicts a finding that is charged already. Without a good replay it keeps the bounds that it
/// has, and says in its evidence that they are no prediction, and why.
void predict(Finding& finding,
             const Foresight& foresight,
             const std::function<void(WhatIf&)>& change);

}  // namespace ridge::doctor
