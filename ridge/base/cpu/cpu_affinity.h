// Which CPUs threads may run on, and keeping a thread on one of them.
#pragma once

#include <string>
#include <vector>

namespace ridge {

/// CPUs that this process may use, in order: the affinity mask as it was before a thread was pinned
/// here. Empty when the system will not say.
std::vector<int> allowed_cpus();

/// `cpus` in the order in which computing threads should take them: one of each physical core, then
/// the siblings. Reads sys/devices/system/cpu under `root`, which is "/" outside tests.
std::vector<int> cores_first(const std::vector<int>& cpus, const std::string& root = "/");

/// The number of physical cores that `cpus` belong to; a CPU of which that is not known has its
/// own.
int physical_cores(const std::vector<int>& cpus, const std::string& root = "/");

/// Keeps the calling thread on `cpu`; false when the system refuses.
bool pin_this_thread(int cpu);

/// Lets the calling thread run on every allowed CPU again.
void unpin_this_thread();

/// While it lives the calling thread, pinned or not, may run on every allowed CPU: what it starts,
/// threads and processes, inherits that.
class UnpinnedScope {
 public:
  UnpinnedScope();
  ~UnpinnedScope();
  UnpinnedScope(const UnpinnedScope&) = delete;
  UnpinnedScope& operator=(const UnpinnedScope&) = delete;
};

}  // namespace ridge
