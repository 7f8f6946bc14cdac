// Causes and roles of events by their names, for every recorder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// The cause that host time under an event counts for, by its kind and name; kUnknown: the name
/// says nothing, as most ranges' names do. A copy's call is kSync where it blocks by its name.
HostCause cause_of(EventKind kind, std::string_view name);

/// The causes of all rows of a trace; kUnknown for rows that are not on a host thread.
std::vector<HostCause> causes_of(const Trace& trace);

/// Digits, however many, become one '#': names of ranges that differ in their number are one.
std::string without_numbers(std::string_view name);

/// How surely a range of this name is a step, the surest first from 1; 0: it is none by its name.
int step_mark_rank(std::string_view name);

/// A range over one update of the weights.
bool is_optimizer_step(std::string_view name);

}  // namespace ridge::doctor
