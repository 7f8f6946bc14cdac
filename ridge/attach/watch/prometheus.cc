#include "ridge/attach/watch/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "ridge/base/html/markup.h"

namespace ridge::attach {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

enum class Type { kCounter, kGauge };

// Within quotes: a backslash, a quote and a line's end are the three that the format escapes. What
// else controls a terminal is of no use to those who look at such a text with curl.
std::string label_text(std::string_view value) {
  std::string text;
  for (char c : plain_line(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

// One metric: its help and type, then a line for each value that is known. All lines of one metric
// stand together, and a metric without a line does not appear.
class Metric {
 public:
  Metric(std::string& text, std::string_view name, Type type, std::string_view help)
      : text_(text), name_(name), type_(type), help_(help) {}

  void put(double value, const Labels& labels = {}) {
    if (!(value >= 0) || std::isinf(value)) return;
    if (!is_open_)
      text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n",
                           name_,
                           help_,
                           type_ == Type::kCounter ? "counter" : "gauge");
    is_open_ = true;
    text_ += name_;
    for (size_t i = 0; i < labels.size(); ++i)
      text_ += fmt::format(
          "{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, label_text(labels[i].second));
    if (!labels.empty()) text_ += '}';
    text_ += fmt::format(" {}\n", value);
  }

 private:
  std::string& text_;
  std::string_view name_;
  Type type_;
  std::string_view help_;
  bool is_open_ = false;
};

// Not known stays not known, whatever unit it would have.
double times(double value, double factor) { return value < 0 ? -1 : value * factor; }

Labels labels_of(const GpuSample& gpu) {
  return {{"gpu", fmt::format("{}", gpu.number)},
          {"UUID", gpu.uuid},
          {"device", fmt::format("nvidia{}", gpu.number)},
          {"modelName", gpu.name}};
}

double free_bytes(const GpuSample& gpu) {
  if (gpu.memory_bytes < 0 || gpu.memory_total_bytes < gpu.memory_bytes) return -1;
  return static_cast<double>(gpu.memory_total_bytes - gpu.memory_bytes);
}

struct GpuMetric {
  std::string_view name;
  Type type;
  std::string_view help;
  double (*value)(const GpuSample&);
};

constexpr double kMebibyte = 1 << 20;

constexpr GpuMetric kGpuMetrics[] = {
    {"DCGM_FI_DEV_SM_CLOCK",
     Type::kGauge,
     "Clock of the multiprocessors in MHz.",
     [](const GpuSample& gpu) { return gpu.sm_mhz; }},
    {"DCGM_FI_DEV_GPU_TEMP",
     Type::kGauge,
     "Temperature of the device in degrees Celsius.",
     [](const GpuSample& gpu) { return gpu.celsius; }},
    {"DCGM_FI_DEV_POWER_USAGE",
     Type::kGauge,
     "Power that the device draws in W.",
     [](const GpuSample& gpu) { return gpu.watts; }},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
     Type::kCounter,
     "Energy since the driver was loaded in mJ.",
     [](const GpuSample& gpu) { return times(gpu.joules, 1000); }},
    {"DCGM_FI_DEV_GPU_UTIL",
     Type::kGauge,
     "Time in which any kernel ran in percent.",
     [](const GpuSample& gpu) { return times(gpu.kernel_time, 100); }},
    {"DCGM_FI_DEV_MEM_COPY_UTIL",
     Type::kGauge,
     "Time in which device memory was read or written in percent.",
     [](const GpuSample& gpu) { return times(gpu.memory_time, 100); }},
    {"DCGM_FI_DEV_FB_USED",
     Type::kGauge,
     "Device memory in use in MiB.",
     [](const GpuSample& gpu) {
       return times(static_cast<double>(gpu.memory_bytes), 1 / kMebibyte);
     }},
    {"DCGM_FI_DEV_FB_FREE",
     Type::kGauge,
     "Device memory that is free in MiB.",
     [](const GpuSample& gpu) { return times(free_bytes(gpu), 1 / kMebibyte); }},
};

void put_gpus(std::string& text, const std::vector<GpuSample>& gpus) {
  for (const GpuMetric& row : kGpuMetrics) {
    Metric metric(text, row.name, row.type, row.help);
    for (const GpuSample& gpu : gpus) metric.put(row.value(gpu), labels_of(gpu));
  }
  Metric held(text,
              "ridge_gpu_clocks_held",
              Type::kGauge,
              "1 for each reason for which clocks of a device are below their most.");
  for (const GpuSample& gpu : gpus)
    for (const std::string& reason : gpu.held_by) {
      Labels labels = labels_of(gpu);
      labels.emplace_back("reason", reason);
      held.put(1, labels);
    }
}

void put_process(std::string& text, const WatchState& state) {
  const bool is_known = state.load.has_value() && !state.is_over;
  const TreeLoad load = state.load.value_or(TreeLoad());
  const auto started = static_cast<double>(state.last.started_wall_ns) * 1e-9;
  Metric(text,
         "process_cpu_seconds_total",
         Type::kCounter,
         "Processor time of the watched process and all below it in seconds.")
      .put(state.cpu_seconds);
  Metric(text,
         "process_resident_memory_bytes",
         Type::kGauge,
         "Resident memory of the watched process and all below it in bytes.")
      .put(is_known ? static_cast<double>(load.rss_bytes) : -1);
  Metric(text,
         "process_start_time_seconds",
         Type::kGauge,
         "When the watched process began, in seconds since 1970.")
      .put(started > 0 ? started : -1);
  Metric(text, "process_threads", Type::kGauge, "Threads of the watched process and all below it.")
      .put(is_known ? static_cast<double>(load.threads) : -1);
}

void put_steps(std::string& text, const WatchState& state) {
  const WatchedSteps steps = state.steps.value_or(WatchedSteps());
  Metric(text, "ridge_steps_total", Type::kCounter, "Training steps that have ended.")
      .put(state.steps ? static_cast<double>(steps.count) : -1);
  Metric(text, "ridge_step_seconds", Type::kGauge, "Median time of the last steps in seconds.")
      .put(steps.seconds);
  Metric(text,
         "ridge_loader_wait_seconds_total",
         Type::kCounter,
         "Time for which the training thread waited for data in seconds.")
      .put(steps.loader_seconds);
}

void put_cpu(std::string& text, const WatchState& state) {
  const bool is_known = state.load.has_value() && !state.is_over;
  const TreeLoad load = state.load.value_or(TreeLoad());
  const CgroupSample& cgroup = state.last.tree.cgroup;
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    Metric(text, name, Type::kGauge, help).put(value);
  };
  gauge("ridge_processes",
        "Processes of the watched program.",
        is_known ? static_cast<double>(load.processes) : -1);
  gauge("ridge_cpu_limit_cpus",
        "Processors' worth of time that the program may use.",
        state.usable_cpus > 0 ? cpu_limit_of(state) : -1);
  gauge(
      "ridge_cpu_queue_share",
      "Share of the time in which the main thread of what makes steps had to wait for a processor.",
      is_known ? load.main_queue : -1);
  gauge("ridge_cpu_queued_threads",
        "Threads that were ready but had no processor, in the mean.",
        is_known ? load.queue : -1);
  gauge("ridge_cpu_throttled_share",
        "Share of the time in which the cgroup was held back.",
        is_known ? load.throttled : -1);
  gauge("ridge_cgroup_memory_bytes",
        "Memory that the cgroup of the program uses in bytes.",
        static_cast<double>(cgroup.memory_bytes));
  gauge("ridge_cgroup_memory_limit_bytes",
        "Memory that the cgroup of the program may use in bytes.",
        static_cast<double>(cgroup.memory_limit_bytes));
}

void put_rest(std::string& text, const WatchState& state) {
  const auto counter = [&](std::string_view name, std::string_view help, double value) {
    Metric(text, name, Type::kCounter, help).put(value);
  };
  counter("ridge_disk_read_bytes_total", "What the program read from storage.", state.read_bytes);
  counter(
      "ridge_disk_written_bytes_total", "What the program wrote to storage.", state.written_bytes);
  counter("ridge_cpu_energy_joules_total",
          "Energy of all processor packages of the machine while it is watched.",
          state.cpu_joules);
  counter("ridge_cost_total",
          "What the program has cost by now, in the money of the price given.",
          cost_so_far(state));
  Metric(text, "ridge_watch_info", Type::kGauge, "1, with the watched program's name.")
      .put(1, {{"program", state.program}, {"pid", fmt::format("{}", state.pid)}});
}

}  // namespace

std::string prometheus_text(const WatchState& state) {
  std::string text;
  put_steps(text, state);
  put_process(text, state);
  put_cpu(text, state);
  put_gpus(text, state.last.gpus);
  put_rest(text, state);
  return text;
}

}  // namespace ridge::attach
