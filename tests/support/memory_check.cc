#include "tests/support/memory_check.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/run/backends.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/training_run.h"

namespace ridge::test {
namespace {

constexpr int64_t kSlack = int64_t{8} << 20;

void limit_data(int64_t planned) {
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = static_cast<rlim_t>(data_bytes() + planned + planned / 50 + kSlack);
  check(setrlimit(RLIMIT_DATA, &limit) == 0, "cannot limit memory: {}", std::strerror(errno));
}

}  // namespace

MemoryCheck check_memory(const TrainConfig& given, int64_t steps) {
  TrainConfig config = given;
  // Threads and their stacks are there before memory is measured.
  parallel_for(num_threads(), 1, [](int64_t, int64_t) {});
  const auto backend = make_backend(config.train.device);
  Task task = open_task(config);
  const int64_t start = now_ns();
  std::string text = apply_memory_limit(config, task, *backend);
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  data::Loader loader(*task.train_data, batch_plan(config), config.loader);
  loader.next();
  MemoryCheck result{
      .micro = config.train.micro, .limit_text = std::move(text), .limit_seconds = seconds};
  const auto in_use = [&] {
    return backend->is_host() ? resident_anonymous_bytes() : backend->memory_in_use();
  };
  int64_t before = 0;
  ProgramOptions options = program_options(config, task);
  options.before_memory = [&](const Plan& plan) {
    result.planned_bytes = plan.total_bytes();
    result.lower_bound_bytes = plan.lower_bound_bytes();
    result.state_bytes = plan.state_bytes;
    release_free_memory();
    before = in_use();
    if (backend->is_host()) limit_data(plan.total_bytes());
  };
  TrainingRun run(task, config, *backend, options);
  for (int64_t step = 0; step < steps; ++step) run.train_step(loader.next(), step, steps + 1);
  release_free_memory();
  result.measured_bytes = in_use() - before;
  result.captured_bytes = run.program().recorded_bytes();
  return result;
}

}  // namespace ridge::test
