// How samples become what is shown.
#include "ridge/attach/watch/watch_state.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ridge::attach {
namespace {

constexpr int64_t kWindowNs = 10'000'000'000;

void remember(std::deque<double>& history, double value) {
  history.push_back(value);
  if (history.size() > kWatchHistory) history.pop_front();
}

double cpu_seconds_of(const ProcessSample& process) {
  double seconds = 0;
  for (const ThreadSample& thread : process.threads) seconds += thread.cpu_seconds;
  return seconds;
}

int64_t threads_of(const ProcessSample& process) {
  return std::max(process.thread_count, static_cast<int64_t>(process.threads.size()));
}

bool is_gone(const WatchState& state, const TreeSample& tree) {
  if (tree.processes.empty()) return true;
  const ProcessSample& root = tree.processes.front();
  // Its number may be used again, and one that has ended stays until its parent has asked.
  const bool is_another = !state.last.tree.processes.empty() &&
                          root.start_ticks != state.last.tree.processes.front().start_ticks;
  const char main = root.threads.empty() ? 'X' : root.threads.front().state;
  return is_another || main == 'X' || (main == 'Z' && threads_of(root) <= 1);
}

std::vector<WatchedProcess> processes_of(const TreeSample& before, const TreeSample& after) {
  std::map<std::pair<pid_t, int64_t>, double> used;
  for (const ProcessSample& process : before.processes)
    used[{process.pid, process.start_ticks}] = cpu_seconds_of(process);
  const double seconds = static_cast<double>(after.at_ns - before.at_ns) * 1e-9;
  std::vector<WatchedProcess> found;
  for (const ProcessSample& process : after.processes) {
    const auto was = used.find({process.pid, process.start_ticks});
    // One that began meanwhile has used all of its time since; one seen first may be old.
    const double base = was != used.end() ? was->second : 0;
    const bool is_known = seconds > 0 && !before.processes.empty();
    found.push_back({.pid = process.pid,
                     .name = process.name,
                     .cpus = is_known ? std::max(0.0, cpu_seconds_of(process) - base) / seconds : 0,
                     .rss_bytes = process.rss_bytes,
                     .threads = threads_of(process)});
  }
  std::stable_sort(
      found.begin(), found.end(), [](const WatchedProcess& a, const WatchedProcess& b) {
        return a.cpus != b.cpus ? a.cpus > b.cpus : a.rss_bytes > b.rss_bytes;
      });
  return found;
}

// Adds what the tree used, read and wrote before it was watched; -1 if any of it is not known.
void count_first(WatchState& state, const TreeSample& tree) {
  double read = 0, written = 0;
  bool is_known = !tree.processes.empty();
  for (const ProcessSample& process : tree.processes) {
    // Threads and children that have ended are in the counts of the process alone.
    state.cpu_seconds +=
        std::max(cpu_seconds_of(process), process.cpu_seconds) + process.waited_seconds;
    is_known = is_known && process.read_bytes >= 0 && process.written_bytes >= 0;
    read += static_cast<double>(process.read_bytes);
    written += static_cast<double>(process.written_bytes);
  }
  if (is_known) state.read_bytes = read, state.written_bytes = written;
}

void count_load(WatchState& state, const TreeLoad& load) {
  state.cpu_seconds += load.cpus * load.seconds;
  if (load.read_bytes >= 0)
    state.read_bytes = std::max(0.0, state.read_bytes) + load.read_bytes * load.seconds;
  if (load.written_bytes >= 0)
    state.written_bytes = std::max(0.0, state.written_bytes) + load.written_bytes * load.seconds;
  remember(state.cpu_history, load.cpus);
}

void take_main_thread(WatchState& state, const TreeSample& tree) {
  const pid_t pid = state.steps->pid;
  const TreeSample before = only(state.last.tree, pid), after = only(tree, pid);
  if (before.processes.empty() || after.processes.empty()) return;
  const TreeLoad load = load_between(before, after);
  state.main_pid = pid;
  state.load->main_cpu = load.main_cpu;
  state.load->main_queue = load.main_queue;
  state.load->disk_wait = load.disk_wait;
}

void advance_tree(WatchState& state, const WatchInput& input) {
  int64_t rss = 0;
  for (const ProcessSample& process : input.tree.processes) rss += process.rss_bytes;
  state.peak_rss_bytes = std::max(state.peak_rss_bytes, rss);
  const TreeSample& before = state.last.tree;
  state.processes = processes_of(before, input.tree);
  if (state.inputs == 0) return count_first(state, input.tree);
  if (input.tree.at_ns <= before.at_ns) return;
  state.load = load_between(before, input.tree);
  state.main_pid = state.pid;
  if (state.steps && state.steps->pid != state.pid) take_main_thread(state, input.tree);
  count_load(state, *state.load);
}

void advance_power(WatchState& state, const WatchInput& input) {
  double kernel_time = 0;
  int known = 0;
  for (const GpuSample& gpu : input.gpus) {
    if (gpu.kernel_time < 0) continue;
    kernel_time += gpu.kernel_time;
    ++known;
  }
  if (known > 0) remember(state.gpu_history, kernel_time / known);
  state.cpu_watts = -1;
  if (input.cpu_joules < 0 || state.inputs == 0) return;
  state.cpu_joules = std::max(0.0, state.cpu_joules) + input.cpu_joules;
  const int64_t ns = input.tree.at_ns - state.last.tree.at_ns;
  if (ns > 0) state.cpu_watts = input.cpu_joules * 1e9 / static_cast<double>(ns);
}

// Ranks count alike; what else takes steps (an evaluation in a process of its own) takes fewer.
const ProcessFacts* leader_of(const std::vector<ProcessFacts>& facts) {
  const ProcessFacts* leader = nullptr;
  for (const ProcessFacts& process : facts)
    if (process.steps > 0 && (leader == nullptr || process.steps > leader->steps))
      leader = &process;
  return leader;
}

// Keeps the leader until another process is more than 10 steps ahead: between two with about as
// many steps the lead must not go to and fro.
const ProcessFacts* leader_of(const WatchState& state, const std::vector<ProcessFacts>& facts) {
  const ProcessFacts* leader = leader_of(facts);
  if (leader == nullptr || !state.steps) return leader;
  for (const ProcessFacts& process : facts)
    if (process.pid == state.steps->pid && process.steps + 10 >= leader->steps) return &process;
  return leader;
}

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : -1;
}

