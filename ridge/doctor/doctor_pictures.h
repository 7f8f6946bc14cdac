// The pictures of the doctor's page, as SVG for use within HTML.
#pragma once

#include <string>

#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/examination.h"

namespace ridge::doctor {

/// What ran in the step of median length, row below row; empty without a steady step.
std::string step_picture(const Trace& trace, const Analysis& analysis);

/// Where the mean step goes before a change and after it, bar below bar on one scale.
std::string parts_picture(const Comparison& comparison);

/// How long each steady step takes, before and after.
std::string steps_picture(const Comparison& comparison);

/// How many times as fast each finding's fix makes a step, with the range; empty where none gains.
std::string gain_picture(const Diagnosis& diagnosis);

}  // namespace ridge::doctor
