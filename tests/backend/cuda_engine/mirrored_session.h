// A training session on the simulated GPU, and what its plan says that it has to ask of the driver.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "ridge/train/session.h"
#include "tests/backend/cuda_engine/planned_calls.h"

namespace ridge::test {

/// Each call goes to the session and to its mirror, which knows a step as docs/architecture.md
/// tells it ("The life of a training step").
class MirroredSession {
 public:
  MirroredSession(const Task& task, const TrainConfig& config, Backend& backend, FakeCuda& fake)
      : task_(task),
        config_(config),
        session_(task, config, backend, program_options(config, task)),
        planned_(session_.program(),
                 fake,
                 config.train.capture == "off" ? Capture::kOff : Capture::kAuto,
                 Caller::kOwner),
        x_(backend, kBatchBytes),
        y_(backend, kBatchBytes) {
    // Zeros are right indices, and numbers.
    std::fill_n(x_.get(), kBatchBytes, std::byte{});
    std::fill_n(y_.get(), kBatchBytes, std::byte{});
  }
  PlannedCalls& planned() { return planned_; }
  Session& session() { return session_; }

  void run_step(int64_t samples, int64_t step) {
    const data::Batch batch = batch_of(samples);
    session_.run_step(batch, step, 100);
    if (const PlanSlot* skipped = state(nn::kSkippedSteps); skipped != nullptr) {
      if (maybe_skipped_ >= nn::kMostUnknownSkips) read_state(*skipped), maybe_skipped_ = 0;
      ++maybe_skipped_;
    }
    const bool accumulates = !task_.sizes.micro.empty();
    last_ = accumulates ? "apply" : "";
    for (int64_t part = 0, first = 0; first < samples; ++part) {
      const int64_t own = part_size(samples, config_.train.micro, part);
      const auto& sizes = accumulates ? task_.sizes.micro : task_.sizes.step;
      const std::string name = nn::entry_name(
          accumulates ? "micro" : "step", sizes, sizes[nn::fitting_size(sizes, own, 0)]);
      write_data(name, first);
      if (accumulates)
        run(name);
      else
        last_ = name;
      first += own;
    }
    planned_.write_scalars(input(last_, "hyper"));
    run(last_);
  }
  void read_result() {
    session_.last_result();
    read_scalars(last_);
  }
  void evaluate(int64_t samples) {
    StepResult sums;
    session_.evaluate(batch_of(samples), sums);
    const auto& sizes = task_.sizes.eval;
    const std::string name =
        nn::entry_name("eval", sizes, sizes[nn::fitting_size(sizes, samples, 0)]);
    write_data(name, 0);
    run(name);
    read_scalars(name);
  }
  void read_halted() {
    session_.halted_steps();
    read_state(*state("halted"));
  }

 private:
  static constexpr size_t kBatchBytes = size_t{1} << 16;

  data::Batch batch_of(int64_t samples) const {
    data::Batch batch;
    batch.fields = {x_.get(), y_.get()};
    batch.count = samples;
    return batch;
  }
  const PlanSlot* state(std::string_view name) const {
    return find_slot(session_.program().plan().state, name);
  }
  size_t entry(const std::string& name) const { return session_.program().entry(name); }
  DataSlot input(const std::string& name, const char* what) const {
    return session_.program().input(entry(name), what);
  }
  void write_data(const std::string& name, int64_t first) {
    const nn::SampleTypes& sample = task_.training->model().sample();
    const auto at = [&](const HostMemory& field, const TensorType& type) {
      return field.get() + first * type.bytes();
    };
    planned_.write(input(name, "x"), at(x_, sample.x));
    planned_.write(input(name, "y"), at(y_, sample.y));
    const auto& inputs = session_.program().plan().entries[entry(name)].inputs;
    if (find_slot(inputs, "rng") != nullptr) planned_.write_scalars(input(name, "rng"));
  }
  void run(const std::string& name) { planned_.run(entry(name)); }
  // All at once, and one wait.
  void read_scalars(const std::string& name) {
    size_t cell = 0;
    for (const char* each : {"loss", "grad_norm", "correct", "count"}) {
      const auto& outputs = session_.program().plan().entries[entry(name)].outputs;
      if (find_slot(outputs, each) != nullptr)
        planned_.read(session_.program().output(entry(name), each),
                      "$cells$+" + std::to_string(64 * cell));
      ++cell;
    }
    synchronize();
  }
  void read_state(const PlanSlot& slot) {
    planned_.read(slot, "$cells$+0");
    synchronize();
  }
  void synchronize() {
    planned_.synchronize();
    maybe_skipped_ = nn::kMostUnknownSkips;
  }

  const Task& task_;
  const TrainConfig& config_;
  Session session_;
  PlannedCalls planned_;
  HostMemory x_, y_;
  std::string last_;
  int64_t maybe_skipped_ = nn::kMostUnknownSkips;
};

}  // namespace ridge::test
