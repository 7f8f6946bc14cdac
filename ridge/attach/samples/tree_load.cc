// The load between two samples of a tree, from counters that may begin, end and go back.
#include <sched.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/base/cpu/cpu_affinity.h"

namespace ridge::attach {
namespace {

// A thread that wants a processor for less than this share of the time is not busy.
constexpr double kBusy = 0.1;
// Samples take a while themselves: who was new may have run a little longer than between them.
constexpr double kMargin = 1.1;

struct ThreadGrowth {
  double cpu = 0, queue = 0;  // seconds
};

// Growth of a thread's times between two samples. A thread that is new to us counts with all that
// it has, unless that is more than the time between the samples.
ThreadGrowth growth(const ThreadSample* before, const ThreadSample& after, double seconds) {
  const auto grown = [&](double from, double to) {
    if (before != nullptr && to >= from) return std::min(to - from, seconds);
    return to <= kMargin * seconds ? std::clamp(to, 0.0, seconds) : 0.0;
  };
  if (before == nullptr) return {grown(0, after.cpu_seconds), grown(0, after.queue_seconds)};
  return {grown(before->cpu_seconds, after.cpu_seconds),
          grown(before->queue_seconds, after.queue_seconds)};
}

using ProcessKey = std::pair<pid_t, int64_t>;
using Processes = std::map<ProcessKey, const ProcessSample*>;

Processes by_key(const TreeSample& sample) {
  Processes found;
  for (const ProcessSample& process : sample.processes)
    found[{process.pid, process.start_ticks}] = &process;
  return found;
}

const ProcessSample* find(const Processes& processes, const ProcessSample& wanted) {
  const auto it = processes.find({wanted.pid, wanted.start_ticks});
  return it == processes.end() ? nullptr : it->second;
}

int64_t count_threads(const ProcessSample& process) {
  return std::max(process.thread_count, static_cast<int64_t>(process.threads.size()));
}

// The processes that ended meanwhile, by their parents, to whom the system then adds what they had
// used all their life, once they are waited for.
using Ended = std::multimap<pid_t, const ProcessSample*>;

class Comparison {
 public:
  Comparison(const TreeSample& before, const TreeSample& after)
      : after_(after), known_(by_key(before)) {
    load_.seconds = 1e-9 * static_cast<double>(after.at_ns - before.at_ns);
    const Processes alive = by_key(after);
    for (const ProcessSample& process : before.processes)
      if (find(alive, process) == nullptr) ended_.emplace(process.parent, &process);
  }

  TreeLoad take() {
    for (const ProcessSample& process : after_.processes) {
      load_.processes += process.threads.empty() ? 0 : 1;
      load_.threads += count_threads(process);
      load_.rss_bytes += process.rss_bytes;
      if (load_.seconds > 0) add(process);
    }
    return load_;
  }

 private:
  void add(const ProcessSample& process) {
    const ProcessSample* const before = find(known_, process);
    load_.cpus += (add_threads(before, process) + waited(before, process)) / load_.seconds;
    add_bytes(before, process, &ProcessSample::read_bytes, load_.read_bytes);
    add_bytes(before, process, &ProcessSample::written_bytes, load_.written_bytes);
  }

  // Processor time of its own. What the threads say is fine-grained, but those that ended are in
  // the sum of the process alone.
  double add_threads(const ProcessSample* before, const ProcessSample& after) {
    std::map<pid_t, const ThreadSample*> known;
    if (before != nullptr)
      for (const ThreadSample& thread : before->threads) known[thread.thread] = &thread;
    const size_t count_before = known.size();
    double sum = 0;
    for (const ThreadSample& thread : after.threads) {
      const auto it = known.find(thread.thread);
      const ThreadGrowth grown =
          growth(it == known.end() ? nullptr : it->second, thread, load_.seconds);
      if (it != known.end()) known.erase(it);
      sum += grown.cpu;
      load_.queue += grown.queue / load_.seconds;
      load_.busy_threads += grown.cpu + grown.queue >= kBusy * load_.seconds ? 1 : 0;
    }
    const bool all_before =
        before == nullptr || count_threads(*before) == static_cast<int64_t>(count_before);
    const bool all_after = count_threads(after) == static_cast<int64_t>(after.threads.size());
    if (known.empty() && all_before && all_after && before != nullptr) return sum;
    const double whole = after.cpu_seconds - (before == nullptr ? 0 : before->cpu_seconds);
    const double most = static_cast<double>(std::max<int64_t>(1, count_threads(after)));
    const bool is_credible = before != nullptr || whole <= kMargin * most * load_.seconds;
    return is_credible ? std::max(sum, whole) : sum;
  }

