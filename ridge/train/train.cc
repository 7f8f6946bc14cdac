#include "ridge/train/train.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/stats.h"
#include "ridge/base/stop.h"
#include "ridge/base/trace/chrome_trace.h"
#include "ridge/base/trace/nvtx.h"
#include "ridge/base/trace/trace.h"
#include "ridge/infer/trained_data.h"
#include "ridge/infer/weights.h"
#include "ridge/io/file.h"
#include "ridge/train/checkpointing.h"
#include "ridge/train/device_memory.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/run_kernels.h"
#include "ridge/train/run_lock.h"
#include "ridge/train/step_reporter.h"
#include "ridge/train/verify.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Steps of a trace: enough to see what repeats, few enough for a viewer. The first two warm up.
constexpr int64_t kTraceFrom = 2, kTraceSteps = 10;

// Times of steps that are kept for the quantiles: the latest, however long a run is.
constexpr int64_t kTimesKept = int64_t{1} << 20;

// Records a few steady steps and writes them when they are done.
class TraceWindow {
 public:
  TraceWindow(std::string path, int64_t first_step, const Plan& plan)
      : path_(std::move(path)), from_(first_step + kTraceFrom) {
    if (path_.empty()) return;
    file_.open(path_);  // before the run: at its end the failure would cost all of it
    check(file_.good(), "cannot write the trace to '{}': {}", path_, std::strerror(errno));
    size_t launches = 64;
    for (const EntryPlan& entry : plan.entries) launches += entry.steps.size();
    capacity_ = launches * kTraceSteps * 2;
    for (int64_t i = 0; i < kTraceSteps; ++i)
      names_.push_back(intern_trace_name(fmt::format("ProfilerStep#{}", from_ + i)));
  }
  ~TraceWindow() { stop_tracing(); }

  /// The name of the step's scope; starts and ends the recording.
  const char* begin_step(int64_t step, TrainObserver& observer) {
    if (path_.empty()) return "step";
    if (step == from_ + kTraceSteps) finish(observer);
    if (path_.empty() || step < from_) return "step";
    if (step == from_) start_tracing(capacity_);
    return names_[static_cast<size_t>(step - from_)];
  }
  /// UserError when the file cannot be written. Gaps of the trace are reported.
  void finish(TrainObserver& observer) {
    if (path_.empty()) return;
    stop_tracing();
    const TraceLog log = drain_trace();
    write_chrome_trace(log, file_);
    for (const std::string& note : log.notes) observer.on_message(note);
    file_.close();
    const std::string path = std::exchange(path_, {});
    check(file_.good(), "cannot write all of the trace to '{}'", path);
  }

 private:
  std::string path_;
  std::ofstream file_;
  int64_t from_;
  size_t capacity_ = 0;
  std::vector<const char*> names_;
};

class Run {
 public:
  Run(const TrainRequest& request, TrainObserver& observer)
      : request_(request),
        config_(request.config),
        observer_(observer),
        backend_(open_backend(config_.train.device, observer_)),
        kernels_(config_, *backend_, request.choose) {
    find_start();
    open_data();
    task_.choose = kernels_.choose();
    const std::string text = apply_memory_limit(config_, task_, *backend_);
    if (!text.empty()) observer_.on_message(text);
    const std::string note = start_profiler_ranges();
    if (!note.empty()) observer_.on_message(note);
  }

  TrainResult run();

 private:
  void find_start();
  void open_data();
  void open();
  void make_files();
  void watch_gpu();
  void train_steps();
  void one_step();
  const data::Batch& next_batch();
  void count_step(const DoneStep& done);
  void read_last();
  void report_step();
  void report_last();
  void evaluate();
  [[noreturn]] void fail_not_finite(int64_t halted);
  void report_skipped();
  void report_capture();
  void fill_result();
  int64_t memory_in_use() const;

