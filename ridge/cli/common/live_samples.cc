#include "ridge/cli/common/live_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

bool is_steady(const std::vector<attach::ProcessFacts>& facts) {
  bool steps = false;
  for (const attach::ProcessFacts& process : facts) {
    if (process.profile == "recording" || process.profile == "writing") return false;
    steps |= process.steps > 1;
  }
  return steps;
}

std::string gpu_text(const GpuSample& gpu, double samples) {
  std::string text = fmt::format("GPU {} ({})", gpu.number, gpu.name);
  if (gpu.kernel_time >= 0)
    text += fmt::format(", a kernel ran {:.0f} % of the time", 100 * gpu.kernel_time / samples);
  if (gpu.memory_bytes >= 0) text += ", " + bytes_text(gpu.memory_bytes) + " of memory";
  if (gpu.watts >= 0) text += fmt::format(", {:.0f} W", gpu.watts / samples);
  for (const std::string& reason : gpu.held_by) text += ", clocks held by " + reason;
  return text;
}

}  // namespace

LiveSamples::LiveSamples(pid_t root) : sampler_(root) {}

void LiveSamples::look(const std::vector<attach::ProcessFacts>& facts) {
  attach::TreeSample sample = sampler_.take();
  const bool steady = is_steady(facts);
  if (!sample.processes.empty()) {
    if (last_ && steady && was_steady_) {
      add(attach::load_between(*last_, sample));
      add_stepping(sample, facts);
      add_gpus();
    }
    quota_cpus_ = sample.cgroup.quota_cpus;
  }
  was_steady_ = steady;
  if (sample.processes.empty())
    last_.reset();
  else
    last_ = std::move(sample);
}

void LiveSamples::add(const attach::TreeLoad& load) {
  seconds_ += load.seconds;
  sum_.cpus += load.cpus * load.seconds;
  sum_.main_cpu += load.main_cpu * load.seconds;
  sum_.main_queue += load.main_queue * load.seconds;
  sum_.queue += load.queue * load.seconds;
  busy_seconds_ += static_cast<double>(load.busy_threads) * load.seconds;
  if (load.throttled >= 0) {
    throttled_seconds_ += load.throttled * load.seconds;
    throttle_known_seconds_ += load.seconds;
  }
  sum_.processes = std::max(sum_.processes, load.processes);
  sum_.threads = std::max(sum_.threads, load.threads);
  sum_.rss_bytes = std::max(sum_.rss_bytes, load.rss_bytes);
}

// The main thread of what was started may wait all the time: for the ranks of torchrun, or for what
// a shell runs.
void LiveSamples::add_stepping(const attach::TreeSample& sample,
                               const std::vector<attach::ProcessFacts>& facts) {
  std::vector<pid_t> ranks;
  int64_t torch_threads = 0;
  for (const attach::ProcessFacts& process : facts) {
    if (process.steps < 2) continue;
    const attach::TreeSample before = only(*last_, process.pid), after = only(sample, process.pid);
    if (before.processes.empty() || after.processes.empty()) continue;
    const attach::TreeLoad load = attach::load_between(before, after);
    Stepping& sum = stepping_[process.pid];
    sum.seconds += load.seconds;
    sum.main_cpu += load.main_cpu * load.seconds;
    sum.main_queue += load.main_queue * load.seconds;
    ranks.push_back(process.pid);
    torch_threads += process.threads;
  }
  if (ranks.empty()) return;
  ranks_ = std::max(ranks_, static_cast<int64_t>(ranks.size()));
  torch_threads_ = std::max(torch_threads_, torch_threads);
  cpus_ = std::max(cpus_, attach::usable_cpus(ranks));
}

// The root where nothing below it makes steps.
LiveSamples::Stepping LiveSamples::busiest() const {
  Stepping most{.seconds = seconds_, .main_cpu = sum_.main_cpu, .main_queue = sum_.main_queue};
  for (const auto& [pid, each] : stepping_)
    if (each.seconds > 0 && each.main_cpu + each.main_queue >= most.main_cpu + most.main_queue)
      most = each;
  return most;
}

