// A configuration, opened: data, model, training graphs and the sizes they come in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridge/config/config.h"
#include "ridge/data/loader.h"
#include "ridge/nn/training.h"
#include "ridge/run/program.h"
#include "ridge/run/tuner.h"

namespace ridge {

struct Task {
  std::unique_ptr<data::Dataset> train_data;
  std::unique_ptr<data::Dataset> eval_data;  ///< Null where the configuration keeps none apart.
  std::unique_ptr<nn::Training> training;
  nn::ProgramSizes sizes;
  ChooseCandidate choose = nullptr;  ///< Picks kernels, as in PlanOptions; null: untimed_choices().
};

/// UserError when the data cannot be read, the model does not fit them, or a batch is larger than
/// the data. With `trained` the data are read as those that it describes (data::open_dataset).
Task open_task(const TrainConfig& config, const data::DataDescription* trained = nullptr);

/// UserError where the configuration keeps no samples to evaluate on.
void check_has_eval_data(const TrainConfig& config);

/// The part of it that evaluation takes: neither the training data nor sizes of steps. UserError
/// also where the configuration keeps no samples to evaluate on.
Task open_eval_task(const TrainConfig& config, const data::DataDescription* trained);

/// The pins (prefixes of sites) of modules: a module's own nodes and those of modules inside it.
std::vector<std::string> pins_of(const std::vector<std::string>& modules);

/// How the samples to train on become batches, epoch after epoch.
data::BatchPlan batch_plan(const TrainConfig& config);

/// Every size that a micro-batch, a step of one, or an evaluation batch can have; with loader.pad
/// "longest" also cut to some lengths, but for the last batches of an epoch. UserError when a batch
/// is larger than the data.
nn::ProgramSizes program_sizes(const TrainConfig& config, const Task& task);

/// The range of kernels from which time picks: for Task::choose. "auto" is "fastest" on a GPU,
/// where the CPU's bits cost the libraries and the tensor cores, and "same_bits" elsewhere.
KernelRange kernels_of(const TrainConfig& config);

/// untimed_choice() in that range: picks kernels where nothing is timed.
ChooseCandidate untimed_choices(const TrainConfig& config);

/// The passes and the plan that the configuration asks for. Without Task::choose nothing is timed.
ProgramOptions program_options(const TrainConfig& config, const Task& task);

/// Samples of micro-batch number `index` where `count` samples are cut into at most `micro`
/// micro-batches that differ by at most one; 0 from the first that would be empty on.
int64_t micro_batch_size(int64_t count, int64_t micro, int64_t index);

/// Samples at a time in evaluation.
int64_t eval_batch(const TrainConfig& config, const data::Dataset& eval_data);

}  // namespace ridge