  const TrainRequest& request_;
  TrainConfig config_;  ///< The request's, with as many micro-batches as the memory limit asks.
  TrainObserver& observer_;
  std::unique_ptr<Backend> backend_;
  Task task_;
  RunKernels kernels_;
  std::optional<RunLock> lock_;
  std::optional<OpenCheckpoint> start_;  ///< Until it is restored; nothing: the run starts afresh.
  std::unique_ptr<data::Loader> loader_, eval_loader_;
  std::unique_ptr<TrainingRun>
      training_;  ///< Gone before the loaders: its copies read their batches.
  std::unique_ptr<Checkpointer> checkpoints_;
  std::unique_ptr<RunFiles> files_;
  std::optional<StepReporter> reporter_;
  std::optional<TraceWindow> trace_;
  std::optional<GpuWatch> gpu_;  ///< Set if the device is a GPU that reports its state.
  GpuReading gpu_reading_;
  int64_t memory_before_ = 0;  ///< In use before the plan's memory was taken.
  int64_t steps_per_epoch_ = 0, total_steps_ = 0, first_step_ = 0;
  Progress progress_;
  DoneStep done_;  ///< The last one.
  Progress fine_;  ///< Up to here all steps are known to have been finite, and are reported.
  StepResult last_;
  EvalReport last_eval_;
  std::vector<double> step_ms_;
  double step_seconds_ = 0;
  double unreported_seconds_ = 0;  ///< Time of the steps that no line reports yet.
  int64_t unreported_steps_ = 0;
  int64_t samples_ = 0, skipped_ = 0;
  TrainResult result_;
};

// Before anything is planned: the kernels of a resumed run are its checkpoint's.
void Run::find_start() {
  if (!config_.train.out.empty()) lock_.emplace(config_.train.out);
  start_ = find_checkpoint(request_.resume, config_.train.out, observer_);
  if (!start_) return;
  const std::string note = kernels_.resume(start_->info().texts);
  if (!note.empty()) observer_.on_message(note);
}

// A resumed model goes on with the columns, classes and normalization that it began with, whatever
// the data have become since then.
void Run::open_data() {
  std::optional<data::DataDescription> before;
  if (start_) before = trained_data(*start_);
  if (start_ && !before)
    observer_.on_message(unchecked_note(start_->path().string(), config_.data.kind));
  task_ = open_task(config_, before ? &*before : nullptr);
  for (const data::Dataset* dataset : {task_.train_data.get(), task_.eval_data.get()})
    if (dataset != nullptr)
      for (const std::string& note : dataset->notes()) observer_.on_message(note);
}

void Run::open() {
  // Threads and their stacks are there before memory is measured.
  parallel_for(num_threads(), 1, [](int64_t, int64_t) {});
  ProgramOptions options = program_options(config_, task_);
  options.before_memory = [this](const Plan& plan) {
    check_device_memory(config_, task_, *backend_, plan);
    release_free_memory();
    memory_before_ = memory_in_use();
  };
  training_ = std::make_unique<TrainingRun>(task_, config_, *backend_, options);
  if (!request_.init.empty())
    training_->load_parameters(open_weight_file(request_.init, config_.model.kind, observer_));
  const std::string note = kernels_.settle(training_->program());
  std::map<std::string, std::string> texts = kernels_.texts();
  texts[data::kDescriptionKey] = data::print_description(task_.train_data->description());
  checkpoints_ = std::make_unique<Checkpointer>(
      config_.train.out, config_.checkpoint, observer_, std::move(texts));
  if (start_) {
    progress_ = restore(*start_, *training_);
    observer_.on_message(fmt::format("resumed from {}", start_->path().string()));
    if (!note.empty()) observer_.on_message(note);
    checkpoints_->resumed(start_->path(), progress_.step);
    start_.reset();
  }
  loader_ = std::make_unique<data::Loader>(*task_.train_data,
                                           batch_plan(config_),
                                           config_.loader,
                                           progress_.position,
                                           batch_memory(*backend_));
  if (task_.eval_data != nullptr) {
    const data::BatchPlan plan{.batch = eval_batch(config_, *task_.eval_data),
                               .shuffle = false,
                               .seed = config_.train.seed,
                               .drop_last = false,
                               .repeat = false};
    eval_loader_ = std::make_unique<data::Loader>(
        *task_.eval_data, plan, config_.loader, data::LoaderPosition{}, batch_memory(*backend_));
  }
  steps_per_epoch_ = loader_->batches_per_epoch();
  total_steps_ =
      config_.train.steps > 0 ? config_.train.steps : config_.train.epochs * steps_per_epoch_;
  first_step_ = progress_.step;
  fine_ = progress_;
  done_.step = first_step_;
  make_files();
  trace_.emplace(request_.trace, first_step_, training_->program().plan());
  watch_gpu();
  step_ms_.reserve(
      static_cast<size_t>(std::clamp<int64_t>(total_steps_ - first_step_, 0, kTimesKept)));
  release_free_memory();
}

