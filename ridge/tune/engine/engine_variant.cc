#include "ridge/tune/engine/engine_variant.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/base/trace/trace.h"
#include "ridge/config/text.h"
#include "ridge/data/kept_batch.h"
#include "ridge/data/length_classes.h"
#include "ridge/data/loader.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuning.h"
#include "ridge/train/device_memory.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/step_reporter.h"
#include "ridge/train/training_run.h"

namespace ridge {
namespace {

// Enough that a step does not find its batch in the cache, few enough to be loaded at once.
constexpr size_t kKeptBatches = 4;

// Where batches differ in length: so many out of the first kSeenBatches of the epoch, at equal
// distances by length, the same for every variant.
constexpr size_t kMixedBatches = 8, kSeenBatches = 64;

// Steps of a trace run in before it begins: a loader that was full is then as it is in a long run.
constexpr int64_t kMostRunIn = 8;

// Events that a thread may record.
constexpr int64_t kLeastEvents = 1 << 10, kMostEvents = 1 << 15;

// Lines that files take before they begin anew.
constexpr int64_t kMostLines = 50'000;

/// Files as a run writes them, but without a name: however this process ends, none stays behind.
std::unique_ptr<RunFiles> make_files(bool writes) {
  if (!writes) return std::make_unique<RunFiles>();
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "ridge-trial-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    throw UserError(fmt::format("cannot make the folder '{}': {}", folder, std::strerror(errno)),
                    "let TMPDIR name a folder that can be written to");
  std::unique_ptr<RunFiles> files;
  std::error_code ignored;
  try {
    files = std::make_unique<RunFiles>(folder, 0);
  } catch (...) {
    fs::remove_all(folder, ignored);
    throw;
  }
  fs::remove_all(folder, ignored);
  return files;
}

/// Stops tracing, whatever happens.
class Tracing {
 public:
  explicit Tracing(int64_t events) {
    start_tracing(static_cast<size_t>(std::clamp(events, kLeastEvents, kMostEvents)));
  }
  ~Tracing() { stop_tracing(); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
};

int64_t involuntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

/// What a block counts, from its making to finish().
class BlockClock {
 public:
  explicit BlockClock(const data::Loader& loader)
      : loader_(loader),
        waited_(loader.stats().wait_seconds),
        stolen_(stolen_seconds()),
        switches_(involuntary_switches()),
        start_(now_ns()) {}
  Block finish() const {
    Block block;
    block.seconds = static_cast<double>(now_ns() - start_) * 1e-9;
    block.waited_seconds = loader_.stats().wait_seconds - waited_;
    block.stolen_seconds = stolen_seconds() - stolen_;
    block.switches = involuntary_switches() - switches_;
    return block;
  }

 private:
  const data::Loader& loader_;
  double waited_, stolen_;
  int64_t switches_, start_;
};

// A barrier keeps a recomputed result apart from the first, and is no result itself.
int64_t recomputed_results(const Program& program) {
  int64_t nodes = 0;
  for (const PassReport& pass : program.passes())
    if (pass.name == "recompute" && pass.changed)
      nodes += static_cast<int64_t>(pass.nodes_after) - static_cast<int64_t>(pass.nodes_before);
  for (const Graph& entry : program.entries())
    for (const auto& node : entry.nodes())
      if (node->site.name.find("/again:barrier") != std::string::npos) --nodes;
  return std::max<int64_t>(0, nodes);
}

}  // namespace

double samples_per_step(const VariantFacts& facts) {
  return static_cast<double>(facts.epoch_samples) /
         static_cast<double>(std::max<int64_t>(1, facts.steps_per_epoch));
}

double work_ratio(const VariantFacts& before, const VariantFacts& after) {
  return samples_per_step(after) / samples_per_step(before);
}

struct EngineVariant::Parts {
  Parts(std::string_view text, int64_t epoch);
  void fill_cache();
  void step(const data::Batch& batch, RunMode mode);
  Block queue(int64_t steps);
  void report(const data::Batch& batch, int64_t step, int64_t started_ns);
  void start_reporting();
  void renew_files();
  void check_finite();
  void keep_batches();
  void keep_mix();
  void note_lengths();
  int64_t memory_in_use() const;
  int64_t schedule_step() const;
  int64_t events_per_step() const;
  std::map<std::string, std::string> ops() const;

