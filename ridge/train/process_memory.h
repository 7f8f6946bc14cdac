// The memory of this process, as the operating system counts it.
#pragma once

#include <cstdint>

namespace ridge {

/// RssAnon of /proc/self/status in bytes: resident pages that no file backs. 0 if the system does
/// not report it. Allocates nothing.
int64_t resident_anonymous_bytes();

/// VmRSS of the same file in bytes, and VmHWM, its most so far or since
/// reset_peak_resident_bytes().
int64_t resident_bytes();
int64_t peak_resident_bytes();
/// Lets the peak begin anew. False where the system does not do that.
bool reset_peak_resident_bytes();

/// VmData of the same file in bytes: what RLIMIT_DATA limits.
int64_t data_bytes();

/// MemAvailable of /proc/meminfo in bytes: what programs could take without swapping; 0 if the
/// system does not report it.
int64_t available_bytes();

/// Gives free pages of the heap back, so that memory taken later counts as memory taken.
void release_free_memory();

}  // namespace ridge
