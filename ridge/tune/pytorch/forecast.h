// The gain that is predicted of a change to a program in PyTorch before it was tried there: by what
// the technique saved elsewhere of the time that it is about.
#pragma once

#include <optional>
#include <string_view>

#include "ridge/proof/ledger/ledger_history.h"

namespace ridge {

struct Forecast {
  SpeedRange gain;           ///< Four of five measured gains should lie within.
  bool has_history = false;  ///< False: the range is an estimate, and twice as wide.
};

/// `ceiling` is the most that the change could gain here; nothing where that is not known.
Forecast forecast(std::string_view technique,
                  std::optional<double> ceiling,
                  const SavedShares& history);

}  // namespace ridge
