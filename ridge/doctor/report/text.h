// The doctor's report for a terminal. Names from traces lose characters that control a terminal.
#pragma once

#include <string>

#include "ridge/doctor/examination.h"

namespace ridge::doctor {

inline constexpr size_t kShownFindings = 5;

/// The first five findings that are expected to gain something, or all findings.
std::string doctor_text(const Examination& examination, bool shows_all = false);

/// "1.08 to 1.17 times as fast expected, 1.17 at most", or "" for a remark.
std::string gain_text(const Finding& finding);
/// "same bits", "same formula, other rounding", and so on.
std::string_view class_text(SemanticClass semantic_class);

}  // namespace ridge::doctor
