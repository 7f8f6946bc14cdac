#include "ridge/train/device_memory.h"

#include <algorithm>
#include <optional>
#include <string>

#include "ridge/base/error.h"
#include "ridge/run/backends.h"
#include "ridge/train/memory_limit.h"

namespace ridge {
namespace {

// A fiftieth stays free, but no less than this.
constexpr int64_t kLeastRest = int64_t{1} << 20;

double in_mib(int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; }

std::string fix_for(const TrainConfig& config,
                    const Task& task,
                    Backend& backend,
                    int64_t free_bytes) {
  if (const auto micro = fewest_micro_batches(config, task, backend, free_bytes))
    return fmt::format("train.micro = {} fits", *micro);
  if (limit_can_be_kept(config, task, backend, free_bytes))
    return fmt::format("train.memory_limit = {} fits: what it does for that costs time",
                       free_bytes >> 20);
  return can_use_micro_batches(config, task)
             ? "not even micro-batches of one sample fit: make the model "
               "smaller"
             : "set a smaller train.batch";
}

}  // namespace

int64_t memory_for_plan(int64_t free_bytes) {
  return std::max<int64_t>(0, free_bytes - std::max(free_bytes / 50, kLeastRest));
}

void check_device_memory(const TrainConfig& config,
                         const Task& task,
                         Backend& backend,
                         const Plan& plan) {
  const std::optional<int64_t> free = free_device_memory(config.train.device);
  if (!free || plan.total_bytes() <= *free) return;
  throw UserError(
      fmt::format("out of device memory: the plan needs {:.1f} MiB, {:.1f} of them for the state, "
                  "and {:.1f} MiB of '{}' are free beside {:.1f} MiB that this and other programs "
                  "hold",
                  in_mib(plan.total_bytes()),
                  in_mib(plan.state_bytes),
                  in_mib(*free),
                  config.train.device,
                  in_mib(backend.memory_in_use())),
      fix_for(config, task, backend, memory_for_plan(*free)));
}

}  // namespace ridge
