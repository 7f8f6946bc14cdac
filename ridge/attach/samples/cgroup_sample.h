// Limits and usage of a process's control groups: version 2, version 1, or both side by side.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "ridge/attach/samples/tree_samples.h"

namespace ridge::attach {

struct CgroupMount {
  std::string folder{};  ///< Folder that shows the group `root` and those below it.
  std::string root{};
};

struct CgroupMounts {
  std::optional<CgroupMount> unified{};                   ///< The mount of version 2.
  std::optional<CgroupMount> cpu{}, cpuacct{}, memory{};  ///< The mounts of version 1.
};

class CgroupReader {
 public:
  /// Finds the mounts of the groups in <proc>/self/mountinfo; if that names none, the groups have
  /// their usual names in `folder`.
  CgroupReader(pid_t process, std::string proc, const std::string& folder);

  /// The process may have been moved since the last call. A limit is the tightest of its group and
  /// of those above it; what is used is said of the group that has that limit.
  CgroupSample take();
  /// Says in words what the last sample does not know; empty: all is known.
  const std::string& missing() const { return missing_; }

 private:
  pid_t process_;
  std::string proc_;
  CgroupMounts mounts_;
  std::string missing_;
};

}  // namespace ridge::attach
