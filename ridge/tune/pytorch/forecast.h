// The gain that is predicted of a change to a program in PyTorch before it was tried there: by what
// the same change gained elsewhere.
#pragma once

#include <optional>
#include <string_view>

#include "ridge/proof/ledger/ledger_history.h"

namespace ridge {

struct Forecast {
  SpeedRange gain;           ///< Four of five measured gains should lie within.
  bool has_history = false;  ///< False: the range is an estimate, and twice as wide.
};

/// `change`: its text, by which the history has it. `ceiling` is the most that it could gain here;
/// nothing where that is not known.
Forecast forecast(std::string_view technique,
                  std::string_view change,
                  std::optional<double> ceiling,
                  const GainHistory& history);

}  // namespace ridge