  TrainConfig config;
  data::LoaderPosition start;
  bool writes;  ///< As the run would.
  std::unique_ptr<RunFiles> files;
  std::unique_ptr<Backend> backend;
  Task task;
  std::unique_ptr<Tuning> tuning;
  int64_t memory_before = 0;
  std::optional<int64_t> device_bytes;  ///< In use more than before, after the first steps.
  std::unique_ptr<data::Loader> loader;
  std::vector<data::KeptBatch> kept;
  std::unique_ptr<TrainingRun> training;  ///< Gone before the batches that its copies read.
  VariantFacts facts;
  int64_t total_steps = 0, steps_done = 0;
  int64_t halted = 0;  ///< Steps that were halted, by the last report of a step.
  int64_t lines = 0;   ///< That its files have.
  TrainObserver nobody;
  std::optional<StepReporter> reporter;
};

namespace {

TrainConfig config_of(std::string_view text) {
  return load_config(text, "the variant's configuration", {}, settings()).config;
}

}  // namespace

EngineVariant::Parts::Parts(std::string_view text, int64_t epoch)
    : config(config_of(text)),
      start{.epoch = epoch},
      writes(!config.train.out.empty()),
      files(make_files(writes)),
      backend(make_backend(config.train.device)),
      task(open_task(config)) {
  config.train.out.clear();
  const int64_t opened = now_ns();
  apply_threads();
  parallel_for(num_threads(), 1, [](int64_t, int64_t) {});
  tuning = std::make_unique<Tuning>(config.train.device, false);
  task.choose = tuning->choose(kernels_of(config));
  facts.memory_text = apply_memory_limit(config, task, *backend);
  ProgramOptions options = program_options(config, task);
  options.before_memory = [this](const Plan& plan) {
    check_device_memory(config, task, *backend, plan);
    release_free_memory();
    memory_before = memory_in_use();
  };
  training = std::make_unique<TrainingRun>(task, config, *backend, options);
  loader = std::make_unique<data::Loader>(
      *task.train_data, batch_plan(config), config.loader, start, batch_memory(*backend));
  if (config.loader.cache) fill_cache();
  loader->wait_until_full();
  facts.steps_per_epoch = loader->batches_per_epoch();
  facts.epoch_samples = loader->samples_per_epoch();
  total_steps =
      config.train.steps > 0 ? config.train.steps : config.train.epochs * facts.steps_per_epoch;
  start_reporting();
  const Plan& program = training->program().plan();
  facts.plan_hash = plan_hash(program);
  // What the loader stages lies in the host's memory.
  const int64_t in_loader = backend->is_host() ? loader->staging_bytes() : 0;
  facts.staging_bytes = in_loader + program.staging_bytes;
  facts.planned_bytes = program.total_bytes() + in_loader;
  facts.state_bytes = program.state_bytes;
  facts.recomputed = recomputed_results(training->program());
  facts.batch = config.train.batch;
  facts.micro = config.train.micro;
  facts.queue = config.loader.workers == 0 ? 0 : config.loader.prefetch;
  if (config.data.is_ragged()) note_lengths();
  facts.free_device_bytes = free_device_memory(config.train.device);
  facts.open_seconds = static_cast<double>(now_ns() - opened) * 1e-9;
}

void EngineVariant::Parts::note_lengths() {
  facts.mix = kMixedBatches;
  if (batch_plan(config).buckets) facts.fair_steps = kMixedBatches;
  const data::Dataset& dataset = *task.train_data;
  const int64_t tokens = config.train.batch * dataset.fields()[0].shape[0];
  const data::LengthClasses filled(dataset, config.train.batch, tokens);
  facts.token_growth = static_cast<double>(dataset.size()) /
                       static_cast<double>(filled.batches() + 1) / samples_per_step(facts);
}

// What is measured is a run whose first epoch is over.
void EngineVariant::Parts::fill_cache() {
  for (int64_t i = 0; i < loader->batches_per_epoch(); ++i) loader->next();
  loader->seek(start);
}

int64_t EngineVariant::Parts::memory_in_use() const {
  return backend->is_host() ? resident_anonymous_bytes() : backend->memory_in_use();
}

// Beyond the end of the schedule its last step is repeated.
int64_t EngineVariant::Parts::schedule_step() const {
  return total_steps > 0 ? std::min(steps_done, total_steps - 1) : steps_done;
}

void EngineVariant::Parts::step(const data::Batch& batch, RunMode mode) {
  const int64_t started = now_ns();
  training->run_step(batch, schedule_step(), std::max<int64_t>(total_steps, 1), mode);
  report(batch, ++steps_done, started);
}

// What a device computes meanwhile does not count.
Block EngineVariant::Parts::queue(int64_t steps) {
  int64_t queued_ns = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const data::Batch& batch = kept[static_cast<size_t>(i) % kept.size()].batch();
    const int64_t started = now_ns();
    training->run_step(batch, schedule_step(), std::max<int64_t>(total_steps, 1));
    queued_ns += now_ns() - started;
    ++steps_done;
    training->synchronize();
  }
  Block block;
  block.seconds = static_cast<double>(queued_ns) * 1e-9;
  return block;
}

