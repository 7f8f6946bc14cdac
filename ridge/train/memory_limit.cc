#include "ridge/train/memory_limit.h"

#include <algorithm>

#include "ridge/graph/batch_flow.h"
#include "ridge/run/program.h"

namespace ridge {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

double in_mib(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

int64_t planned_bytes(TrainConfig config, const Task& task, Backend& backend, int64_t micro) {
  config.train.micro = micro;
  return compile_program(task.training->program(program_sizes(config, task)),
                         backend,
                         program_options(config, task))
      .plan.total_bytes();
}

void check_separable(const TrainConfig& config, const Task& task, int64_t needed) {
  const int64_t batch = config.train.batch;
  const BatchReport report = analyze_batch(*task.training->micro_source(), {{"B", batch}}, "B");
  if (report.separable) return;
  throw UserError(
      fmt::format(
          "train.memory_limit is {} MiB, the plan needs {:.1f} MiB, and micro-batches would "
          "change what is computed: {}",
          config.train.memory_limit,
          in_mib(needed),
          report.reason),
      "set a smaller train.batch");
}

}  // namespace

std::string apply_memory_limit(TrainConfig& config, Task& task, Backend& backend) {
  if (config.train.memory_limit == 0) return {};
  const int64_t limit = config.train.memory_limit * kMiB, asked = config.train.micro;
  const int64_t needed = planned_bytes(config, task, backend, asked);
  if (needed <= limit) return {};
  check_separable(config, task, needed);
  // Doubling finds one that fits, halving the fewest: more micro-batches never need more memory
  // once there are two (one has no gradient buffers in the state).
  int64_t low = asked, high = asked, bytes = needed;
  while (bytes > limit && high < config.train.batch) {
    low = high;
    high = std::min(2 * high, config.train.batch);
    bytes = planned_bytes(config, task, backend, high);
  }
  if (bytes > limit)
    throw UserError(
        fmt::format("train.memory_limit is {} MiB, but micro-batches of one sample need {:.1f} MiB",
                    config.train.memory_limit,
                    in_mib(bytes)),
        fmt::format("set it to {} or more, or make the model smaller", (bytes + kMiB - 1) / kMiB));
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t middle_bytes = planned_bytes(config, task, backend, middle);
    if (middle_bytes <= limit) {
      high = middle;
      bytes = middle_bytes;
    } else {
      low = middle;
    }
  }
  config.train.micro = high;
  task.sizes = program_sizes(config, task);
  return fmt::format("memory limit {} MiB: {} micro-batches of {} samples a step need {:.1f} MiB",
                     config.train.memory_limit,
                     high,
                     part_size(config.train.batch, high, 0),
                     in_mib(bytes));
}

}  // namespace ridge
