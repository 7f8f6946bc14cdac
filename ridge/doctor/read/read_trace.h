// Traces from files, whoever wrote them.
#pragma once

#include <string>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Reads and sorts a trace: Kineto or Chrome JSON (plain or gzip; Ridge's own are such), or an nsys
/// export in SQLite, told apart by their contents. What is broken in it is a warning where events
/// could be read all the same; UserError where none could, or the file cannot be opened.
Trace read_trace(const std::string& path);

/// The readers. Kineto JSON is read as a stream: memory goes by the events that are kept.
Trace read_kineto(const std::string& path);
Trace read_nsys(const std::string& path);

}  // namespace ridge::doctor
