// The times of the parts of a step (engine_variant.h): what a step of the best configuration so far
// costs, and what a change would make of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "ridge/tune/engine/offers.h"

namespace ridge {

class PartMeter {
 public:
  /// Opens the configuration as it is with so many micro-batches.
  using OpenParts = std::function<std::unique_ptr<OpenConfig>(int64_t micro)>;

  explicit PartMeter(int cpus) : cpus_(cpus) { costs_.noise = 0.02; }

  const StepCosts& costs() const { return costs_; }

  /// The configuration as it is: the parts of a step with their ceilings; the noise of the machine,
  /// by a second variant of it; and what each micro-batch costs whatever its size, where there is
  /// time for that. All of it is reported.
  void measure_baseline(const LoopView& loop, OpenConfig& best);
  void measure_noise(const LoopView& loop, OpenConfig& best, OpenConfig& twin, uint64_t seed);
  void measure_launches(const LoopView& loop, OpenConfig& best, const OpenParts& open);

  /// Measures all parts of a step of the best so far. Only a change that makes loading shorter
  /// leaves what is known of micro-batches.
  void measure_best(OpenConfig& best, bool loads);
  /// Measures the part of a step that the offer is about, beside that of the best.
  void measure(Offer& offer, OpenConfig& best, OpenConfig& candidate);

  /// The most that the offer could gain, and what it would gain by what was measured of it.
  double ceiling_of(const Offer& offer) const;
  SpeedRange predict(const Offer& offer) const;

  /// Steps that a block has at least: those that suit all variants met so far.
  int64_t least_steps(int64_t mix) const;
  /// Seconds of a block of steps of the best so far, or of the baseline.
  double block_seconds(int64_t mix, bool of_baseline) const;

 private:
  void note_block_steps(const StepCosts& costs, const VariantFacts& facts);

  int cpus_;
  StepCosts costs_;
  std::optional<BatchCosts> batch_;
  double baseline_seconds_ = 0;
  int64_t micro_ = 1, block_steps_ = 1;
};

}  // namespace ridge
