// Memory of a program: of all of its processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace ridge::attach {

/// The most bytes that were resident at a time of each process that is there now: of `root` and all
/// that descends from it, in sum, so that it is an upper bound where their peaks were at different
/// times. Of what is resident now a page that several of them share counts once (PSS, by
/// smaps_rollup; if the system does not report that, all pages of each count). 0: it is gone.
/// `proc` is the system's outside of tests.
int64_t tree_peak_bytes(pid_t root, const std::string& proc = "/proc");

/// Pages that the same processes have had mapped by faults so far, without a disk.
int64_t tree_faults(pid_t root, const std::string& proc = "/proc");

}  // namespace ridge::attach
