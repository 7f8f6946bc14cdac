// A program with its state on a device: one training step, one evaluation, saving and restoring.
#pragma once

#include <memory>
#include <string>

#include "ridge/data/loader.h"
#include "ridge/infer/weights.h"
#include "ridge/io/checkpoint.h"
#include "ridge/run/program.h"
#include "ridge/train/batch_input.h"
#include "ridge/train/task.h"

namespace ridge {

/// Results of a step or of an evaluation.
struct StepResult {
  double loss = 0;       ///< Mean over what counts.
  double grad_norm = 0;  ///< Before clipping.
  double correct = 0;    ///< Correct results of an evaluation; NaN for a step and for a regression.
  double count = 0;      ///< Samples or tokens that count.
  bool skipped = false;  ///< The gradient overflowed f16: nothing changed but the loss scale.
  /// Whether a run can go on: after a skipped step it can, though its grad_norm is not finite.
  bool is_finite() const;
};

class TrainingRun {
 public:
  /// Compiles, plans and takes the memory; parameters start from config.train.seed. The task and
  /// the backend must outlive it.
  TrainingRun(const Task& task,
              const TrainConfig& config,
              Backend& backend,
              const ProgramOptions& options);
  /// Uses `graphs` in place of task.training's: of the same state and entries, rewritten.
  TrainingRun(const Task& task,
              const TrainConfig& config,
              Backend& backend,
              const ProgramOptions& options,
              ProgramGraphs graphs);

  Program& program() { return *program_; }
  const Program& program() const { return *program_; }

  /// Step number `step` (from 0) of `total_steps` on `batch`, in config.train.micro micro-batches.
  /// Allocates nothing. When the result is not finite, no parameter has changed. Without kernels
  /// nothing is computed, and the result says nothing. UserError, with the step, for wrong data.
  StepResult train_step(const data::Batch& batch,
                        int64_t step,
                        int64_t total_steps,
                        RunMode mode = RunMode::kNormal);
  /// Runs a step without waiting for the result, which last_result() reads. On a device that runs
  /// beside the host, `batch` stays as it is until the next step has returned, or a call that waits
  /// has (batch_memory() has a loader keep it), and wrong data are reported by the call that waits.
  void run_step(const data::Batch& batch,
                int64_t step,
                int64_t total_steps,
                RunMode mode = RunMode::kNormal);
  StepResult last_result();
  /// Returns when all steps so far have run.
  void synchronize() const;
  /// Steps that changed no parameter because one of them, the first, was not finite; 0: all is
  /// well. Once it is above 0 every further step adds to it.
  int64_t halted_steps();
  /// train_step as if it had come when the loss scale had settled: a skipped step is taken again,
  /// and does not count as skipped.
  StepResult settled_step(const data::Batch& batch, int64_t step, int64_t total_steps);
  /// The loss scale after the last step; 0: there is none. And all steps that were skipped.
  double loss_scale() const { return state_scalar(loss_scale_); }
  int64_t skipped_steps() const { return static_cast<int64_t>(state_scalar(skipped_)); }
  /// Adds the sums over `batch` to `sums`: loss, correct and count are sums here.
  void evaluate(const data::Batch& batch, StepResult& sums);
  /// "layer.1:log.0 (nan at ...)": the first node whose result is not finite in the last step.
  std::string first_not_finite(const data::Batch& batch, int64_t step);

  /// Views of what a checkpoint keeps, or of parameters and statistics alone. The memory is the
  /// state's own; on a device that the host cannot read it is a copy, until the next call.
  std::vector<TensorView> tensors(bool with_optimizer) const;
  /// UserError when a buffer is missing or of another type; the state is then unchanged.
  void restore(const OpenCheckpoint& checkpoint);
  /// Parameters and statistics of a model, which may hold more. UserError as above.
  void load_parameters(const OpenWeights& weights);
  /// Hash of all that a checkpoint keeps, names and types included; 16 hexadecimal digits.
  std::string state_hash() const;

 private:
  /// An entry that sees data, and where they go. With one micro-batch a step it also updates.
  struct Entry {
    size_t id = 0;
    BatchInput x, y;
    DataSlot rng;
  };
  /// Slots of the scalars that go into an entry and come out of it; one that it lacks has no
  /// address.
  struct Scalars {
    DataSlot hyper, loss, grad_norm, count, correct;
  };
  std::vector<Entry> make_entries(std::string_view base,
                                  const std::vector<nn::BatchSize>& sizes) const;
  Scalars scalars_of(size_t entry) const;
  /// The entry for `samples` of the samples of `batch`.
  const Entry& train_entry(const data::Batch& batch, int64_t samples) const;
  void set_hyper(int64_t step, int64_t total_steps);
  void write_data(const Entry& entry, const data::Batch& batch, int64_t first, int64_t step);
  StepResult read_scalars(const Scalars& scalars);
  double state_scalar(const PlanSlot* slot) const;
  double cell(size_t number) const;
  std::vector<const PlanSlot*> slots_of(bool with_optimizer) const;

  const Task& task_;
  const TrainConfig& config_;
  Backend& backend_;
  bool accumulates_;
  HostMemory cells_;  ///< Takes the scalars that are read.
  State state_;
  std::unique_ptr<Program> program_;
  std::vector<Entry> train_entries_, eval_entries_;
  std::vector<Scalars> scalars_;  ///< By the program's entries.
  size_t apply_ = 0;              ///< The entry, where there is one.
  size_t last_ = 0;               ///< The entry whose scalars are the last step's.
  Tensor hyper_, rng_;            ///< On their way to the device.
  const PlanSlot* halted_ = nullptr;
  const PlanSlot *loss_scale_ = nullptr, *skipped_ = nullptr;  ///< Null without a loss scale.
  /// Skipped steps, but for the last `maybe_skipped_` steps: of those it is not known.
  int64_t known_skipped_ = 0;
  mutable int64_t maybe_skipped_ = nn::kMostUnknownSkips;
  int64_t last_step_ = -1;
  mutable int64_t waiting_from_ = -1;  ///< The first step that nobody waited for; -1: none.
  /// Copies for tensors(), if the state is not in host memory.
  mutable std::vector<Tensor> snapshot_;
};

}  // namespace ridge
