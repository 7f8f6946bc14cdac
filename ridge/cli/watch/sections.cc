#include "ridge/cli/watch/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ridge/base/html/markup.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

using attach::LoaderFacts;
using attach::TreeLoad;
using attach::WatchedSteps;
using attach::WatchState;

std::string percent(double share) {
  return share > 0 && share < 0.0095 ? fmt::format("{:.1f} %", 100 * share)
                                     : fmt::format("{:.0f} %", 100 * share);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.0995 ? 1 : 0);
  return seconds < 60 ? fmt::format("{:.2f} s", seconds) : duration_text(seconds);
}

std::string rate_text(double per_second) {
  if (per_second >= 1000) return scaled(per_second);
  return fmt::format("{:.{}f}", per_second, per_second < 9.995 ? 2 : per_second < 99.95 ? 1 : 0);
}

std::string money(double amount) {
  return amount < 0.995 && amount > 0 ? fmt::format("{:.3g}", amount)
                                      : fmt::format("{:.2f}", amount);
}

std::string bytes_of(double bytes) { return bytes_text(static_cast<int64_t>(bytes)); }

// "3.2 of 8.0 GiB"
std::string part_of(int64_t bytes, int64_t whole) {
  std::string part = bytes_text(bytes), all = bytes_text(whole);
  const size_t unit = part.find(' '), unit_of_all = all.find(' ');
  if (part.substr(unit) == all.substr(unit_of_all)) part.resize(unit);
  return part + " of " + all;
}

// While steps are stuck the rate of before says nothing.
bool is_stuck(const WatchedSteps& steps) {
  return steps.since_last > std::max(10.0, 5 * steps.seconds);
}

WatchSection steps_section(const WatchState& state) {
  WatchSection section{.label = "steps", .rank = 1};
  if (!state.steps) {
    section.fields.push_back({state.why_no_steps, Tone::kDim});
    return section;
  }
  const WatchedSteps& steps = *state.steps;
  std::vector<WatchField>& fields = section.fields;
  if (is_stuck(steps))
    fields.push_back({"no step for " + duration_text(steps.since_last), Tone::kWarning});
  else if (steps.per_second > 0)
    fields.push_back({rate_text(steps.per_second) + " steps/s", Tone::kStrong});
  if (steps.seconds > 0) fields.push_back({time_text(steps.seconds) + " a step"});
  fields.push_back({grouped(steps.count) + (steps.count == 1 ? " step" : " steps")});
  if (steps.processes > 1)
    fields.push_back({fmt::format("in each of {} processes", steps.processes)});
  if (!steps.source.empty()) fields.push_back({"counted by " + steps.source, Tone::kDim});
  section.chart = &state.step_history;
  return section;
}

std::string loader_text(const LoaderFacts& loader) {
  std::string text = loader.batch > 0 ? fmt::format("batch {}, ", loader.batch) : "";
  if (loader.workers == 0) return text + "loaded by the training thread";
  text += fmt::format("{} worker{}", loader.workers, loader.workers == 1 ? "" : "s");
  if (loader.prefetch > 0) text += fmt::format(", {} ahead each", loader.prefetch);
  return text;
}

WatchSection loader_section(const WatchState& state) {
  constexpr double kMuch = 0.1;
  WatchSection section{.label = "loader", .rank = 4};
  if (!state.steps || state.steps->loaders.empty()) {
    section.fields.push_back(
        {!state.steps ? "not known without steps" : "not known (no DataLoader of torch is in use)",
         Tone::kDim});
    return section;
  }
  const WatchedSteps& steps = *state.steps;
  if (steps.loader_share >= 0)
    section.fields.push_back({percent(steps.loader_share) + " of the time waits for data",
                              steps.loader_share > kMuch ? Tone::kWarning : Tone::kStrong});
  if (steps.loader_share_ever >= 0)
    section.fields.push_back({percent(steps.loader_share_ever) + " since the first step"});
  section.fields.push_back({loader_text(steps.loaders.front())});
  return section;
}

// Names the process if it is not the root: a number tells ranks apart.
std::string main_thread_text(const WatchState& state) {
  return state.main_pid == state.pid ? "main thread"
                                     : fmt::format("main thread of {}", state.main_pid);
}