void LiveSamples::add_gpus() {
  const std::vector<GpuSample> now = nvml_.sample();
  if (now.empty()) return;
  ++gpu_samples_;
  if (gpus_.size() != now.size()) {
    gpus_ = now;
    gpu_samples_ = 1;
    return;
  }
  for (size_t i = 0; i < now.size(); ++i) {
    gpus_[i].kernel_time += now[i].kernel_time;
    gpus_[i].watts += now[i].watts;
    gpus_[i].memory_bytes = std::max(gpus_[i].memory_bytes, now[i].memory_bytes);
    for (const std::string& reason : now[i].held_by)
      if (std::ranges::find(gpus_[i].held_by, reason) == gpus_[i].held_by.end())
        gpus_[i].held_by.push_back(reason);
  }
}

doctor::LiveFacts LiveSamples::facts_with(const attach::ProcessFacts& process) const {
  doctor::LiveFacts facts;
  const auto own = stepping_.find(process.pid);
  const bool is_seen = own != stepping_.end() && own->second.seconds > 0;
  facts.cpus = cpus_ > 0 ? cpus_ : attach::usable_cpus();
  facts.quota_cpus = quota_cpus_;
  facts.step_source = process.step_source;
  facts.short_products = short_product_speed();
  if (process.threads > 0) facts.torch_threads = std::max(process.threads, torch_threads_);
  facts.ranks = std::max<int64_t>(1, ranks_);
  // The first of several loaders is the one that trains: those of evaluation are made later.
  if (!process.loaders.empty()) {
    if (process.loaders[0].batch > 0) facts.batch = process.loaders[0].batch;
    facts.loader_workers = process.loaders[0].workers;
  }
  const attach::BatchFacts& batches = process.batches;
  if (batches.workers_class)
    facts.batches = {.workers_class = batches.workers_class,
                     .reason = batches.reason,
                     .make_ms = 1e3 * batches.seconds,
                     .bytes = batches.bytes};
  if (!(seconds_ > 0)) return facts;
  facts.seconds = seconds_;
  if (is_seen) {
    facts.main_cpu = own->second.main_cpu / own->second.seconds;
    facts.main_queue = own->second.main_queue / own->second.seconds;
  }
  facts.queue = sum_.queue / seconds_;
  facts.busy_threads = busy_seconds_ / seconds_;
  facts.used_cpus = sum_.cpus / seconds_;
  if (throttle_known_seconds_ > 0) facts.throttled = throttled_seconds_ / throttle_known_seconds_;
  return facts;
}

std::vector<std::string> LiveSamples::lines() const {
  std::vector<std::string> lines;
  if (seconds_ > 0) {
    const Stepping main = busiest();
    lines.push_back(fmt::format(
        "seen from outside for {:.0f} s: {:.2f} of {} CPUs used, {} processes with {} threads, {} "
        "of memory; the main thread ran {:.0f} % of the time and waited for a CPU {:.0f} %",
        seconds_,
        sum_.cpus / seconds_,
        cpus_ > 0 ? cpus_ : attach::usable_cpus(),
        sum_.processes,
        sum_.threads,
        bytes_text(sum_.rss_bytes),
        100 * main.main_cpu / main.seconds,
        100 * main.main_queue / main.seconds));
    if (throttle_known_seconds_ > 0 && throttled_seconds_ > 0.01 * throttle_known_seconds_)
      lines.push_back(fmt::format("its cgroup ({:.2f} CPUs) held it back {:.0f} % of the time",
                                  quota_cpus_,
                                  100 * throttled_seconds_ / throttle_known_seconds_));
  }
  for (const GpuSample& gpu : gpus_)
    lines.push_back(gpu_text(gpu, static_cast<double>(std::max<int64_t>(1, gpu_samples_))));
  std::string missing = nvml_.problem();
  for (const std::string& what : sampler_.missing())
    missing += (missing.empty() ? "" : ", ") + what;
  if (!missing.empty()) lines.push_back("not seen: " + missing);
  return lines;
}

}  // namespace ridge
