// The comparison of two traces as one page that needs nothing else.
#pragma once

#include <string>

#include "ridge/doctor/compare_traces.h"

namespace ridge::doctor {

/// The numbers are those of comparison_json(). `before` and `after` are what was compared.
std::string comparison_html(const Comparison& comparison,
                            const Examination& before,
                            const Examination& after);

}  // namespace ridge::doctor
