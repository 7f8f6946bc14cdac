#include "ridge/train/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

}  // namespace

Session::Session(const Task& task,
                 const TrainConfig& config,
                 Backend& backend,
                 const ProgramOptions& options)
    : Session(task, config, backend, options, task.training->program(task.sizes)) {}

Session::Session(const Task& task,
                 const TrainConfig& config,
                 Backend& backend,
                 const ProgramOptions& options,
                 ProgramGraphs graphs)
    : task_(task),
      config_(config),
      backend_(backend),
      accumulates_(!task.sizes.micro.empty()),
      hyper_({task.training->accumulate(), {nn::kStepScalars}}),
      scalar_({task.training->accumulate(), {}}),
      rng_({DType::kI64, {3}}) {
  check(backend_.is_host(), "training needs a device whose memory the host can read");
  program_ = std::make_unique<Program>(std::move(graphs), backend_, options);
  initialize();
  train_entries_ = accumulates_ ? make_entries("micro", task.sizes.micro)
                                : make_entries("step", task.sizes.step);
  eval_entries_ = make_entries("eval", task.sizes.eval);
  if (accumulates_) apply_ = program_->entry("apply");
  for (size_t i = 0; i < program_->entries().size(); ++i) scalars_.push_back(scalars_of(i));
  const State& state = program_->state();
  const PlanSlot* halted = find_slot(program_->plan().state, "halted");
  check_internal(halted != nullptr, "a program to train without 'halted'");
  halted_ = {state.data(*halted), static_cast<size_t>(halted->place.bytes)};
}

// Right where they lie, and all that is not named starts as zeros: there is no room for the state
// twice.
void Session::initialize() {
  constexpr int64_t kPiece = int64_t{1} << 17;
  State& state = program_->state();
  for (const PlanSlot& slot : state.slots()) {
    const auto& parameters = task_.training->parameters();
    const auto spec = std::find_if(
        parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == slot.name; });
    if (spec == parameters.end()) continue;
    auto* to = static_cast<std::byte*>(state.data(slot));
    for (int64_t first = 0; first < slot.type.elements(); first += kPiece) {
      const int64_t count = std::min(kPiece, slot.type.elements() - first);
      const Tensor piece = nn::initial_piece(*spec, config_.train.seed, first, count);
      std::memcpy(to, piece.data(), piece.bytes());
      to += piece.bytes();
    }
  }
  for (const nn::StatisticSpec& spec : task_.training->statistics())
    state.write(spec.name, nn::initial_value(spec));
  loss_scale_ = find_slot(program_->plan().state, nn::kLossScale);
  skipped_ = find_slot(program_->plan().state, nn::kSkippedSteps);
  if (loss_scale_ == nullptr) return;
  Tensor first(loss_scale_->type);
  first.set(0, task_.training->loss_scale().initial);
  state.write(nn::kLossScale, first);
}