// What Run does after step number `step`, but that it is not left when something is not finite:
// check_finite() is for after a block.
void EngineVariant::Parts::report(const data::Batch& batch, int64_t step, int64_t started_ns) {
  if (!reporter->is_due(step)) return;
  const StepResult result = training->last_result();
  halted = training->halted_steps();
  const double seconds = static_cast<double>(now_ns() - started_ns) * 1e-9;
  reporter->report({.step = total_steps > 0 ? std::min(step, total_steps) : step,
                    .samples = batch.count,
                    .end = batch.end,
                    .seconds = seconds,
                    .loss_scale = training->loss_scale(),
                    .skipped_steps = training->skipped_steps()},
                   result);
  ++lines;
}

// A run of small steps would fill a disk in the time of its trials.
void EngineVariant::Parts::renew_files() {
  if (lines < kMostLines) return;
  lines = 0;
  files = make_files(writes);
  start_reporting();
}

void EngineVariant::Parts::start_reporting() {
  const RunLength length{.total_steps = total_steps,
                         .steps_per_epoch = facts.steps_per_epoch,
                         .samples = task.train_data->size()};
  reporter.emplace(config, length, *files, nobody);
}

void EngineVariant::Parts::check_finite() {
  halted = training->halted_steps();
  if (halted == 0) return;
  throw UserError(fmt::format("step {}: the loss or the norm of the gradient is not finite",
                              steps_done - halted + 1),
                  "lower optimizer.lr or set optimizer.clip");
}

void EngineVariant::Parts::keep_batches() {
  if (facts.mix > 1) return keep_mix();
  while (kept.size() < kKeptBatches) {
    const data::Batch& batch = loader->next();
    // The last one of an epoch may be smaller: another amount of work.
    if (!batch.is_rest || facts.steps_per_epoch == 1)
      kept.emplace_back(batch, task.train_data->fields());
  }
  loader->wait_until_full();
}

void EngineVariant::Parts::keep_mix() {
  if (!kept.empty()) return;
  loader->seek(start);
  std::vector<data::KeptBatch> seen;
  while (seen.size() < kSeenBatches) {
    const data::Batch& batch = loader->next();
    if (!batch.is_rest || facts.steps_per_epoch == 1)
      seen.emplace_back(batch, task.train_data->fields());
  }
  loader->wait_until_full();
  std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) {
    return a.batch().longest < b.batch().longest;
  });
  // The first 1, 2 or 4 of them are about as long as all are.
  constexpr std::array<size_t, kMixedBatches> kOrder = {4, 3, 6, 1, 5, 2, 7, 0};
  constexpr size_t kApart = kSeenBatches / kMixedBatches;
  for (const size_t i : kOrder) kept.push_back(std::move(seen[i * kApart + kApart / 2]));
}

// At most, of any thread.
int64_t EngineVariant::Parts::events_per_step() const {
  int64_t launches = 0;
  for (const EntryPlan& entry : training->program().plan().entries)
    launches += static_cast<int64_t>(entry.steps.size());
  return 8 + launches * config.train.micro + 2 * std::max(config.train.batch, config.loader.tokens);
}