void Run::make_files() {
  if (const fs::path out = config_.train.out; out.empty()) {
    files_ = std::make_unique<RunFiles>();
  } else {
    files_ = std::make_unique<RunFiles>(out, first_step_);
    write_file_atomically(out / "config.toml", request_.config_toml);
  }
  const RunLength length{.total_steps = total_steps_,
                         .steps_per_epoch = steps_per_epoch_,
                         .samples = task_.train_data->size()};
  reporter_.emplace(config_, length, *files_, observer_);
}

void Run::watch_gpu() {
  const std::string uuid = backend_->gpu_uuid();
  if (uuid.empty()) return;
  gpu_.emplace(uuid);
  if (gpu_->problem().empty()) return;
  observer_.on_message("power, clocks and memory of the GPU are not reported: " + gpu_->problem());
  gpu_.reset();
}

const data::Batch& Run::next_batch() {
  const TraceScope scope("loader wait", "loader");
  try {
    return loader_->next();
  } catch (const UserError&) {
    // Saves what was learned before the data failed, unless a step had failed before that.
    if (training_->halted_steps() == 0) {
      report_last();
      checkpoints_->save(*training_, progress_);
    }
    throw;
  }
}

// The sign of what is no number says nothing.
std::string number_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

// Steps after the first that was not finite changed nothing: run again on its batch, it gives what
// it gave.
void Run::fail_not_finite(int64_t halted) {
  const int64_t step = std::max(fine_.step, progress_.step - halted);
  loader_->seek(fine_.position);
  const data::Batch* batch = nullptr;
  for (int64_t i = fine_.step; i <= step; ++i) batch = &loader_->next();
  const StepResult result = training_->train_step(*batch, step, total_steps_);
  const std::string site = training_->first_not_finite(*batch, step);
  files_->flush();
  throw UserError(
      fmt::format("step {}: loss {}, gradient norm {}; the first value that is not finite is in {}",
                  step + 1,
                  number_text(result.loss),
                  number_text(result.grad_norm),
                  site.empty() ? "no node when it is run again" : site),
      fmt::format("lower optimizer.lr (now {}) or set optimizer.clip", config_.optimizer.lr));
}

void Run::one_step() {
  const int64_t step = progress_.step;
  const int64_t start = now_ns();
  const data::Batch& batch = next_batch();
  training_->run_step(batch, step, total_steps_);
  report_capture();
  progress_.step = step + 1;
  progress_.position = batch.end;
  const bool is_reported = reporter_->is_due(step + 1);
  if (is_reported) read_last();
  done_ = {.step = step + 1,
           .samples = batch.count,
           .end = batch.end,
           .seconds = static_cast<double>(now_ns() - start) * 1e-9,
           .loss_scale = 0,
           .skipped_steps = 0};
  count_step(done_);
  if (is_reported) report_step();
}

void Run::count_step(const DoneStep& done) {
  step_seconds_ += done.seconds;
  unreported_seconds_ += done.seconds;
  ++unreported_steps_;
  if (step_ms_.size() < static_cast<size_t>(kTimesKept))
    step_ms_.push_back(done.seconds * 1e3);
  else
    step_ms_[static_cast<size_t>(done.step % kTimesKept)] = done.seconds * 1e3;
  samples_ += done.samples;
}

