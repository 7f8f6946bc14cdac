// How good predictions were: what ledgers say was predicted, against what was measured.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ridge/proof/ledger/ledger.h"

namespace ridge {

/// A gain that was measured and lies outside what was predicted of it.
struct Misprediction {
  std::string target;     ///< The run's target.
  std::string technique;  ///< The technique and its change.
  SpeedRange predicted;
  double measured = 1;
};

/// The predictions of one technique, or of all.
struct PredictionCounts {
  int64_t measured = 0;     ///< Trials of techniques with a prediction and a measured gain.
  int64_t inside = 0;       ///< Trials of `measured` whose gain lies within the prediction.
  double median_width = 1;  ///< Median of high / low over these predictions.

  /// 0 to 1; 1 where nothing was measured.
  double coverage() const;
};

struct PredictionScore {
  PredictionCounts all;
  std::map<std::string, PredictionCounts> techniques;  ///< Those with a trial that counts.
  std::vector<Misprediction> outside;
};

/// Scores all trials of techniques, of any kind of ledger. The proof and the records kWithout have
/// no predictions, and are left out; of a change that was tried again, for longer, the last trial
/// counts alone.
PredictionScore prediction_score(std::span<const Ledger> ledgers);

/// Lines for a terminal.
std::string predictions_text(const PredictionScore& score);
/// One object "ridge.ledger.predictions/1" on a line.
std::string predictions_json(const PredictionScore& score);

}  // namespace ridge
