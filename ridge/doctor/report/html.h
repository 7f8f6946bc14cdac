// The doctor's report as one page that needs nothing else.
#pragma once

#include <string>

#include "ridge/doctor/examination.h"

namespace ridge::doctor {

/// The numbers are those of doctor_json(). Names from traces are escaped.
std::string doctor_html(const Examination& examination);

}  // namespace ridge::doctor