void mark_steps(WatchState& state, const WatchState::Mark& now) {
  // Steps are counted from one again where an optimizer takes over from calls of a module.
  if (!state.marks.empty() && now.steps < state.marks.back().steps) state.marks.clear();
  if (!state.marks.empty() && now.steps == state.marks.back().steps) return;
  if (!state.marks.empty()) {
    const WatchState::Mark& last = state.marks.back();
    const double seconds = static_cast<double>(now.wall_ns - last.wall_ns) * 1e-9;
    if (seconds > 0)
      remember(state.step_history, seconds / static_cast<double>(now.steps - last.steps));
  }
  state.marks.push_back(now);
  while (state.marks.size() > 2 && now.wall_ns - state.marks[1].wall_ns >= kWindowNs)
    state.marks.pop_front();
}

// Rates between the oldest mark and the newest, or since the first step while there is but one.
void measure_steps(WatchState& state, const ProcessFacts& facts, WatchedSteps& steps) {
  const WatchState::Mark first{1, facts.first_step_wall_ns, 0};
  const WatchState::Mark& from = state.marks.size() > 1 ? state.marks.front() : first;
  const WatchState::Mark& to = state.marks.back();
  const double seconds = static_cast<double>(to.wall_ns - from.wall_ns) * 1e-9;
  if (seconds > 0 && to.steps > from.steps)
    steps.per_second = static_cast<double>(to.steps - from.steps) / seconds;
  if (facts.loaders.empty()) return;  // data that no loader of torch makes is not seen
  steps.loader_seconds = facts.loader_seconds;
  steps.loader_share = share(to.loader_seconds - from.loader_seconds, seconds);
  steps.loader_share_ever =
      share(facts.loader_seconds,
            static_cast<double>(facts.last_step_wall_ns - facts.first_step_wall_ns) * 1e-9);
}

std::string why_no_steps(const WatchInput& input) {
  if (!input.has_shim) return "not known (start it with ridge watch -- CMD)";
  if (input.facts.empty()) return "not known (no Python has imported torch)";
  return "none yet";
}

