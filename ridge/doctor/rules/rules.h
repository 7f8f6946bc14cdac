// The rules of the doctor, each in a file of its own: rules/rNN_name.cc. The table is rules.cc.
#pragma once

#include "ridge/doctor/finding.h"

namespace ridge::doctor {

void r00_unfit(const Trace& trace, const Analysis& analysis, RuleOutput& output);

}  // namespace ridge::doctor
