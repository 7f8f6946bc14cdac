#include "ridge/attach/samples/tree_samples.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "ridge/attach/samples/cgroup_sample.h"
#include "ridge/attach/samples/proc_files.h"
#include "ridge/base/clock.h"

namespace ridge::attach {
namespace {

constexpr size_t kMostProcesses = 4096, kMostThreads = 512, kMostThreadsInAll = 16384;
// A process that was none of ours is read again after this many samples: its number may be that of
// another one by now.
constexpr int kForgetStrangers = 32;

/// A path of numbers and one name, without an allocation.
class ShortPath {
 public:
  ShortPath(pid_t number, std::string_view name) {
    const auto end = fmt::format_to_n(text_.begin(), text_.size() - 1, "{}{}", number, name);
    *end.out = '\0';
  }
  const char* get() const { return text_.data(); }

 private:
  std::array<char, 48> text_;
};

double seconds_of(int64_t ticks) {
  static const auto per_second = static_cast<double>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  return static_cast<double>(ticks) / per_second;
}

// Zombies too have a line in /proc; a main thread that ended before others is no zombie.
bool has_ended(const ProcStat& stat) {
  return (stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1;
}

// Scheduling of a thread: nanoseconds that it ran and waited to run, and how often it ran; all -1:
// not reported.
struct Schedule {
  int64_t ran = -1, queued = -1, times = -1;
  bool operator==(const Schedule&) const = default;
};

Schedule parse_schedule(std::string_view text) {
  const std::optional<int64_t> ran = parse_number(next_word(text));
  const std::optional<int64_t> queued = parse_number(next_word(text));
  const std::optional<int64_t> times = parse_number(next_word(text));
  if (!ran || !queued || !times || *ran < 0 || *queued < 0) return {};
  return {*ran, *queued, *times};
}

// Nanoseconds that all threads of a process ran; -1: the system does not say. It costs a tenth of
// reading a file.
int64_t process_clock(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return -1;
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

// Whether `proc` shows the processes that our own system calls know by the same numbers.
bool is_own_proc(const std::string& proc) {
  std::error_code error;
  return proc == "/proc" &&
         std::filesystem::read_symlink("/proc/self", error) == std::to_string(::getpid());
}

// How many files may stay open: there are others who need some.
size_t most_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur / 4, 1024));
}

struct Candidate {
  pid_t pid = 0;
  ProcStat stat{};
  bool is_member = false;
  int64_t clock_ns = -1;   // before anything else of it was read
  bool has_slept = false;  // Since the last sample: all of it is as it was.
};

// A process of the tree, as it was seen last.
struct Member {
  ProcStat stat{};
  int64_t clock_ns = -1;
  std::optional<ProcessSample> sample{};
};

struct KnownThread {
  Schedule schedule{};
  ThreadSample sample{};
  std::optional<ProcFile> schedstat{};
};

// Marks what descends from members. A child may have a lower number than its parent.
void mark_descendants(std::vector<Candidate>& candidates) {
  std::multimap<pid_t, Candidate*> children;
  std::vector<pid_t> todo;
  for (Candidate& candidate : candidates) {
    if (candidate.is_member)
      todo.push_back(candidate.pid);
    else
      children.emplace(candidate.stat.parent, &candidate);
  }
  while (!todo.empty()) {
    const auto [first, last] = children.equal_range(todo.back());
    todo.pop_back();
    for (auto it = first; it != last; ++it) {
      if (it->second->is_member) continue;
      it->second->is_member = true;
      todo.push_back(it->second->pid);
    }
  }
}

}  // namespace

struct TreeSampler::State {
  State(pid_t root_process, const std::string& proc_folder, const std::string& cgroup)
      : root(root_process),
        proc(proc_folder),
        has_clocks(is_own_proc(proc_folder)),
        cgroups(root_process, proc_folder, cgroup) {}

  std::optional<ProcStat> read_stat(int folder, const ShortPath& path) {
    return parse_stat(reader.read(folder, path.get()));
  }
  void miss(std::string_view what) {
    if (std::find(missing.begin(), missing.end(), what) == missing.end())
      missing.emplace_back(what);
  }

  std::vector<Candidate> find_members(const ProcFolder& folder);
  std::optional<Candidate> look_at(const ProcFolder& folder,
                                   pid_t pid,
                                   const std::vector<pid_t>& alive);
  std::optional<ProcessSample> take_process(int proc_descriptor, const Candidate& member);
  std::optional<ProcessSample> read_process(int proc_descriptor, const Candidate& member);
  void read_io(int proc_descriptor, ProcessSample& process);
  void read_threads(int proc_descriptor, ProcessSample& process);
  std::optional<ThreadSample> read_thread(int tasks, pid_t thread, const ProcessSample& process);
  Schedule read_schedule(int tasks, pid_t thread, std::optional<ProcFile>& file);

