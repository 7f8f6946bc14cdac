// What the guard compares: a training program as a function (state, batch, step) -> state. The
// state is read and set by name, so nothing inside a program needs to be instrumented.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/graph/program_graphs.h"
#include "ridge/run/evaluate.h"
#include "ridge/train/training_run.h"

namespace ridge {

/// What the operands of products are rounded to: a dtype, or TF32, which is f32 with 11 bits.
struct Rounding {
  DType dtype = DType::kF32;
  bool tf32 = false;

  bool is_f32() const { return dtype == DType::kF32 && !tf32; }
};

class Variant {
 public:
  Variant() = default;
  virtual ~Variant() = default;
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  /// Every buffer of the state, gradient buffers included.
  virtual const std::vector<StateEntry>& entries() const = 0;
  /// UserError when there is no such buffer; write also when `value` has another shape or dtype.
  virtual Tensor read(const std::string& name) const = 0;
  virtual void write(const std::string& name, const Tensor& value) = 0;
  /// Runs step number `step` (from 0) on `batch` and returns the mean loss, which need not be
  /// finite. A loss scale settles: a step that only lowers it is run again.
  virtual double step(const data::Batch& batch, int64_t step) = 0;
  /// The same once, with a loss scale that no gradient survives. False without a loss scale.
  virtual bool overflow(const data::Batch&, int64_t) { return false; }
  /// Of all that a checkpoint keeps.
  virtual std::string hash() const = 0;
  /// The coarsest that anything is rounded to.
  virtual Rounding precision() const { return {}; }
};

/// What a checkpoint keeps, by name.
using StateSnapshot = NamedTensors;

StateSnapshot snapshot_of(const Variant& variant);
/// Sets what `snapshot` names, converted to the variant's dtypes, and all else to zero but for the
/// scalars that steer steps (a loss scale), which stay. Names that the variant lacks are left out.
void restore(Variant& variant, const StateSnapshot& snapshot);

/// The elements of `from` in `dtype`.
Tensor converted(const Tensor& from, DType dtype);
/// f32 whose elements are rounded.
Tensor rounded(const Tensor& from, Rounding to);

/// How a TrainingVariant is made, beyond its configuration.
struct TrainingVariantOptions {
  int64_t total_steps = 1000;  ///< Of the whole run: what the schedule goes by.
  /// In place of program_options(config); the configuration's precision is then not looked at.
  std::optional<ProgramOptions> program = std::nullopt;
  std::vector<std::string> pins = {};  ///< Prefixes of sites that keep their dtype.
  ChooseCandidate choose = nullptr;    ///< As in PlanOptions.
  /// Rewrites the graphs before they are compiled.
  std::function<void(ProgramGraphs&)> edit = nullptr;
};

/// A TrainingRun as a variant. It starts from config.train.seed.
class TrainingVariant : public Variant {
 public:
  /// UserError as of open_task, make_backend and TrainingRun.
  explicit TrainingVariant(TrainConfig config, const TrainingVariantOptions& options = {});

  const std::vector<StateEntry>& entries() const override { return entries_; }
  Tensor read(const std::string& name) const override;
  void write(const std::string& name, const Tensor& value) override;
  double step(const data::Batch& batch, int64_t step) override;
  bool overflow(const data::Batch& batch, int64_t step) override;
  std::string hash() const override { return run_->state_hash(); }
  Rounding precision() const override;

  /// Modules, such as "blocks.0.attn", whose contractions are computed in less than f32.
  std::vector<std::string> low_modules() const;

  TrainingRun& run() { return *run_; }
  const TrainingRun& run() const { return *run_; }

 private:
  TrainConfig config_;
  int64_t total_steps_;
  Rounding precision_;  ///< Of what is not pinned.
  std::vector<std::string> pins_;
  Task task_;  ///< Without its data.
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TrainingRun> run_;
  std::vector<StateEntry> entries_;
};

/// The configuration of the oracle of `config`: the same formula in f64, and no memory limit.
TrainConfig oracle_config(TrainConfig config);

}  // namespace ridge