WatchSection cpu_section(const WatchState& state) {
  WatchSection section{.label = "CPU", .rank = 3};
  if (!state.load) {
    section.fields.push_back({"being measured", Tone::kDim});
    return section;
  }
  const TreeLoad& load = *state.load;
  const double limit = attach::cpu_limit_of(state);
  std::vector<WatchField>& fields = section.fields;
  fields.push_back({limit > 0 ? fmt::format("{:.2f} of {:g} CPUs", load.cpus, limit)
                              : fmt::format("{:.2f} CPUs", load.cpus),
                    Tone::kStrong});
  fields.push_back({fmt::format("{:.1f} threads wait for one", load.queue),
                    load.queue >= 1 ? Tone::kWarning : Tone::kPlain});
  fields.push_back({fmt::format("{} runs {}, waits for a CPU {}",
                                main_thread_text(state),
                                percent(load.main_cpu),
                                percent(load.main_queue))});
  fields.push_back({fmt::format("{} of {} threads busy", load.busy_threads, load.threads)});
  fields.push_back({fmt::format("{} process{}", load.processes, load.processes == 1 ? "" : "es")});
  if (load.throttled >= 0 && state.last.tree.cgroup.quota_cpus > 0)
    fields.push_back({fmt::format("held by its quota {}", percent(load.throttled)),
                      load.throttled > 0.01 ? Tone::kWarning : Tone::kPlain});
  section.chart = &state.cpu_history;
  section.whole = limit;
  return section;
}

WatchSection memory_section(const WatchState& state) {
  const attach::CgroupSample& cgroup = state.last.tree.cgroup;
  WatchSection section{.label = "memory", .rank = 5};
  int64_t rss = 0;
  for (const attach::ProcessSample& process : state.last.tree.processes) rss += process.rss_bytes;
  section.fields.push_back({bytes_text(rss) + " resident", Tone::kStrong});
  section.fields.push_back({bytes_text(state.peak_rss_bytes) + " at most"});
  if (cgroup.memory_bytes >= 0 && cgroup.memory_limit_bytes > 0)
    section.fields.push_back({"cgroup " + part_of(cgroup.memory_bytes, cgroup.memory_limit_bytes),
                              static_cast<double>(cgroup.memory_bytes) >
                                      0.9 * static_cast<double>(cgroup.memory_limit_bytes)
                                  ? Tone::kWarning
                                  : Tone::kPlain});
  else if (cgroup.memory_bytes >= 0)
    section.fields.push_back({"cgroup " + bytes_text(cgroup.memory_bytes) + ", no limit"});
  return section;
}

WatchSection disk_section(const WatchState& state) {
  WatchSection section{.label = "disk", .rank = 8};
  const TreeLoad load = state.load.value_or(TreeLoad());
  if (!state.load || (load.read_bytes < 0 && load.written_bytes < 0)) {
    section.fields.push_back({state.load ? "not known" : "being measured", Tone::kDim});
    return section;
  }
  if (load.read_bytes >= 0)
    section.fields.push_back({bytes_of(load.read_bytes) + "/s read", Tone::kStrong});
  if (load.written_bytes >= 0)
    section.fields.push_back({bytes_of(load.written_bytes) + "/s written", Tone::kStrong});
  if (load.disk_wait > 0)
    section.fields.push_back(
        {main_thread_text(state) + " waits for it " + percent(load.disk_wait), Tone::kWarning});
  return section;
}

WatchSection gpu_section(const WatchState& state, const GpuSample& gpu, bool is_short) {
  WatchSection section{.label = fmt::format("GPU {}", gpu.number), .rank = 2};
  std::vector<WatchField>& fields = section.fields;
  if (gpu.kernel_time >= 0)
    fields.push_back(
        {percent(gpu.kernel_time) + (is_short ? " busy" : " of the time a kernel runs"),
         Tone::kStrong});
  if (gpu.memory_bytes >= 0 && gpu.memory_total_bytes > 0)
    fields.push_back({part_of(gpu.memory_bytes, gpu.memory_total_bytes)});
  if (gpu.watts >= 0)
    fields.push_back({!is_short && gpu.watts_limit > 0
                          ? fmt::format("{:.0f} of {:.0f} W", gpu.watts, gpu.watts_limit)
                          : fmt::format("{:.0f} W", gpu.watts)});
  if (gpu.sm_mhz >= 0)
    fields.push_back({!is_short && gpu.most_sm_mhz > 0
                          ? fmt::format("{:.0f} of {:.0f} MHz", gpu.sm_mhz, gpu.most_sm_mhz)
                          : fmt::format("{:.0f} MHz", gpu.sm_mhz)});
  if (gpu.celsius >= 0) fields.push_back({fmt::format("{:.0f} C", gpu.celsius)});
  if (!gpu.held_by.empty())
    fields.push_back({fmt::format("held by {}", fmt::join(gpu.held_by, ", ")), Tone::kWarning});
  if (!is_short && !gpu.name.empty()) fields.push_back({gpu.name, Tone::kDim});
  if (fields.empty()) fields.push_back({"tells nothing", Tone::kDim});
  if (state.last.gpus.size() == 1) section.chart = &state.gpu_history;
  section.whole = 1;
  return section;
}

