// The pictures of the doctor's page.
#pragma once

#include "ridge/base/html/picture.h"
#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/examination.h"

namespace ridge::doctor {

/// Draws the work of the step of median length, row below row, each with a key of its colours;
/// empty without a steady step.
Picture step_picture(const Trace& trace, const Analysis& analysis);

/// Draws the parts of the mean step before and after a change, bar below bar on one scale.
Picture parts_picture(const Comparison& comparison);

/// How long each steady step takes, before and after.
Picture steps_picture(const Comparison& comparison);

/// How many times as fast each finding's fix makes a step, with the range; empty where none gains.
Picture gain_picture(const Diagnosis& diagnosis);

}  // namespace ridge::doctor
