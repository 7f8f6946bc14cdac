#include "ridge/base/cpu/cpu_affinity.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "ridge/base/sysfs.h"

namespace ridge {
namespace {

// A machine has at most so many CPUs.
constexpr size_t kMostCpus = size_t{1} << 20;

// The affinity mask of the calling thread: the CPUs that it may run on, in ascending order.
std::vector<int> read_mask() {
  for (size_t cpus = 1024; cpus <= kMostCpus; cpus *= 2) {
    std::vector<cpu_set_t> mask(cpus / (8 * sizeof(cpu_set_t)));
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;  // a larger machine than that
    std::vector<int> found;
    for (size_t i = 0; i < cpus; ++i)
      if (CPU_ISSET_S(i, bytes, mask.data())) found.push_back(static_cast<int>(i));
    return found;
  }
  return {};
}

bool write_mask(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const auto most = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()));
  std::vector<cpu_set_t> mask(most / (8 * sizeof(cpu_set_t)) + 1);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, mask.data());
  return sched_setaffinity(0, bytes, mask.data()) == 0;
}

// While some threads are pinned, their own masks no longer say which CPUs the process may use: the
// mask from before is kept here.
struct PinnedThreads {
  std::mutex mutex;
  int count = 0;
  std::vector<int> allowed;  // the mask before the first of them was pinned
};

// Never destroyed: threads end while the program exits.
PinnedThreads& pinned_threads() {
  static PinnedThreads* const made = new PinnedThreads;
  return *made;
}

// The pin of a thread, forgotten when the thread ends.
struct Pin {
  int cpu = -1;
  ~Pin() { forget(); }
  void forget() {
    if (cpu < 0) return;
    PinnedThreads& all = pinned_threads();
    const std::lock_guard<std::mutex> lock(all.mutex);
    --all.count;
    cpu = -1;
  }
};

thread_local Pin this_pin;

// Numbers of the CPUs that share the core, the same text for each of them; empty when unknown.
std::string core_of(int cpu, const std::string& root) {
  const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, cpu);
  const std::string cpus = first_line(folder + "core_cpus_list");
  return cpus.empty() ? first_line(folder + "thread_siblings_list") : cpus;
}

}  // namespace

std::vector<int> allowed_cpus() {
  PinnedThreads& all = pinned_threads();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.count > 0 ? all.allowed : read_mask();
}

std::vector<int> cores_first(const std::vector<int>& cpus, const std::string& root) {
  std::map<std::string, int> taken;          // CPUs of a core so far
  std::vector<std::pair<int, int>> ordered;  // how many of its core come before, CPU
  for (int cpu : cpus) {
    const std::string core = core_of(cpu, root);
    ordered.emplace_back(core.empty() ? 0 : taken[core]++, cpu);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  std::vector<int> result;
  for (const auto& [before, cpu] : ordered) result.push_back(cpu);
  return result;
}

int physical_cores(const std::vector<int>& cpus, const std::string& root) {
  std::set<std::string> cores;
  int unknown = 0;
  for (const int cpu : cpus) {
    const std::string core = core_of(cpu, root);
    if (core.empty())
      ++unknown;
    else
      cores.insert(core);
  }
  return unknown + static_cast<int>(cores.size());
}

bool pin_this_thread(int cpu) {
  PinnedThreads& all = pinned_threads();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const std::vector<int> before = all.count > 0 ? all.allowed : read_mask();
  if (cpu < 0 || !write_mask({cpu})) return false;
  if (this_pin.cpu < 0 && all.count++ == 0) all.allowed = before;
  this_pin.cpu = cpu;
  return true;
}

void unpin_this_thread() {
  if (this_pin.cpu < 0) return;
  write_mask(allowed_cpus());
  this_pin.forget();
}

UnpinnedScope::UnpinnedScope() {
  if (this_pin.cpu >= 0) write_mask(allowed_cpus());
}

UnpinnedScope::~UnpinnedScope() {
  if (this_pin.cpu >= 0) write_mask({this_pin.cpu});
}

}  // namespace ridge