WatchSection power_section(const WatchState& state) {
  WatchSection section{.label = "power", .rank = 6};
  const double gpu = attach::gpu_watts_of(state);
  const double whole = attach::watts_of(state), joules = attach::joules_per_step(state);
  if (whole < 0) {
    section.fields.push_back({"not known", Tone::kDim});
    return section;
  }
  section.fields.push_back({fmt::format("{:.0f} W", whole), Tone::kStrong});
  if (gpu >= 0) section.fields.push_back({fmt::format("GPU {:.0f} W", gpu)});
  if (state.cpu_watts >= 0)
    section.fields.push_back({fmt::format("CPU {:.0f} W", state.cpu_watts)});
  if (joules >= 0) section.fields.push_back({fmt::format("{} J a step", scaled(joules))});
  return section;
}

WatchSection cost_section(const WatchState& state) {
  WatchSection section{.label = "cost", .rank = 7};
  if (state.price_per_hour < 0) {
    section.fields.push_back({"not known (--price-per-hour X)", Tone::kDim});
    return section;
  }
  section.fields.push_back({money(state.price_per_hour) + " an hour", Tone::kStrong});
  section.fields.push_back({money(attach::cost_so_far(state)) + " so far"});
  if (const double cost = attach::cost_per_thousand_steps(state); cost >= 0)
    section.fields.push_back({money(cost) + " for 1,000 steps"});
  return section;
}

WatchSection missing_section(const WatchState& state) {
  WatchSection section{.label = "not known", .rank = 9};
  for (const std::string& what : state.last.missing) section.fields.push_back({what, Tone::kDim});
  return section;
}

}  // namespace

std::vector<WatchSection> watch_sections(const WatchState& state) {
  constexpr size_t kMostInFull = 2;
  const std::vector<GpuSample>& gpus = state.last.gpus;
  std::vector<WatchSection> sections = {
      steps_section(state), loader_section(state), cpu_section(state)};
  for (const GpuSample& gpu : gpus)
    sections.push_back(gpu_section(state, gpu, gpus.size() > kMostInFull));
  sections.push_back(memory_section(state));
  sections.push_back(disk_section(state));
  sections.push_back(power_section(state));
  sections.push_back(cost_section(state));
  if (!state.last.missing.empty()) sections.push_back(missing_section(state));
  return sections;
}

std::string watch_line(const WatchState& state) {
  std::vector<std::string> parts;
  if (state.steps) {
    const WatchedSteps& steps = *state.steps;
    parts.push_back(grouped(steps.count) + (steps.count == 1 ? " step" : " steps"));
    if (is_stuck(steps))
      parts.push_back("none for " + duration_text(steps.since_last));
    else if (steps.per_second > 0)
      parts.push_back(rate_text(steps.per_second) + " steps/s");
    if (steps.loader_share >= 0) parts.push_back(percent(steps.loader_share) + " waits for data");
  } else {
    parts.push_back("steps: " + state.why_no_steps);
  }
  if (state.load)
    parts.push_back(
        fmt::format("{:.2f} of {:g} CPUs", state.load->cpus, attach::cpu_limit_of(state)));
  for (const GpuSample& gpu : state.last.gpus)
    if (gpu.kernel_time >= 0)
      parts.push_back(fmt::format("GPU {} {}", gpu.number, percent(gpu.kernel_time)));
  if (!state.processes.empty()) parts.push_back(memory_section(state).fields.front().text);
  if (const double watts = attach::watts_of(state); watts >= 0)
    parts.push_back(fmt::format("{:.0f} W", watts));
  if (const double cost = attach::cost_so_far(state); cost >= 0)
    parts.push_back(money(cost) + " so far");
  return plain_line(fmt::format("{}, {}", duration_text(state.elapsed), fmt::join(parts, ", ")));
}

std::string watch_summary(const WatchState& state) {
  std::vector<std::string> parts;
  if (state.steps) {
    const WatchedSteps& steps = *state.steps;
    parts.push_back(grouped(steps.count) + (steps.count == 1 ? " step" : " steps"));
    if (steps.seconds > 0) parts.push_back(time_text(steps.seconds) + " a step");
    if (steps.loader_share_ever >= 0)
      parts.push_back(percent(steps.loader_share_ever) + " waited for data");
  } else {
    parts.push_back("steps: " + state.why_no_steps);
  }
  if (state.elapsed > 0)
    parts.push_back(fmt::format("{:.2f} CPUs in the mean", state.cpu_seconds / state.elapsed));
  parts.push_back(bytes_text(state.peak_rss_bytes) + " at most");
  if (const double cost = attach::cost_so_far(state); cost >= 0)
    parts.push_back("cost " + money(cost));
  return plain_line(fmt::format("{} {} after {}: {}",
                                state.program,
                                state.is_over ? "ended" : "was left running",
                                duration_text(state.elapsed),
                                fmt::join(parts, ", ")));
}

}  // namespace ridge
