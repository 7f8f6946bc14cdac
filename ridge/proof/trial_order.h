// Chooses the candidate that is measured or tried next: the one that promises most time saved for
// the time that finding out takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ridge/proof/trial_record.h"

namespace ridge {

/// Whether a trial could show a gain worth having, by its prediction.
bool is_worth_trying(const SpeedRange& predicted);

/// The middle of a prediction: as far below its high end, as a factor, as above its low one.
double middle_of(const SpeedRange& predicted);

struct Promise {
  double gain = 1;     ///< Factor of speed: predicted, or supposed before any measurement.
  double seconds = 1;  ///< Estimated length of the trial, above 0.
  bool loads = false;  ///< It is about loading.
};

/// Seconds that it saves of each second of training, for each second of its trial.
double value_of(const Promise& promise);

/// The most valuable; of equals (within a tenth) what is about loading, then the first. An entry
/// without a promise is not tried. Nothing where there are none.
std::optional<size_t> most_promising(std::span<const std::optional<Promise>> promises);

/// Pairs that a trial would take about, for a gain where pairs scatter by `noise` (both factors and
/// logarithms alike for small ones): enough to plan with.
double pairs_expected(double gain, double noise);

}  // namespace ridge