void advance_steps(WatchState& state, const WatchInput& input) {
  const ProcessFacts* facts = leader_of(state, input.facts);
  if (facts == nullptr) {
    if (!state.steps) state.why_no_steps = why_no_steps(input);
    return;
  }
  if (state.steps && state.steps->pid != facts->pid) state.marks.clear();
  mark_steps(state, {facts->steps, facts->last_step_wall_ns, facts->loader_seconds});
  WatchedSteps steps;
  steps.pid = facts->pid;
  // A counter that others read must not go down when another process leads.
  steps.count = std::max(facts->steps, state.steps ? state.steps->count : 0);
  if (facts->step_seconds > 0) steps.seconds = facts->step_seconds;
  steps.source = facts->step_source;
  steps.loaders = facts->loaders;
  steps.processes = std::count_if(input.facts.begin(),
                                  input.facts.end(),
                                  [](const ProcessFacts& process) { return process.steps > 0; });
  if (facts->last_step_wall_ns > 0 && !state.is_over)
    steps.since_last =
        std::max(0.0, static_cast<double>(input.wall_ns - facts->last_step_wall_ns) * 1e-9);
  measure_steps(state, *facts, steps);
  if (state.steps)
    steps.loader_seconds = std::max(steps.loader_seconds, state.steps->loader_seconds);
  state.steps = std::move(steps);
  state.why_no_steps.clear();
}

void advance_names(WatchState& state, const WatchInput& input) {
  if (!input.tree.processes.empty()) {
    state.pid = input.tree.processes.front().pid;
    if (state.program.empty()) state.program = input.tree.processes.front().name;
  }
  for (const ProcessFacts& process : input.facts)
    if (process.pid == state.pid && !process.program.empty()) state.program = process.program;
}

}  // namespace

void advance(WatchState& state, WatchInput input) {
  state.is_over = state.is_over || is_gone(state, input.tree);
  advance_steps(state, input);
  if (!state.is_over) {
    const int64_t earlier = state.last.started_wall_ns;
    if (input.started_wall_ns <= 0) input.started_wall_ns = earlier;
    if (state.inputs > 0 && earlier > 0) input.started_wall_ns = earlier;
    // Without a start, time counts from the first input: by the steady clock.
    const int64_t ns = input.started_wall_ns > 0
                           ? input.wall_ns - input.started_wall_ns
                           : static_cast<int64_t>(state.elapsed * 1e9) +
                                 (state.inputs > 0 ? input.tree.at_ns - state.last.tree.at_ns : 0);
    state.elapsed = std::max(state.elapsed, static_cast<double>(ns) * 1e-9);
    advance_names(state, input);
    advance_tree(state, input);
  } else {
    // The last known tree stays on view.
    input.tree = state.last.tree;
    input.started_wall_ns = state.last.started_wall_ns;
  }
  advance_power(state, input);
  state.last = std::move(input);
  ++state.inputs;
}

double cost_so_far(const WatchState& state) {
  return state.price_per_hour >= 0 ? state.price_per_hour * state.elapsed / 3600 : -1;
}

double cost_per_thousand_steps(const WatchState& state) {
  if (state.price_per_hour < 0 || !state.steps || state.steps->per_second <= 0) return -1;
  return state.price_per_hour / 3600 / state.steps->per_second * 1000;
}

double gpu_watts_of(const WatchState& state) {
  double watts = -1;
  for (const GpuSample& gpu : state.last.gpus)
    if (gpu.watts >= 0) watts = std::max(0.0, watts) + gpu.watts;
  return watts;
}

double watts_of(const WatchState& state) {
  const double gpus = gpu_watts_of(state);
  if (gpus < 0) return state.cpu_watts;
  return gpus + std::max(0.0, state.cpu_watts);
}

double joules_per_step(const WatchState& state) {
  const double watts = watts_of(state);
  if (watts < 0 || !state.steps || state.steps->per_second <= 0) return -1;
  return watts / state.steps->per_second;
}

double cpu_limit_of(const WatchState& state) {
  const auto usable = static_cast<double>(state.usable_cpus);
  const double quota = state.last.tree.cgroup.quota_cpus;
  return quota > 0 ? std::min(usable, quota) : usable;
}

}  // namespace ridge::attach
