// The verdict of a numeric guard on a change.
#pragma once

#include <optional>
#include <string>

namespace ridge {

struct GuardOutcome {
  bool passed = false;
  bool can_tell = true;  ///< False: neither passed nor failed, and `text` says what is missing.
  /// Loss allowed, and the probability that a change without any passes: both are fixed before the
  /// candidate runs. Nothing where no losses were compared.
  std::optional<double> margin{}, power{};
  /// One line: what was compared, and with what result. Empty where it is told elsewhere.
  std::string text{};
};

}  // namespace ridge
