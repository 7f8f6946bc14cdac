// What the control groups of a process allow it: version 2, version 1, or both side by side.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "ridge/attach/samples/tree_samples.h"

namespace ridge::attach {

struct CgroupMount {
  std::string folder{};  ///< Where the group `root` and those below it are seen.
  std::string root{};
};

struct CgroupMounts {
  std::optional<CgroupMount> unified{};                   ///< Of version 2.
  std::optional<CgroupMount> cpu{}, cpuacct{}, memory{};  ///< Of version 1.
};

class CgroupReader {
 public:
  /// Where the groups are mounted is found in <proc>/self/mountinfo; `folder` holds them under
  /// their usual names where that says nothing.
  CgroupReader(pid_t process, std::string proc, const std::string& folder);

  /// The process may have been moved since the last call. A limit is the tightest of its group and
  /// of those above it; what is used is said of the group that has that limit.
  CgroupSample take();
  /// What the last sample does not know, in words; empty: all is known.
  const std::string& missing() const { return missing_; }

 private:
  pid_t process_;
  std::string proc_;
  CgroupMounts mounts_;
  std::string missing_;
};

}  // namespace ridge::attach
