#include "ridge/train/task.h"

#include <algorithm>

#include "ridge/data/batch_planner.h"
#include "ridge/data/lengths.h"
#include "ridge/infer/open_model.h"
#include "ridge/nn/loss.h"

namespace ridge {
namespace {

static_assert(data::kPadLabel == nn::kIgnoreLabel);

void add_size(std::vector<nn::BatchSize>& sizes, nn::BatchSize size) {
  if (size.samples > 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end())
    sizes.push_back(size);
}

// Whole, and cut to each length: for what comes up at every step.
void add_sizes(std::vector<nn::BatchSize>& sizes,
               int64_t samples,
               const std::vector<int64_t>& lengths) {
  add_size(sizes, samples);
  for (int64_t length : lengths) add_size(sizes, {samples, length});
}

DType precision_of(const TrainConfig& config) {
  if (config.train.precision == Precision::kFp16) return DType::kF16;
  return config.train.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
}

// The range of bf16 is that of f32: nothing overflows sooner.
nn::LossScaleOptions loss_scale_of(const TrainConfig& config) {
  if (precision_of(config) != DType::kF16) return {};
  return {.initial = static_cast<double>(config.train.loss_scale)};
}

bool has_eval_data(const data::DataOptions& options) {
  return !options.eval_path.empty() || options.eval_fraction > 0;
}

// A batch comes in some lengths where samples are padded to the longest of it.
std::vector<int64_t> lengths_of(const TrainConfig& config,
                                const data::Dataset& dataset,
                                int64_t batch) {
  return config.loader.pad == data::Padding::kLongest ? data::batch_lengths(dataset, batch)
                                                      : std::vector<int64_t>{};
}

std::vector<nn::BatchSize> eval_sizes(const TrainConfig& config, const data::Dataset& eval_data) {
  std::vector<nn::BatchSize> sizes;
  const int64_t batch = eval_batch(config, eval_data);
  add_sizes(sizes, batch, lengths_of(config, eval_data, batch));
  add_size(sizes, eval_data.size() % batch);
  return sizes;
}

std::unique_ptr<nn::Training> open_training(const TrainConfig& config,
                                            const data::Dataset& dataset) {
  auto training =
      std::make_unique<nn::Training>(open_model(config, dataset.fields(), dataset.classes()),
                                     config.optimizer,
                                     loss_scale_of(config));
  if (config.train.loss_chunks > 1 && training->model().sample().regression())
    throw UserError(
        fmt::format("train.loss_chunks is {}, but the targets are numbers: a squared error has no "
                    "logits to compute in parts",
                    config.train.loss_chunks),
        "take train.loss_chunks out");
  return training;
}

}  // namespace

KernelRange kernels_of(const TrainConfig& config) {
  const KernelsChoice wish = config.train.kernels;
  const bool is_fastest =
      wish == KernelsChoice::kFastest || (wish == KernelsChoice::kAuto && config.train.is_on_gpu());
  return is_fastest ? KernelRange::kAnyBits : KernelRange::kSameBits;
}

ChooseCandidate untimed_choices(const TrainConfig& config) {
  return [range = kernels_of(config)](const Node&, const std::vector<Choice>& choices) {
    return untimed_choice(choices, range);
  };
}

ProgramOptions program_options(const TrainConfig& config, const Task& task) {
  ProgramOptions options;
  options.plan.choose = task.choose ? task.choose : untimed_choices(config);
  options.memory_limit = config.train.memory_limit << 20;
  options.passes.loss_chunks = config.train.loss_chunks;
  options.passes.precision = precision_of(config);
  options.passes.tf32 = config.train.precision == Precision::kTf32;
  options.passes.pins = pins_of(config.train.f32_modules);
  // A product and its loop in one kernel round once less than the two of the CPU.
  if (kernels_of(config) == KernelRange::kSameBits) options.passes.off = {"fuse_products"};
  options.capture = config.train.capture;
  return options;
}

data::BatchPlan batch_plan(const TrainConfig& config) {
  return {.batch = config.train.batch,
          .shuffle = config.train.shuffle,
          .seed = config.train.seed,
          .drop_last = config.train.drop_last,
          .repeat = true,
          .buckets = config.loader.buckets || config.loader.tokens > 0,
          .tokens = config.loader.tokens};
}

std::vector<std::string> pins_of(const std::vector<std::string>& modules) {
  std::vector<std::string> pins;
  for (const std::string& module : modules) {
    pins.push_back(module + ":");
    pins.push_back(module + ".");
  }
  return pins;
}

nn::ProgramSizes program_sizes(const TrainConfig& config, const Task& task) {
  const RunOptions& run = config.train;
  const int64_t samples = task.train_data->size();
  if (run.batch > samples)
    throw UserError(fmt::format("train.batch is {}, but the data have only {} sample{} to train on",
                                run.batch,
                                samples,
                                samples == 1 ? "" : "s"),
                    fmt::format("set train.batch to {} or less", samples));
  nn::ProgramSizes sizes;
  auto& steps = run.micro > 1 ? sizes.micro : sizes.step;
  const data::BatchPlanner planner(*task.train_data, batch_plan(config));
  if (const data::LengthClasses* buckets = planner.classes(); buckets != nullptr) {
    for (const data::LengthClasses::Class& c : buckets->classes())
      for (int64_t i = 0; c.batches > 0 && i < run.micro; ++i)
        add_size(steps,
                 {micro_batch_size(c.batch, run.micro, i),
                  c.length == buckets->classes().back().length ? 0 : c.length});
  } else {
    const std::vector<int64_t> of_steps = lengths_of(config, *task.train_data, run.batch);
    for (int64_t i = 0; i < run.micro; ++i)
      add_sizes(steps, micro_batch_size(run.batch, run.micro, i), of_steps);
  }
  for (int64_t i = 0; i < run.micro; ++i)
    add_size(steps, micro_batch_size(planner.rest(), run.micro, i));
  if (task.eval_data != nullptr) sizes.eval = eval_sizes(config, *task.eval_data);
  return sizes;
}

int64_t micro_batch_size(int64_t count, int64_t micro, int64_t index) {
  return count / micro + (index < count % micro ? 1 : 0);
}

int64_t eval_batch(const TrainConfig& config, const data::Dataset& eval_data) {
  const int64_t wanted = config.train.eval_batch > 0
                             ? config.train.eval_batch
                             : micro_batch_size(config.train.batch, config.train.micro, 0);
  return std::min(wanted, eval_data.size());
}

Task open_task(const TrainConfig& config, const data::DataDescription* trained) {
  Task task;
  task.train_data = data::open_dataset(config.data, data::Split::kTrain, trained);
  if (has_eval_data(config.data))
    task.eval_data =
        data::open_dataset(config.data, data::Split::kEval, &task.train_data->description());
  task.training = open_training(config, *task.train_data);
  task.sizes = program_sizes(config, task);
  return task;
}

void check_has_eval_data(const TrainConfig& config) {
  if (!has_eval_data(config.data))
    throw UserError("the configuration keeps no samples to evaluate on",
                    "set data.eval_path or data.eval_fraction");
}

Task open_eval_task(const TrainConfig& config, const data::DataDescription* trained) {
  check_has_eval_data(config);
  Task task;
  task.eval_data = data::open_dataset(config.data, data::Split::kEval, trained);
  task.training = open_training(config, *task.eval_data);
  task.sizes.eval = eval_sizes(config, *task.eval_data);
  return task;
}

}  // namespace ridge