  pid_t root;
  int64_t root_start = -1;
  std::string proc;
  bool has_clocks;
  CgroupReader cgroups;
  ProcReader reader{};
  std::map<pid_t, Member> members{};
  std::vector<pid_t> strangers{};  // rising
  int takes = 0;
  size_t threads_left = 0;
  size_t open_files = 0;
  const size_t most_files = most_open_files();
  // Most threads sleep from one sample to the next: what did not run is what it was, and is not
  // read again.
  using Threads = std::unordered_map<pid_t, KnownThread>;
  Threads seen{}, seen_now{};
  std::vector<std::string> missing{};
};

// Takes the process's `stat`, which is read again only if the process ran or lost its parent.
std::optional<Candidate> TreeSampler::State::look_at(const ProcFolder& folder,
                                                     pid_t pid,
                                                     const std::vector<pid_t>& alive) {
  Candidate candidate;
  candidate.pid = pid;
  const auto known = members.find(pid);
  const bool is_known = known != members.end();
  if (has_clocks) candidate.clock_ns = process_clock(pid);
  if (is_known && known->second.sample && candidate.clock_ns >= 0 &&
      candidate.clock_ns == known->second.clock_ns &&
      std::binary_search(alive.begin(), alive.end(), known->second.stat.parent)) {
    candidate.stat = known->second.stat;
    candidate.is_member = candidate.has_slept = true;
    return candidate;
  }
  std::optional<ProcStat> stat = read_stat(folder.descriptor(), {pid, "/stat"});
  if (!stat) return {};
  candidate.is_member = is_known && known->second.stat.start_ticks == stat->start_ticks;
  candidate.stat = *std::move(stat);
  return candidate;
}

// The processes of the tree as they are now, the root first; empty where it is gone.
std::vector<Candidate> TreeSampler::State::find_members(const ProcFolder& folder) {
  if (takes++ % kForgetStrangers == 0) strangers.clear();
  std::vector<Candidate> candidates;
  std::vector<pid_t> others;
  const std::vector<pid_t> alive = folder.numbers();
  for (const pid_t pid : alive) {
    if (std::binary_search(strangers.begin(), strangers.end(), pid))
      others.push_back(pid);
    else if (std::optional<Candidate> candidate = look_at(folder, pid, alive))
      candidates.push_back(*std::move(candidate));
  }
  mark_descendants(candidates);

  std::map<pid_t, Member> before = std::exchange(members, {});
  std::vector<Candidate> found;
  for (Candidate& candidate : candidates) {
    if (!candidate.is_member) {
      others.push_back(candidate.pid);
    } else if (found.size() < kMostProcesses || candidate.pid == root) {
      Member& member = members[candidate.pid];
      if (candidate.has_slept) member.sample = std::move(before[candidate.pid].sample);
      member.stat = candidate.stat;
      member.clock_ns = candidate.clock_ns;
      found.push_back(std::move(candidate));
    } else {
      miss(fmt::format("processes beyond the first {}", kMostProcesses));
    }
  }
  std::sort(others.begin(), others.end());
  strangers = std::move(others);
  const auto first = std::find_if(found.begin(), found.end(), [&](const Candidate& candidate) {
    return candidate.pid == root && candidate.stat.start_ticks == root_start &&
           !has_ended(candidate.stat);
  });
  if (first == found.end()) return {};
  std::rotate(found.begin(), first, std::next(first));
  return found;
}

std::optional<ProcessSample> TreeSampler::State::take_process(int proc_descriptor,
                                                              const Candidate& member) {
  std::optional<ProcessSample>& last = members[member.pid].sample;
  if (!member.has_slept) {
    last = read_process(proc_descriptor, member);
    return last;
  }
  threads_left -= std::min(threads_left, last->threads.size());
  for (const ThreadSample& thread : last->threads) seen_now.insert(seen.extract(thread.thread));
  return last;
}

std::optional<ProcessSample> TreeSampler::State::read_process(int proc_descriptor,
                                                              const Candidate& member) {
  static const int64_t page_bytes = std::max(1L, ::sysconf(_SC_PAGESIZE));
  const ProcStat& stat = member.stat;
  ProcessSample process;
  process.pid = member.pid;
  process.parent = stat.parent;
  process.start_ticks = stat.start_ticks;
  process.name = stat.name;
  process.rss_bytes = std::min(stat.rss_pages, (int64_t{1} << 50) / page_bytes) * page_bytes;
  process.minor_faults = stat.minor_faults;
  process.major_faults = stat.major_faults;
  process.cpu_seconds = seconds_of(stat.cpu_ticks);
  process.waited_seconds = seconds_of(stat.waited_ticks);
  read_io(proc_descriptor, process);
  if (has_ended(stat)) return process;
  read_threads(proc_descriptor, process);
  if (process.threads.empty()) return {};  // it ended while it was read
  process.thread_count = std::max(stat.threads, static_cast<int64_t>(process.threads.size()));
  return process;
}