// UserError where a step since the last that was read was not finite.
void Run::read_last() {
  last_ = training_->last_result();
  if (const int64_t halted = training_->halted_steps(); halted > 0) fail_not_finite(halted);
  fine_ = progress_;
}

void Run::report_last() {
  if (fine_.step == progress_.step) return;
  read_last();
  report_step();
}

void Run::report_step() {
  done_.loss_scale = training_->loss_scale();
  done_.skipped_steps = training_->skipped_steps();
  // On a device that the host runs ahead of, the step that is read waits for those before it too.
  if (backend_->is_asynchronous() && unreported_steps_ > 0)
    done_.seconds = unreported_seconds_ / static_cast<double>(unreported_steps_);
  unreported_seconds_ = 0;
  unreported_steps_ = 0;
  if (gpu_) {
    gpu_->latest(gpu_reading_);
    done_.gpu = &gpu_reading_;
  }
  reporter_->report(done_, last_);
}

void Run::report_skipped() {
  const int64_t skipped = loader_->stats().skipped;
  if (skipped == skipped_) return;
  skipped_ = skipped;
  observer_.on_message(fmt::format(
      "step {}: {} samples so far could not be read, and others took their place (data.on_error)",
      progress_.step,
      skipped));
}

// Once: what forbids it for one entry mostly does for the others.
void Run::report_capture() {
  if (!result_.capture_refusal.empty()) return;
  const Program& program = training_->program();
  for (size_t i = 0; i < program.entries().size(); ++i) {
    if (program.recording_refusal(i).empty()) continue;
    result_.capture_refusal =
        fmt::format("'{}': {}", program.plan().entries[i].name, program.recording_refusal(i));
    return observer_.on_message(
        fmt::format("launches are queued one by one, since device '{}' cannot capture those of {}; "
                    "train.capture = \"off\" asks for no more than that",
                    config_.train.device,
                    result_.capture_refusal));
  }
}

void Run::evaluate() {
  report_skipped();
  if (eval_loader_ == nullptr) return;
  const TraceScope scope("evaluation", "user_annotation");
  const int64_t start = now_ns();
  eval_loader_->seek({});
  StepResult sums;
  int64_t samples = 0;
  for (;;) {
    const data::Batch& batch = eval_loader_->next();
    if (batch.count == 0) break;
    training_->evaluate(batch, sums);
    report_capture();
    samples += batch.count;
  }
  last_eval_ = {.step = progress_.step,
                .loss = sums.loss / sums.count,
                .accuracy = sums.correct / sums.count,
                .samples = samples,
                .seconds = static_cast<double>(now_ns() - start) * 1e-9};
  files_->write(last_eval_);
  observer_.on_eval(last_eval_);
  if (last_eval_.loss < progress_.best_eval_loss) {
    progress_.best_eval_loss = last_eval_.loss;
    files_->flush();
    checkpoints_->save_best(*training_, progress_);
  }
}

void Run::train_steps() {
  const int64_t every = config_.train.eval_every > 0 ? config_.train.eval_every : steps_per_epoch_;
  while (progress_.step < total_steps_ && !stop_requested()) {
    // The mark of a step holds all that comes with it, or nobody would see what holds steps up.
    const TraceScope scope(trace_->begin_step(progress_.step, observer_), "user_annotation");
    one_step();
    if (progress_.step % every == 0 || progress_.step == total_steps_) evaluate();
    // A resumed run goes on from these lines: they reach the disk before the checkpoint does.
    if (config_.checkpoint.every > 0 && progress_.step % config_.checkpoint.every == 0)
      files_->flush();
    checkpoints_->after_step(*training_, progress_);
  }
  report_last();
  trace_->finish(observer_);
  if (const int64_t skipped = training_->skipped_steps(); skipped > 0)
    observer_.on_message(
        fmt::format("{} of {} steps were skipped, since their gradients overflowed f16; the loss "
                    "scale is {}",
                    skipped,
                    progress_.step,
                    training_->loss_scale()));
}

