// One variant of a training configuration, ready to be timed: what `ridge train` does in a step,
// its report included, and the same with one part taken out or alone, which says what that part
// costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/base/named_enum.h"
#include "ridge/proof/report/step_timeline.h"
#include "ridge/proof/trial.h"

namespace ridge {

/// What a stretch of steps does.
enum class StepKind : uint8_t {
  kTrain,     ///< All: the next batch from the loader, a step on it, and its report.
  kKept,      ///< Steps on a few real batches that lie in memory, in turn: no loader.
  kLoad,      ///< The loader alone.
  kNoKernel,  ///< Kept batches and no kernel: what a step costs the host.
  kQueue,     ///< Kept batches, each step waited for: the time counts in which the host queues it.
  kReport,    ///< No step, only its report: its result is read, lines are written.
};
constexpr std::string_view names_of(StepKind) { return "train|kept|load|no_kernel|queue|report"; }

struct VariantFacts {
  std::string plan_hash;
  int64_t planned_bytes = 0;  ///< State, arena and what the loader stages.
  int64_t staging_bytes = 0;  ///< Of them, what the loader stages.
  int64_t state_bytes = 0;    ///< Of them, what lives from step to step.
  int64_t batch = 0;          ///< Samples a step.
  int64_t micro = 1;          ///< Parts a step, after a memory limit.
  int64_t queue = 0;          ///< Batches that the loader holds ready.
  int64_t steps_per_epoch = 0;
  int64_t epoch_samples = 0;  ///< That the steps of an epoch take together.
  /// Steps that are a fair mix where batches differ in length, and kept batches once round.
  int64_t mix = 1;
  /// Steps that a block has to have where the batches of a mix differ much.
  int64_t fair_steps = 1;
  /// Times the samples a step, where batches had room for batch * context tokens.
  double token_growth = 1;
  std::string memory_text;  ///< What a limit of memory made of the plan; empty: nothing.
  int64_t recomputed = 0;   ///< Results that are recomputed within a step.
  /// Of the device, once it is open; nothing where it computes in the host's memory.
  std::optional<int64_t> free_device_bytes;
  double open_seconds = 0;  ///< To open, plan, and fill a cache of samples where there is one.

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("plan_hash", self.plan_hash);
    visit("planned_bytes", self.planned_bytes);
    visit("staging_bytes", self.staging_bytes);
    visit("state_bytes", self.state_bytes);
    visit("batch", self.batch);
    visit("micro", self.micro);
    visit("queue", self.queue);
    visit("steps_per_epoch", self.steps_per_epoch);
    visit("epoch_samples", self.epoch_samples);
    visit("memory_text", self.memory_text);
    visit("recomputed", self.recomputed);
    visit("mix", self.mix);
    visit("fair_steps", self.fair_steps);
    visit("token_growth", self.token_growth);
    visit.known("free_device_bytes", self.free_device_bytes);
    visit("open_seconds", self.open_seconds);
  }
};

/// Mean over an epoch, whose last batch may be smaller.
double samples_per_step(const VariantFacts& facts);
/// Samples a step of `after` over those a step of `before`.
double work_ratio(const VariantFacts& before, const VariantFacts& after);

class EngineVariant final : public Runner {
 public:
  /// `config_toml` as to_toml() writes it; the settings in it become those of the process. What a
  /// run would write to train.out goes to files without a name. Samples come from the beginning of
  /// epoch `epoch`. UserError as train().
  EngineVariant(std::string_view config_toml, int64_t epoch);
  ~EngineVariant() override;

  const VariantFacts& facts() const;
  /// UserError when a loss is not finite, except without kernels.
  Block run(int64_t steps) override { return run(steps, StepKind::kTrain); }
  Block run(int64_t steps, StepKind kind);
  /// Where batches differ in length: back to the first of the epoch.
  void rewind() override;
  /// Traces `steps` steps in a row and returns the one of median length. Nothing is traced else.
  StepTimeline timeline(int64_t steps);
  /// Of the state after the steps so far.
  std::string state_hash() const;
  /// RssAnon now, less what it was before the plan's memory was taken. On a device with memory of
  /// its own what that has in use more than then, after the first steps: later others open.
  int64_t measured_bytes() const;
  /// The fewest parts of a step that the device has room for beside all that is open now, with
  /// nothing recomputed; 0: none, or it has no memory of its own.
  int64_t fewest_parts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ridge