  // Processor time of children of it that ended, less what was seen of it before.
  double waited(const ProcessSample* before, const ProcessSample& after) const {
    double grown = after.waited_seconds - (before == nullptr ? 0 : before->waited_seconds);
    const auto [first, last] = ended_.equal_range(after.pid);
    for (auto it = first; it != last; ++it)
      grown -= it->second->cpu_seconds + it->second->waited_seconds;
    return std::max(0.0, grown);
  }

  // The bytes of children that were waited for are in the count of their parent.
  void add_bytes(const ProcessSample* before,
                 const ProcessSample& after,
                 int64_t ProcessSample::* count,
                 double& rate) const {
    if (after.*count < 0 || (before != nullptr && before->*count < 0)) return;
    double grown = static_cast<double>(after.*count);
    if (before != nullptr) grown -= static_cast<double>(before->*count);
    const auto [first, last] = ended_.equal_range(after.pid);
    for (auto it = first; it != last; ++it)
      grown -= static_cast<double>(std::max<int64_t>(0, it->second->*count));
    rate = std::max(0.0, rate) + std::max(0.0, grown) / load_.seconds;
  }

  const TreeSample& after_;
  TreeLoad load_;
  Processes known_;
  Ended ended_;
};

const ThreadSample* main_thread(const TreeSample& sample) {
  if (sample.processes.empty() || sample.processes.front().threads.empty()) return nullptr;
  return &sample.processes.front().threads.front();
}

void add_main_thread(const TreeSample& before, const TreeSample& after, TreeLoad& load) {
  const ThreadSample* const first = main_thread(before);
  const ThreadSample* const second = main_thread(after);
  if (first == nullptr || second == nullptr || first->thread != second->thread) return;
  load.disk_wait = 0.5 * ((first->state == 'D' ? 1 : 0) + (second->state == 'D' ? 1 : 0));
  if (load.seconds <= 0) return;
  const ThreadGrowth grown = growth(first, *second, load.seconds);
  load.main_cpu = grown.cpu / load.seconds;
  load.main_queue = grown.queue / load.seconds;
}

// The system adds up the time over the processors that a group is held off: as many as have work
// for it. So they had work for as long as that and what the group did run.
double throttled_share(const TreeSample& before, const TreeSample& after, const TreeLoad& load) {
  const CgroupSample &first = before.cgroup, &second = after.cgroup;
  if (load.seconds <= 0 || first.throttled_seconds < 0 || second.throttled_seconds < 0) return -1;
  const double held = second.throttled_seconds - first.throttled_seconds;
  if (held <= 0) return 0;
  double used = load.cpus * load.seconds;
  if (first.used_seconds >= 0 && second.used_seconds >= first.used_seconds)
    used = second.used_seconds - first.used_seconds;
  return held / (held + used);
}

}  // namespace

TreeLoad load_between(const TreeSample& before, const TreeSample& after) {
  TreeLoad load = Comparison(before, after).take();
  add_main_thread(before, after, load);
  load.throttled = throttled_share(before, after, load);
  return load;
}

TreeSample only(const TreeSample& sample, pid_t pid) {
  TreeSample one;
  one.at_ns = sample.at_ns;
  for (const ProcessSample& process : sample.processes)
    if (process.pid == pid) one.processes.push_back(process);
  return one;
}

int64_t usable_cpus(std::span<const pid_t> of) {
  // The mask of the largest kernels; a smaller one than theirs is refused.
  constexpr size_t kMostCpus = 1 << 16;
  std::vector<cpu_set_t> mask(kMostCpus / (8 * sizeof(cpu_set_t))), all = mask;
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (pid_t pid : of)
    if (sched_getaffinity(pid, bytes, mask.data()) == 0)
      CPU_OR_S(bytes, all.data(), all.data(), mask.data());
  const int count = CPU_COUNT_S(bytes, all.data());
  return count > 0 ? count : std::max<int64_t>(1, static_cast<int64_t>(allowed_cpus().size()));
}

}  // namespace ridge::attach
