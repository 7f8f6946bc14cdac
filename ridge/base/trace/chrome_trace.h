// Writes a trace as the JSON that Kineto, Chrome and Perfetto share.
#pragma once

#include <iosfwd>

#include "ridge/base/trace/trace_event.h"

namespace ridge {

/// One object: "traceEvents" (ph "X", microseconds with three decimals from
/// "baseTimeNanoseconds", which counts from 1970), thread and process names, the devices and the
/// number of dropped events. Threads of this process go by their ids; work of thread 0 goes to
/// process 0 with its stream as the thread, as Kineto does for devices. UserError when `out` fails.
void write_chrome_trace(const TraceLog& log, std::ostream& out);

}  // namespace ridge
