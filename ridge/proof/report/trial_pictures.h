// Trials as pictures of one line: what was predicted and what was measured, on a scale that all
// share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ridge/proof/trial_record.h"

namespace ridge {

/// Factors of speed on a logarithmic axis that holds 1 and all that is drawn of the trials.
class TrialScale {
 public:
  explicit TrialScale(std::span<const TrialRecord* const> trials);

  /// Per cent of the width; what lies outside of the scale is at its end.
  double at(double speed) const;
  /// Round factors of speed within the scale, ascending; 1 is one of them.
  std::vector<double> ticks() const;

 private:
  void reach(double speed);
  double low_, high_;  ///< Logarithms.
};

/// The numbers of the scale, as SVG.
std::string trial_axis(const TrialScale& scale);

/// A band for the prediction, a mark for a telling bound in its place, and a point with its
/// interval for the measurement, as SVG; empty where there is none of these.
std::string trial_picture(const TrialRecord& record, const TrialScale& scale);

}  // namespace ridge