// RssAnon, or what the device counts where the plan's memory is its own.
int64_t Run::memory_in_use() const {
  return backend_->is_host() ? resident_anonymous_bytes() : backend_->memory_in_use();
}

void Run::fill_result() {
  const Plan& plan = training_->program().plan();
  int64_t staging = loader_->staging_bytes();
  if (eval_loader_ != nullptr) staging += eval_loader_->staging_bytes();
  if (!backend_->is_host()) staging = 0;  // of the host's memory
  const int64_t now = memory_in_use();
  result_.memory.planned_bytes = plan.total_bytes() + staging;
  result_.memory.lower_bound_bytes = plan.lower_bound_bytes() + staging;
  result_.memory.captured_bytes = training_->program().recorded_bytes();
  result_.memory.measured_bytes = now > 0 ? now - memory_before_ : 0;
  result_.skipped = loader_->stats().skipped;
  result_.device = config_.train.device;
  result_.model = name_of(config_.model.kind);
  result_.steps = progress_.step;
  result_.epochs = static_cast<double>(progress_.position.epoch) +
                   static_cast<double>(progress_.position.sample) /
                       static_cast<double>(task_.train_data->size());
  if (!step_ms_.empty()) {
    result_.samples_per_s = static_cast<double>(samples_) / step_seconds_;
    result_.step_ms = {.median = quantile(step_ms_, 0.5),
                       .p10 = quantile(step_ms_, 0.1),
                       .p90 = quantile(step_ms_, 0.9)};
    result_.loader_wait_share = loader_->stats().wait_seconds / step_seconds_;
    result_.final.train_loss = last_.loss;
  }
  if (last_eval_.samples > 0) {
    result_.final.eval_loss = last_eval_.loss;
    result_.final.eval_accuracy = last_eval_.accuracy;
  }
  result_.plan_hash = plan_hash(plan);
  result_.kernels_changed = kernels_.changed();
}

TrainResult Run::run() {
  const int64_t start = now_ns();
  if (request_.verify) {
    const VerifyReport report =
        verify_training(task_, config_, *backend_, program_options(config_, task_));
    observer_.on_message((report.passed ? "verify: " : "verify FAILED: ") + report.text);
    result_.verified = report.passed;
    if (!report.passed) return result_;
  }
  open();
  const Plan& plan = training_->program().plan();
  for (const nn::ParameterSpec& spec : task_.training->parameters())
    result_.parameters += spec.type.elements();
  observer_.on_start({.model = std::string(name_of(config_.model.kind)),
                      .device = config_.train.device,
                      .parameters = result_.parameters,
                      .first_step = first_step_,
                      .total_steps = total_steps_,
                      .planned_bytes = plan.total_bytes() + loader_->staging_bytes()});
  if (first_step_ >= total_steps_)
    observer_.on_message(fmt::format(
        "nothing is left to train: {} of {} steps are done; raise train.steps or train.epochs",
        first_step_,
        total_steps_));
  train_steps();
  report_skipped();
  fill_result();
  result_.interrupted_by = stop_signal();
  checkpoints_->save(*training_, progress_);
  result_.checkpoint = checkpoints_->last();
  if (!config_.train.out.empty()) {
    const fs::path model = fs::path(config_.train.out) / "model.safetensors";
    save_safetensors(
        model,
        training_->tensors(false),
        {{data::kDescriptionKey, data::print_description(task_.train_data->description())}});
  }
  files_->flush();
  result_.metrics = files_->metrics_path();
  result_.state_hash = training_->state_hash();
  result_.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  return result_;
}

}  // namespace

TrainResult train(const TrainRequest& request, TrainObserver& observer) {
  return Run(request, observer).run();
}

}  // namespace ridge