// By site.
std::map<std::string, std::string> EngineVariant::Parts::ops() const {
  std::map<std::string, std::string> ops;
  for (const EntryPlan& entry : training->program().plan().entries)
    for (const PlanStep& step : entry.steps) ops.emplace(step.site, step.op);
  return ops;
}

EngineVariant::EngineVariant(std::string_view config_toml, int64_t epoch)
    : parts_(std::make_unique<Parts>(config_toml, epoch)) {}

EngineVariant::~EngineVariant() = default;

const VariantFacts& EngineVariant::facts() const { return parts_->facts; }
std::string EngineVariant::state_hash() const { return parts_->training->state_hash(); }

int64_t EngineVariant::measured_bytes() const {
  if (parts_->device_bytes) return *parts_->device_bytes;
  const int64_t now = parts_->memory_in_use();
  return now > 0 ? now - parts_->memory_before : 0;
}

int64_t EngineVariant::fewest_parts() const {
  const Parts& p = *parts_;
  const std::optional<int64_t> free = free_device_memory(p.config.train.device);
  if (!free) return 0;
  return fewest_micro_batches(p.config, p.task, *p.backend, memory_for_plan(*free)).value_or(0);
}

void EngineVariant::rewind() {
  if (parts_->facts.mix == 1) return;
  parts_->loader->seek(parts_->start);
  parts_->loader->wait_until_full();
}

// The loader is full when a block begins and when it ends: a block makes as many batches as it
// takes, whatever was ready.
Block EngineVariant::run(int64_t steps, StepKind kind) {
  Parts& p = *parts_;
  const bool loads = kind == StepKind::kTrain || kind == StepKind::kLoad;
  if (!loads) p.keep_batches();
  if (kind == StepKind::kQueue) return p.queue(steps);
  p.renew_files();
  const RunMode mode = kind == StepKind::kNoKernel ? RunMode::kNoKernel : RunMode::kNormal;
  const BlockClock clock(*p.loader);
  for (int64_t i = 0; i < steps; ++i) {
    const data::Batch& batch = loads ? p.loader->next() : p.kept[i % p.kept.size()].batch();
    if (kind == StepKind::kReport)
      p.report(batch, i + 1, now_ns());
    else if (kind != StepKind::kLoad)
      p.step(batch, mode);
  }
  p.training->synchronize();  // a device has then done all that the block gave it
  if (loads) p.loader->wait_until_full();
  const Block block = clock.finish();
  if (!p.backend->is_host() && !p.device_bytes) p.device_bytes = measured_bytes();
  p.check_finite();
  return block;
}

StepTimeline EngineVariant::timeline(int64_t steps) {
  Parts& p = *parts_;
  const char* const loading = p.config.loader.workers == 0 ? "loading" : "loader wait";
  std::vector<StepWindow> windows;
  const auto traced_step = [&] {
    StepWindow window{.start_ns = now_ns(), .end_ns = 0, .thread = this_thread_id()};
    const data::Batch* batch = nullptr;
    {
      const TraceScope scope(loading, "loader");
      batch = &p.loader->next();
    }
    p.step(*batch, RunMode::kNormal);
    p.training->synchronize();  // the picture of a step has what a device did for it
    window.end_ns = now_ns();
    return window;
  };
  for (int64_t i = 0; i < std::min({p.facts.queue, steps, kMostRunIn}); ++i) traced_step();
  {
    const Tracing tracing(steps * p.events_per_step());
    for (int64_t i = 0; i < steps; ++i) windows.push_back(traced_step());
  }
  // What a loader's thread was at when tracing stopped is recorded when it ends.
  p.loader->wait_until_full();
  const TraceLog log = drain_trace();
  p.check_finite();
  const auto median = windows.begin() + static_cast<std::ptrdiff_t>(windows.size() / 2);
  std::nth_element(windows.begin(), median, windows.end(), [](const auto& a, const auto& b) {
    return a.end_ns - a.start_ns < b.end_ns - b.start_ns;
  });
  return make_timeline(log, *median, p.ops());
}

}  // namespace ridge
