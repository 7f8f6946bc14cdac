// Scopes as ranges of the profiler that the user runs Ridge under (Nsight Systems and its like), by
// NVTX: the profiler names a library in the environment, and programs hand it a table of functions
// to fill in. No header of NVIDIA is needed.
#pragma once

#include <string>

namespace ridge {

/// Makes each scope of Ridge, from now on, a range in the profiler whose library
/// $NVTX_INJECTION64_PATH names. Without the variable nothing happens. The text that it returns
/// says why there are no ranges although there is a profiler; empty: all is well. A second call
/// does nothing.
std::string start_profiler_ranges();

}  // namespace ridge
