// The entry graphs that train and use a model, over one state of named buffers.
//
// State: every parameter (NAME) and statistic; NAME.m, NAME.v by the optimizer; "halted"; with a
// loss scale that and its counts (loss_scale.h); and where gradients add up over micro-batches,
// NAME.grad, "sum.loss" and "sum.count", with a loss scale also NAME.pending of statistics. An
// output NAME.new updates the buffer NAME.
//
// Data: "x" and "y" (B, of the sample's types), "rng" (i64[3] = {seed, step, first sample of the
// micro-batch within the step}; only where the model drops out), "hyper" (optimizer.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/batch_flow.h"
#include "ridge/graph/program_graphs.h"
#include "ridge/nn/loss_scale.h"
#include "ridge/nn/model.h"
#include "ridge/nn/optimizer.h"

namespace ridge::nn {

/// A graph is built for so many samples, each a row of items cut to the first `length`.
struct BatchSize {
  // Not explicit: most batches are no more than a number of samples.
  BatchSize(int64_t sample_count, int64_t items = 0) : samples(sample_count), length(items) {}
  bool operator==(const BatchSize&) const = default;

  int64_t samples;
  int64_t length;  ///< 0: whole samples.
};

/// The place of a step in a run, as far as the host knows.
struct StepPlace {
  int64_t step = 0;  ///< From 0.
  int64_t total_steps = 1;
  int64_t skipped = 0;        ///< Steps before it that are known to have been skipped.
  int64_t maybe_skipped = 0;  ///< Other steps that may be skipped too: at most kMostUnknownSkips.
};

/// Batch sizes for which a program has entry graphs; an empty list has none.
struct ProgramSizes {
  std::vector<BatchSize> micro = {};   ///< Sizes of a micro-batch; with "apply" where there is one.
  std::vector<BatchSize> step = {};    ///< Sizes of a step, where a step is one micro-batch.
  std::vector<BatchSize> eval = {};    ///< Sizes of an evaluation batch.
  std::vector<BatchSize> logits = {};  ///< Sizes of a batch to predict.
};

/// The name of the entry graph for one of `sizes`: `base` for the first, "BASE.SAMPLES" or
/// "BASE.SAMPLESxLENGTH" for the others.
std::string entry_name(std::string_view base, const std::vector<BatchSize>& sizes, BatchSize size);

/// Which of `sizes` a batch of so many samples goes through: the shortest into which the longest
/// sample, of `longest` items, fits. `longest` 0: only whole samples fit. InternalError where there
/// is none.
size_t fitting_size(const std::vector<BatchSize>& sizes, int64_t samples, int64_t longest);

class Training {
 public:
  /// UserError when options are out of range.
  Training(std::shared_ptr<const Model> model,
           OptimizerOptions optimizer,
           LossScaleOptions loss_scale = {});

  const Model& model() const { return *model_; }
  const OptimizerOptions& optimizer() const { return optimizer_; }
  const LossScaleOptions& loss_scale() const { return loss_scale_; }
  bool has_loss_scale() const { return loss_scale_.initial != 0; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::vector<StatisticSpec>& statistics() const { return statistics_; }
  /// The input "hyper": [kStepScalars], or rows of so many (loss_scale.h).
  TensorType hyper_type() const;
  /// Its value for a step. Allocates nothing.
  void set_hyper(const ScheduleOptions& schedule, const StepPlace& place, Tensor& hyper) const;
  Tensor hyper(const ScheduleOptions& schedule, const StepPlace& place) const;

  /// The dtype of sums, gradients, moments, "hyper" and "halted": f64 for f64, else f32.
  DType accumulate() const;

  /// Adds d(sum of the loss)/d(parameter) to the gradients and the loss to the sums, and updates
  /// the statistics (not once halted, nor when the loss is not finite). No other outputs.
  Graph micro(BatchSize batch, std::string name = "micro") const;
  /// Takes the mean of the gradients, clips, steps and clears. When the loss or the norm is not
  /// finite, or `halted` is not 0, parameters and moments keep their bits and 1 is added to
  /// `halted`, which else becomes 0: it counts the steps that changed nothing. With a loss scale
  /// above 1 a norm that is not finite lowers the scale instead, and statistics keep their bits
  /// too. Outputs, scalars: "loss" (mean), "grad_norm" (before the clip), "count".
  Graph apply() const;
  /// micro and apply in one, without gradients and sums in the state. The outputs of apply.
  Graph step(BatchSize batch, std::string name = "step") const;
  /// Outputs, scalars: the sums "loss", "count" and, but for a regression, "correct". No state is
  /// updated.
  Graph evaluation(BatchSize batch, std::string name = "eval") const;
  /// Output "logits" (B, outputs) or (B, T, vocab), in evaluation mode; "x" is the only data.
  Graph logits(BatchSize batch, std::string name = "logits") const;

  /// Whether micro-batches add up: analyze_batch() over micro.
  BatchReport batch_report(int64_t batch) const;

  /// Parameters and statistics: the state of a program that only evaluates.
  std::vector<StateEntry> model_state() const;
  /// The state of a program that trains, with or without gradient buffers and sums.
  std::vector<StateEntry> state(bool accumulates) const;
  /// The state and the graphs, named by entry_name("micro"), "apply", "step", "eval", "logits".
  ProgramGraphs program(const ProgramSizes& sizes) const;
  /// First value of every entry of state(accumulates), by name.
  std::map<std::string, Tensor> initial_state(bool accumulates, uint64_t seed) const;

 private:
  std::shared_ptr<const Model> model_;
  OptimizerOptions optimizer_;
  LossScaleOptions loss_scale_;
  std::vector<ParameterSpec> parameters_;
  std::vector<StatisticSpec> statistics_;
};

}  // namespace ridge::nn
