// Kineto and Chrome JSON from anywhere.
#pragma once

#include <string>

#include "ridge/doctor/read/kineto_stream.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Reads and sorts what `source` gives, which is not compressed; `path` names it in errors.
Trace read_kineto(ByteSource source, const std::string& path);

}  // namespace ridge::doctor
