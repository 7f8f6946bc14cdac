// The times of the parts of a step (engine_variant.h): what a step of the best configuration so far
// costs, and what a change would make of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "ridge/tune/engine/open_config.h"
#include "ridge/tune/prediction.h"

namespace ridge {

class PartMeter {
 public:
  /// Opens the configuration as it is with so many micro-batches.
  using OpenParts = std::function<std::unique_ptr<OpenConfig>(int64_t micro)>;

  explicit PartMeter(int cpus) : cpus_(cpus) { costs_.noise = 0.02; }

  /// The costs of a step of the best so far, and of its micro-batches where that was measured.
  const StepCosts& costs() const { return costs_; }
  const std::optional<BatchCosts>& batch() const { return batch_; }

  /// Measures all parts of a step of the best so far. Only a change that makes loading shorter
  /// leaves what is known of micro-batches.
  void measure_best(OpenConfig& best, bool loads);
  /// Measures and reports, of the configuration as it is, the noise of the machine, by a second
  /// variant of it; and what each micro-batch costs whatever its size, where there is time for
  /// that.
  void measure_noise(const LoopView& loop, OpenConfig& best, OpenConfig& twin, uint64_t seed);
  void measure_launches(const LoopView& loop, OpenConfig& best, const OpenParts& open);
  /// Measures loading, or the rest of a step, of the candidate beside that of the best.
  StepChange measure(OpenConfig& best, OpenConfig& candidate, bool loads);

  /// Steps that a block has at least: those that suit all variants met so far.
  int64_t least_steps(int64_t mix) const;

 private:
  void note_block_steps(const StepCosts& costs, const VariantFacts& facts);

  int cpus_;
  StepCosts costs_;
  std::optional<BatchCosts> batch_;
  int64_t block_steps_ = 1;
};

/// Seconds in which the host queues a step for a device; nothing where there is none.
std::optional<double> queue_seconds(OpenConfig& variant);

}  // namespace ridge
