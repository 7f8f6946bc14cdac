// Parts that the doctor's pages share.
#pragma once

#include <string>

#include "ridge/base/html/html_writer.h"
#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// Characters that a page shows of a name and of a text, and rows that it lists.
inline constexpr size_t kNameLength = 120, kTextLength = 2000, kMostListed = 200;

Tone tone_of(Severity severity);

/// "12.5 %" of 0.125.
std::string percent_text(double share);

/// "R01 input starved", what it costs, what was seen, and what to do.
void add_finding(HtmlReport& page, size_t number, const Finding& finding);

}  // namespace ridge::doctor
