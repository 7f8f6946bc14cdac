#include "ridge/nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ridge/base/error.h"

namespace ridge::nn {

void check_options(const ScheduleOptions& options) {
  check(options.warmup >= 0, "schedule: warmup must be at least 0 steps; got {}", options.warmup);
  check(options.final_ratio >= 0.0 && options.final_ratio <= 1.0,
        "schedule: final_ratio out of range; got {}, expected 0 to 1",
        options.final_ratio);
}

double schedule_factor(const ScheduleOptions& options, int64_t step, int64_t total_steps) {
  if (step < options.warmup)
    return static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  if (options.kind == ScheduleKind::kConstant) return 1.0;
  const int64_t span = total_steps - 1 - options.warmup;
  if (span <= 0) return step >= total_steps ? options.final_ratio : 1.0;
  const double progress =
      std::min(1.0, static_cast<double>(step - options.warmup) / static_cast<double>(span));
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return options.final_ratio + (1.0 - options.final_ratio) * cosine;
}

}  // namespace ridge::nn