std::vector<Session::Entry> Session::make_entries(std::string_view base,
                                                  const std::vector<nn::BatchSize>& sizes) const {
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

Session::Scalars Session::scalars_of(size_t entry) const {
  return {.hyper = input_or_none(*program_, entry, "hyper"),
          .loss = output_or_none(*program_, entry, "loss"),
          .grad_norm = output_or_none(*program_, entry, "grad_norm"),
          .count = output_or_none(*program_, entry, "count"),
          .correct = output_or_none(*program_, entry, "correct")};
}

const Session::Entry& Session::train_entry(const data::Batch& batch, int64_t samples) const {
  const auto& sizes = accumulates_ ? task_.sizes.micro : task_.sizes.step;
  return train_entries_[nn::fitting_size(sizes, samples, batch.longest)];
}

void Session::write_data(const Entry& entry,
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
  program_->write(entry.rng, rng_.data());
}

double Session::read_scalar(DataSlot slot) {
  if (slot.address == nullptr) return NAN;
  program_->read(slot, scalar_.data());
  program_->synchronize();
  return scalar_.at(0);
}

// Right where it lies: this allocates nothing.
double Session::state_scalar(const PlanSlot* slot) const {
  if (slot == nullptr) return 0;
  const void* at = program_->state().data(*slot);
  return slot->type.dtype == DType::kF64 ? *static_cast<const double*>(at)
                                         : static_cast<double>(*static_cast<const float*>(at));
}

StepResult Session::read_scalars(const Scalars& scalars) {
  return {.loss = read_scalar(scalars.loss),
          .grad_norm = read_scalar(scalars.grad_norm),
          .correct = read_scalar(scalars.correct),
          .count = read_scalar(scalars.count)};
}

StepResult Session::train_step(const data::Batch& batch,
                               int64_t step,
                               int64_t total_steps,
                               RunMode mode) {
  run_step(batch, step, total_steps, mode);
  return last_result();
}

StepResult Session::last_result() {
  StepResult result = read_scalars(scalars_[last_]);
  result.skipped = skipped_steps() > skipped_before_;
  return result;
}

int64_t Session::halted_steps() { return static_cast<int64_t>(read_scalar(halted_)); }

void Session::run_step(const data::Batch& batch, int64_t step, int64_t total_steps, RunMode mode) {
  skipped_before_ = skipped_steps();
  nn::set_hyper(
      nn::step_scalars(config_.optimizer, config_.schedule, step, total_steps, skipped_before_),
      hyper_);
  last_ = apply_;
  int64_t first = 0;
  for (int64_t part = 0; first < batch.count; ++part) {
    const int64_t samples = part_size(batch.count, config_.train.micro, part);
    const Entry& entry = train_entry(batch, samples);
    write_data(entry, batch, first, step);
    if (accumulates_)
      program_->run(entry.id, mode);
    else
      last_ = entry.id;
    first += samples;
  }
  program_->write(scalars_[last_].hyper, hyper_.data());
  program_->run(last_, mode);
}

StepResult Session::settled_step(const data::Batch& batch, int64_t step, int64_t total_steps) {
  State& state = program_->state();
  const Tensor skipped = skipped_ == nullptr ? Tensor() : state.read(nn::kSkippedSteps);
  for (;;) {
    const StepResult result = train_step(batch, step, total_steps);
    if (!result.skipped) return result;
    state.write(nn::kSkippedSteps, skipped);
  }
}

void Session::evaluate(const data::Batch& batch, StepResult& sums) {
  const Entry& entry =
      eval_entries_[nn::fitting_size(task_.sizes.eval, batch.count, batch.longest)];
  write_data(entry, batch, 0, 0);
  program_->run(entry.id);
  const StepResult result = read_scalars(scalars_[entry.id]);
  sums.loss += result.loss;
  sums.correct += result.correct;
  sums.count += result.count;
}

std::string Session::first_not_finite(const data::Batch& batch, int64_t step) {
  int64_t first = 0;
  for (int64_t part = 0; first < batch.count; ++part) {
    const int64_t samples = part_size(batch.count, config_.train.micro, part);
    const Entry& entry = train_entry(batch, samples);
    write_data(entry, batch, first, step);
    if (const DataSlot hyper = scalars_[entry.id].hyper; hyper.address != nullptr)
      program_->write(hyper, hyper_.data());
    std::string site = program_->first_not_finite(entry.id);
    if (!site.empty()) return site;
    first += samples;
  }
  if (!accumulates_) return {};
  program_->write(scalars_[apply_].hyper, hyper_.data());
  return program_->first_not_finite(apply_);
}

std::vector<const PlanSlot*> Session::slots_of(bool with_optimizer) const {
  std::vector<const PlanSlot*> slots;
  const State& state = program_->state();
  for (size_t i = 0; i < state.slots().size(); ++i) {
    const StateRole role = state.role(i);
    const bool is_model = role == StateRole::kParameter || role == StateRole::kStatistic;
    if (with_optimizer ? is_saved(role) : is_model) slots.push_back(&state.slots()[i]);
  }
  return slots;
}

std::vector<TensorView> Session::tensors(bool with_optimizer) const {
  std::vector<TensorView> views;
  for (const PlanSlot* slot : slots_of(with_optimizer))
    views.push_back({slot->name, slot->type, program_->state().data(*slot)});
  return views;
}

void Session::restore(const OpenCheckpoint& checkpoint) {
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

void Session::load_parameters(const std::string& path) {
  const SafetensorsFile file(path);
  const auto slots = slots_of(false);
  std::vector<Tensor> read;
  for (const PlanSlot* slot : slots) {
    read.emplace_back(slot->type);
    file->read_into(slot->name, slot->type, read.back().data());
  }
  for (size_t i = 0; i < slots.size(); ++i) program_->state().write(slots[i]->name, read[i]);
}

std::string Session::state_hash() const {
  Checksum sum;
  for (const TensorView& view : tensors(true)) {
    const std::string name = fmt::format("{} {}\n", view.name, to_string(view.type));
    sum.update(std::as_bytes(std::span(name)));
    sum.update(view.bytes());
  }
  return checksum_text(sum.value());
}

}  // namespace ridge
