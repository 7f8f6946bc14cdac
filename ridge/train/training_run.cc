#include "ridge/train/training_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ridge/io/checksum.h"

namespace ridge {

bool StepResult::is_finite() const {
  return std::isfinite(loss) && (skipped || std::isfinite(grad_norm));
}

namespace {

DataSlot input_or_none(const Program& program, size_t entry, std::string_view name) {
  const bool is_there = find_slot(program.plan().entries[entry].inputs, name) != nullptr;
  return is_there ? program.input(entry, name) : DataSlot{};
}

DataSlot output_or_none(const Program& program, size_t entry, std::string_view name) {
  const bool is_there = find_slot(program.plan().entries[entry].outputs, name) != nullptr;
  return is_there ? program.output(entry, name) : DataSlot{};
}

// Scalars that are read at once, each in a cell of its own.
constexpr size_t kCells = 4, kCellBytes = 64;

}  // namespace

TrainingRun::TrainingRun(const Task& task,
                         const TrainConfig& config,
                         Backend& backend,
                         const ProgramOptions& options)
    : TrainingRun(task, config, backend, options, task.training->program(task.sizes)) {}

TrainingRun::TrainingRun(const Task& task,
                         const TrainConfig& config,
                         Backend& backend,
                         const ProgramOptions& options,
                         ProgramGraphs graphs)
    : task_(task),
      config_(config),
      backend_(backend),
      accumulates_(!task.sizes.micro.empty()),
      cells_(backend, kCells * kCellBytes),
      state_(backend),
      hyper_(task.training->hyper_type()),
      rng_({DType::kI64, {3}}) {
  program_ = std::make_unique<Program>(std::move(graphs), state_, options);
  state_.initialize(config_.train.seed);
  train_entries_ = accumulates_ ? make_entries("micro", task.sizes.micro)
                                : make_entries("step", task.sizes.step);
  eval_entries_ = make_entries("eval", task.sizes.eval);
  if (accumulates_) apply_ = program_->entry("apply");
  for (size_t i = 0; i < program_->entries().size(); ++i) scalars_.push_back(scalars_of(i));
  halted_ = find_slot(program_->plan().state, "halted");
  check_internal(halted_ != nullptr, "a program to train without 'halted'");
  loss_scale_ = find_slot(program_->plan().state, nn::kLossScale);
  skipped_ = find_slot(program_->plan().state, nn::kSkippedSteps);
}

std::vector<TrainingRun::Entry> TrainingRun::make_entries(
    std::string_view base, const std::vector<nn::BatchSize>& sizes) const {
  const nn::SampleTypes& sample = task_.training->model().sample();
  std::vector<Entry> entries;
  for (const nn::BatchSize& size : sizes) {
    const size_t id = program_->entry(nn::entry_name(base, sizes, size));
    entries.push_back({.id = id,
                       .x = {program_->input(id, "x"), size.samples, sample.x},
                       .y = {program_->input(id, "y"), size.samples, sample.y},
                       .rng = input_or_none(*program_, id, "rng")});
  }
  return entries;
}

TrainingRun::Scalars TrainingRun::scalars_of(size_t entry) const {
  return {.hyper = input_or_none(*program_, entry, "hyper"),
          .loss = output_or_none(*program_, entry, "loss"),
          .grad_norm = output_or_none(*program_, entry, "grad_norm"),
          .count = output_or_none(*program_, entry, "count"),
          .correct = output_or_none(*program_, entry, "correct")};
}

const TrainingRun::Entry& TrainingRun::train_entry(const data::Batch& batch,
                                                   int64_t samples) const {
  const auto& sizes = accumulates_ ? task_.sizes.micro : task_.sizes.step;
  return train_entries_[nn::fitting_size(sizes, samples, batch.longest)];
}

void TrainingRun::write_data(const Entry& entry,
                             const data::Batch& batch,
                             int64_t first,
                             int64_t step) {
  entry.x.write(*program_, batch.fields[0], first);
  entry.y.write(*program_, batch.fields[1], first);
  if (entry.rng.address == nullptr) return;
  const auto rng = rng_.span<int64_t>();
  rng[0] = static_cast<int64_t>(config_.train.seed);
  rng[1] = step;
  rng[2] = first;
  program_->write_scalars(entry.rng, rng_.data());
}

// The step with wrong data is known only if each step is waited for.
void TrainingRun::synchronize() const {
  try {
    program_->synchronize();
  } catch (const UserError& error) {
    const int64_t first = std::exchange(waiting_from_, -1);
    if (first < 0) throw;
    throw UserError(
        first == last_step_
            ? fmt::format("{}, in step {}", error.message(), first + 1)
            : fmt::format(
                  "{}, in one of the steps {} to {}", error.message(), first + 1, last_step_ + 1),
        error.fix());
  }
  waiting_from_ = -1;
  maybe_skipped_ = nn::kMostUnknownSkips;
}

double TrainingRun::cell(size_t number) const {
  const std::byte* const at = cells_.get() + number * kCellBytes;
  return task_.training->accumulate() == DType::kF64
             ? *reinterpret_cast<const double*>(at)
             : static_cast<double>(*reinterpret_cast<const float*>(at));
}

double TrainingRun::state_scalar(const PlanSlot* slot) const {
  if (slot == nullptr) return 0;
  program_->read(*slot, cells_.get());
  synchronize();
  return cell(0);
}

// All on their way before the one wait.
StepResult TrainingRun::read_scalars(const Scalars& scalars) {
  const DataSlot slots[kCells] = {scalars.loss, scalars.grad_norm, scalars.correct, scalars.count};
  for (size_t i = 0; i < kCells; ++i)
    if (slots[i].address != nullptr) program_->read(slots[i], cells_.get() + i * kCellBytes);
  synchronize();
  const auto value = [&](size_t i) { return slots[i].address == nullptr ? NAN : cell(i); };
  return {.loss = value(0), .grad_norm = value(1), .correct = value(2), .count = value(3)};
}

StepResult TrainingRun::train_step(const data::Batch& batch,
                                   int64_t step,
                                   int64_t total_steps,
                                   RunMode mode) {
  run_step(batch, step, total_steps, mode);
  return last_result();
}

StepResult TrainingRun::last_result() {
  StepResult result = read_scalars(scalars_[last_]);
  // If nothing changed, halted_steps() tells a step that ends a run from a skipped one.
  result.skipped = skipped_ != nullptr && std::isfinite(result.loss) &&
                   !std::isfinite(result.grad_norm) && halted_steps() == 0;
  return result;
}

// With a loss scale Adam needs the number of steps that were skipped. A device reports it late, or
// the host would have to wait for each step; once it has waited for whatever reason, it asks.
void TrainingRun::set_hyper(int64_t step, int64_t total_steps) {
  if (skipped_ != nullptr &&
      (!backend_.is_asynchronous() || maybe_skipped_ >= nn::kMostUnknownSkips)) {
    known_skipped_ = skipped_steps();
    maybe_skipped_ = 0;
  }
  task_.training->set_hyper(config_.schedule,
                            {.step = step,
                             .total_steps = total_steps,
                             .skipped = known_skipped_,
                             // This step counts too: first_not_finite() runs it again, when it may
                             // have been skipped.
                             .maybe_skipped = std::min(maybe_skipped_ + 1, nn::kMostUnknownSkips)},
                            hyper_);
  ++maybe_skipped_;
}

int64_t TrainingRun::halted_steps() { return static_cast<int64_t>(state_scalar(halted_)); }

void TrainingRun::run_step(const data::Batch& batch,
                           int64_t step,
                           int64_t total_steps,
                           RunMode mode) {
  set_hyper(step, total_steps);
  last_step_ = step;
  if (waiting_from_ < 0) waiting_from_ = step;
  last_ = apply_;
  int64_t first = 0;
  for (int64_t i = 0; first < batch.count; ++i) {
    const int64_t samples = micro_batch_size(batch.count, config_.train.micro, i);
    const Entry& entry = train_entry(batch, samples);
    write_data(entry, batch, first, step);
    if (accumulates_)
      program_->run(entry.id, mode);
    else
      last_ = entry.id;
    first += samples;
  }
  program_->write_scalars(scalars_[last_].hyper, hyper_.data());
  program_->run(last_, mode);
}

StepResult TrainingRun::settled_step(const data::Batch& batch, int64_t step, int64_t total_steps) {
  State& state = program_->state();
  const Tensor skipped = skipped_ == nullptr ? Tensor() : state.read(nn::kSkippedSteps);
  for (;;) {
    const StepResult result = train_step(batch, step, total_steps);
    if (!result.skipped) return result;
    state.write(nn::kSkippedSteps, skipped);
  }
}

void TrainingRun::evaluate(const data::Batch& batch, StepResult& sums) {
  const Entry& entry =
      eval_entries_[nn::fitting_size(task_.sizes.eval, batch.count, batch.longest)];
  write_data(entry, batch, 0, 0);
  program_->run(entry.id);
  const StepResult result = read_scalars(scalars_[entry.id]);
  sums.loss += result.loss;
  sums.correct += result.correct;
  sums.count += result.count;
}

std::string TrainingRun::first_not_finite(const data::Batch& batch, int64_t step) {
  int64_t first = 0;
  for (int64_t i = 0; first < batch.count; ++i) {
    const int64_t samples = micro_batch_size(batch.count, config_.train.micro, i);
    const Entry& entry = train_entry(batch, samples);
    write_data(entry, batch, first, step);
    if (const DataSlot hyper = scalars_[entry.id].hyper; hyper.address != nullptr)
      program_->write_scalars(hyper, hyper_.data());
    std::string site = program_->first_not_finite(entry.id);
    if (!site.empty()) return site;
    first += samples;
  }
  if (!accumulates_) return {};
  program_->write_scalars(scalars_[apply_].hyper, hyper_.data());
  return program_->first_not_finite(apply_);
}

std::vector<const PlanSlot*> TrainingRun::slots_of(bool with_optimizer) const {
  std::vector<const PlanSlot*> slots;
  const Plan& plan = program_->plan();
  for (size_t i = 0; i < plan.state.size(); ++i) {
    const StateRole role = plan.roles[i];
    const bool is_model = role == StateRole::kParameter || role == StateRole::kStatistic;
    if (with_optimizer ? is_saved(role) : is_model) slots.push_back(&plan.state[i]);
  }
  return slots;
}

std::vector<TensorView> TrainingRun::tensors(bool with_optimizer) const {
  std::vector<TensorView> views;
  const State& state = program_->state();
  snapshot_.clear();
  const auto slots = slots_of(with_optimizer);
  snapshot_.reserve(slots.size());
  for (const PlanSlot* slot : slots) {
    if (!backend_.is_host()) snapshot_.push_back(state.read(slot->name));
    views.push_back({slot->name,
                     slot->type,
                     backend_.is_host() ? state.data(slot->name) : snapshot_.back().data()});
  }
  return views;
}

void TrainingRun::restore(const OpenCheckpoint& checkpoint) {
  const auto slots = slots_of(true);
  // All is compared before anything is written.
  for (const auto& entry : checkpoint.tensors()) {
    const bool is_known = std::any_of(
        slots.begin(), slots.end(), [&](const PlanSlot* slot) { return slot->name == entry.name; });
    if (!is_known)
      throw UserError(fmt::format("checkpoint '{}' has a tensor '{}' that this model has not",
                                  checkpoint.path().string(),
                                  entry.name),
                      "train with the configuration that wrote it, or with --resume no");
  }
  std::vector<Tensor> read;
  for (const PlanSlot* slot : slots) {
    Tensor tensor = checkpoint.read(slot->name);
    if (tensor.type() != slot->type)
      throw UserError(fmt::format("'{}' has another type in checkpoint '{}'; got {}, expected {}",
                                  slot->name,
                                  checkpoint.path().string(),
                                  to_string(tensor.type()),
                                  to_string(slot->type)),
                      "train with the configuration that wrote it, or with --resume no");
    read.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < slots.size(); ++i) program_->state().write(slots[i]->name, read[i]);
}

void TrainingRun::load_parameters(const OpenWeights& weights) {
  const auto slots = slots_of(false);
  std::vector<std::string> needed;
  for (const PlanSlot* slot : slots) needed.push_back(slot->name);
  check_names(weights, needed);
  std::vector<Tensor> read;
  for (const PlanSlot* slot : slots) {
    read.emplace_back(slot->type);
    weights.tensors->read_into(slot->name, slot->type, read.back().data());
  }
  for (size_t i = 0; i < slots.size(); ++i) program_->state().write(slots[i]->name, read[i]);
}

std::string TrainingRun::state_hash() const {
  Checksum sum;
  for (const TensorView& view : tensors(true)) {
    const std::string name = fmt::format("{} {}\n", view.name, to_string(view.type));
    sum.update(std::as_bytes(std::span(name)));
    sum.update(view.bytes());
  }
  return checksum_text(sum.value());
}

}  // namespace ridge
