// The doctor's reports as ridge.doctor/1 and ridge.doctor.compare/1.
#pragma once

#include <string>

#include "ridge/doctor/compare_traces.h"
#include "ridge/doctor/examination.h"

namespace ridge::doctor {

/// One object on one line: equal for traces that differ in the order of their events.
std::string doctor_json(const Examination& examination);
std::string comparison_json(const Comparison& comparison);

}  // namespace ridge::doctor