void TreeSampler::State::read_io(int proc_descriptor, ProcessSample& process) {
  const std::string_view text = reader.read(proc_descriptor, ShortPath(process.pid, "/io").get());
  process.read_bytes = std::max<int64_t>(-1, number_of(text, "read_bytes").value_or(-1));
  process.written_bytes = std::max<int64_t>(-1, number_of(text, "write_bytes").value_or(-1));
  if (process.pid != root) return;
  if (reader.error() == EACCES || reader.error() == EPERM)
    miss("bytes from and to disks (no rights to read /proc/PID/io)");
  else if (reader.error() == ENOENT || process.read_bytes < 0)
    miss("bytes from and to disks (no /proc/PID/io)");
}

void TreeSampler::State::read_threads(int proc_descriptor, ProcessSample& process) {
  const ProcFolder tasks(proc_descriptor, ShortPath(process.pid, "/task").get());
  std::vector<pid_t> numbers = tasks.numbers();
  const auto main = std::find(numbers.begin(), numbers.end(), process.pid);
  if (main == numbers.end()) return;
  std::rotate(numbers.begin(), main, std::next(main));
  const size_t most = std::min(kMostThreads, 1 + threads_left);
  if (numbers.size() > most) {
    miss(fmt::format("each thread beyond the first {} of a process", kMostThreads));
    numbers.resize(most);
  }
  threads_left -= std::min(threads_left, numbers.size());
  for (const pid_t number : numbers) {
    std::optional<ThreadSample> thread = read_thread(tasks.descriptor(), number, process);
    if (thread) process.threads.push_back(*std::move(thread));
    if (process.threads.empty()) return;  // without the main thread nothing can be said
  }
}

Schedule TreeSampler::State::read_schedule(int tasks, pid_t thread, std::optional<ProcFile>& file) {
  const ShortPath path(thread, "/schedstat");
  if (!file && open_files < most_files) file.emplace(tasks, path.get(), open_files);
  const Schedule schedule =
      parse_schedule(file ? reader.read(*file) : reader.read(tasks, path.get()));
  if (schedule.ran < 0) file.reset();
  return schedule;
}

std::optional<ThreadSample> TreeSampler::State::read_thread(int tasks,
                                                            pid_t thread,
                                                            const ProcessSample& process) {
  const bool is_main = thread == process.pid;
  auto position = seen_now.insert(seen.extract(thread)).position;
  const bool is_known = position != seen_now.end();
  if (!is_known) position = seen_now.try_emplace(thread).first;
  KnownThread& known = position->second;
  const Schedule schedule = read_schedule(tasks, thread, known.schedstat);
  const bool has_slept = is_known && schedule.ran > 0 && schedule == known.schedule;
  if (has_slept && !is_main) return known.sample;

  const std::optional<ProcStat> stat = read_stat(tasks, {thread, "/stat"});
  if (!stat || (is_main && stat->start_ticks != process.start_ticks)) {
    seen_now.erase(position);
    return {};
  }
  ThreadSample sample{.thread = thread, .name = stat->name, .state = stat->state};
  // A kernel that does not keep these counts has 0 for all of them.
  if (schedule.ran > 0 || (schedule.ran == 0 && stat->cpu_ticks == 0)) {
    sample.cpu_seconds = 1e-9 * static_cast<double>(schedule.ran);
    sample.queue_seconds = 1e-9 * static_cast<double>(schedule.queued);
  } else {
    sample.cpu_seconds = seconds_of(stat->cpu_ticks);
    if (is_main && process.pid == root) miss("waits for a processor (no schedstat)");
  }
  known.schedule = schedule;
  known.sample = sample;
  return sample;
}

TreeSampler::TreeSampler(pid_t root, const std::string& proc, const std::string& cgroup)
    : state_(std::make_unique<State>(root, proc, cgroup)) {
  const ProcFolder folder(AT_FDCWD, proc.c_str());
  const std::optional<ProcStat> stat = state_->read_stat(folder.descriptor(), {root, "/stat"});
  if (!stat) return;
  state_->root_start = stat->start_ticks;
  state_->members[root].stat = *stat;
}

TreeSampler::TreeSampler(TreeSampler&& other) noexcept = default;
TreeSampler& TreeSampler::operator=(TreeSampler&& other) noexcept = default;
TreeSampler::~TreeSampler() = default;

TreeSample TreeSampler::take() {
  TreeSample sample;
  sample.at_ns = now_ns();
  const ProcFolder folder(AT_FDCWD, state_->proc.c_str());
  const std::vector<Candidate> members = state_->find_members(folder);
  state_->threads_left = kMostThreadsInAll;
  for (const Candidate& member : members) {
    std::optional<ProcessSample> process = state_->take_process(folder.descriptor(), member);
    if (!process && member.pid == state_->root) return sample;
    if (process) sample.processes.push_back(*std::move(process));
  }
  state_->seen = std::exchange(state_->seen_now, {});
  if (members.empty()) return sample;
  sample.cgroup = state_->cgroups.take();
  if (!state_->cgroups.missing().empty()) state_->miss(state_->cgroups.missing());
  return sample;
}

std::vector<std::string> TreeSampler::missing() const { return state_->missing; }

}  // namespace ridge::attach
