// A third-party program whose blocks are weighed: the joules and the processor time that they take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/base/clock.h"
#include "ridge/proof/trial.h"

namespace ridge {

/// The counters that are read around a block.
struct UsageCounters {
  /// Joules of the machine since the last call; nothing where they cannot be read.
  std::function<std::optional<double>()> joules;
  std::function<int64_t()> now = now_ns;
  /// The program with all that descends from it; without processes where it is gone.
  std::function<attach::TreeSample()> sample;
};

class UsageRunner final : public Runner {
 public:
  /// `runner` must outlive it.
  UsageRunner(Runner& runner, UsageCounters counters)
      : runner_(runner), counters_(std::move(counters)) {}

  /// A block within which the program was started anew is not weighed: the start is in it.
  Block run(int64_t steps) override;
  void warm(int64_t steps) override { runner_.warm(steps); }
  void rewind() override { runner_.rewind(); }

  /// Joules of a step of the blocks so far; nothing where none could be weighed.
  std::optional<double> joules_per_step() const;
  /// Share of the time of `cpus` processors, 0 to 1, in which the program used none while a block
  /// of it ran; nothing where no block was seen.
  std::optional<double> idle_share(double cpus) const;

 private:
  Runner& runner_;
  UsageCounters counters_;
  double joules_ = 0, cpu_seconds_ = 0, seconds_ = 0;
  int64_t weighed_steps_ = 0;
};

}  // namespace ridge
