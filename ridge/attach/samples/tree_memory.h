// Memory of a program: of all of its processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace ridge::attach {

/// Bytes resident now of `root` and all that descends from it. A page that several of them share
/// counts once (PSS, by smaps_rollup); if the system does not report that, all pages of each count.
/// 0: it is gone. `proc` is the system's outside of tests.
int64_t tree_memory_bytes(pid_t root, const std::string& proc = "/proc");

}  // namespace ridge::attach
