// A variant whose steps are weighed: what they take of the machine's energy.
#pragma once

#include <cstdint>
#include <optional>

#include "ridge/base/machine/energy.h"
#include "ridge/proof/trial.h"

namespace ridge {

class MeteredRunner final : public Runner {
 public:
  /// Both must outlive it; runners that take turns may share a meter.
  MeteredRunner(Runner& runner, EnergyMeter& meter) : runner_(runner), meter_(meter) {}

  Block run(int64_t steps) override {
    meter_.take();  // what others took meanwhile
    const Block block = runner_.run(steps);
    if (const std::optional<double> joules = meter_.take()) {
      joules_ += *joules;
      steps_ += steps;
    }
    return block;
  }

  void warm(int64_t steps) override { runner_.warm(steps); }
  void rewind() override { runner_.rewind(); }

  /// Joules of a step of the blocks so far; nothing where none could be weighed.
  std::optional<double> joules_per_step() const {
    if (!(joules_ > 0)) return std::nullopt;  // counters of virtual machines stand still
    return joules_ / static_cast<double>(steps_);
  }

 private:
  Runner& runner_;
  EnergyMeter& meter_;
  double joules_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ridge
