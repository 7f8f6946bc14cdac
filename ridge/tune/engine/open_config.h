// A configuration with a recipe over it, and the process that runs it, as a variant of the loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/engine/worker.h"
#include "ridge/tune/target.h"

namespace ridge {

/// Steps whose state is compared where a change must keep the bits.
inline constexpr int64_t kHashSteps = 2;

class OpenConfig final : public TunedVariant {
 public:
  /// Starts the worker and runs kHashSteps steps.
  OpenConfig(ResolvedConfig config, const WorkerOptions& options, int64_t epoch)
      : config_(std::move(config)), options_(options), epoch_(epoch) {
    start();
    state_hash_ = worker_->state_hash();
  }

  Block run(int64_t steps) override { return worker_->run(steps); }
  void rewind() override { worker_->rewind(); }
  void revive() override {
    if (!worker_->is_running()) start();
  }
  void work_until(int64_t until_ns) override {
    options_.deadline_ns = until_ns;
    worker_->work_until(until_ns);
  }
  std::string plan_hash() const override { return facts().plan_hash; }
  double open_seconds() const override { return facts().open_seconds; }

  WorkerProcess& worker() { return *worker_; }
  const WorkerProcess& worker() const { return *worker_; }
  const VariantFacts& facts() const { return worker_->facts(); }
  const TrainConfig& config() const { return config_.loaded.config; }
  const ResolvedConfig& resolved() const { return config_; }
  /// The hash of the state after kHashSteps steps of the epoch.
  const std::string& state_hash() const { return state_hash_; }
  /// EngineVariant::fewest_parts(), with the memory that was free when this was first asked.
  int64_t fewest_parts() {
    if (!fewest_parts_) fewest_parts_ = worker_->fewest_parts();
    return *fewest_parts_;
  }

 private:
  void start() {
    worker_ = std::make_unique<WorkerProcess>(options_, config_.toml, epoch_);
    worker_->run(kHashSteps);
  }

  ResolvedConfig config_;
  WorkerOptions options_;
  int64_t epoch_;
  std::unique_ptr<WorkerProcess> worker_;
  std::string state_hash_;
  std::optional<int64_t> fewest_parts_;
};

inline OpenConfig& as_config(TunedVariant& variant) { return static_cast<OpenConfig&>(variant); }

}  // namespace ridge
