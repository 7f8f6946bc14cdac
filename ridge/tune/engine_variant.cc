#include "ridge/tune/engine_variant.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/parallel.h"
#include "ridge/base/settings.h"
#include "ridge/data/loader.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuning.h"
#include "ridge/train/config_text.h"
#include "ridge/train/memory_limit.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/session.h"

namespace ridge {
namespace {

// Enough that a step does not find its batch in the cache, few enough to be loaded at once.
constexpr size_t kKeptBatches = 4;

// Where batches differ in length: so many out of the first kSeenBatches of the epoch, at equal
// distances by length, the same for every variant.
constexpr size_t kMixedBatches = 8, kSeenBatches = 64;

constexpr std::array<std::string_view, 4> kKindNames = {"train", "kept", "load", "no_kernel"};

/// A batch in memory of its own.
struct KeptBatch {
  std::vector<std::vector<std::byte>> fields;
  data::Batch batch;
};

KeptBatch keep(const data::Batch& batch, const std::vector<data::FieldType>& types) {
  KeptBatch kept{.fields = {}, .batch = batch};
  for (size_t i = 0; i < types.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(batch.fields[i]);
    kept.fields.emplace_back(from, from + types[i].bytes() * batch.count);
    kept.batch.fields[i] = kept.fields.back().data();
  }
  return kept;
}

/// CPU time in seconds that the hypervisor gave to others while this machine wanted it, since it
/// started; 0 where the system does not tell.
double stolen_seconds() {
  std::FILE* file = std::fopen("/proc/stat", "re");
  if (file == nullptr) return 0;
  unsigned long long steal = 0;
  const int found = std::fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal);
  std::fclose(file);
  constexpr double kTicksPerSecond = 100;  // USER_HZ on every Linux
  return found == 1 ? static_cast<double>(steal) / kTicksPerSecond : 0;
}

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

// A barrier keeps what is made again apart from the first, and is no result itself.
int64_t results_made_again(const Program& program) {
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

std::string_view name_of(StepKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

struct EngineVariant::Parts {
  Parts(std::string_view text, int64_t epoch);
  void fill_cache();
  void step(const data::Batch& batch, RunMode mode);
  void keep_batches();
  void keep_mix();

  TrainConfig config;
  data::LoaderPosition start;
  std::unique_ptr<Backend> backend;
  Task task;
  std::unique_ptr<Tuning> tuning;
  int64_t memory_before = 0;
  std::unique_ptr<Session> session;
  std::unique_ptr<data::Loader> loader;
  std::vector<KeptBatch> kept;
  VariantFacts facts;
  int64_t total_steps = 0, steps_done = 0;
  StepResult last;
};

namespace {

TrainConfig config_of(std::string_view text) {
  TrainConfig config = load_config(text, "the variant's configuration", {}, settings()).config;
  config.train.out.clear();
  return config;
}

}  // namespace

EngineVariant::Parts::Parts(std::string_view text, int64_t epoch)
    : config(config_of(text)),
      start{.epoch = epoch},
      backend(make_backend(config.train.device)),
      task(open_task(config)) {
  const int64_t opened = now_ns();
  apply_threads();
  parallel_for(num_threads(), 1, [](int64_t, int64_t) {});
  tuning = std::make_unique<Tuning>(config.train.device, false);
  task.choose = tuning->choose();
  facts.memory_text = apply_memory_limit(config, task, *backend);
  ProgramOptions options = program_options(config, task);
  options.before_memory = [this](const Plan&) {
    release_free_memory();
    memory_before = resident_anonymous_bytes();
  };
  session = std::make_unique<Session>(task, config, *backend, options);
  const data::BatchPlan plan{.batch = config.train.batch,
                             .shuffle = config.train.shuffle,
                             .seed = config.train.seed,
                             .drop_last = config.train.drop_last,
                             .repeat = true};
  loader = std::make_unique<data::Loader>(*task.train_data, plan, config.loader, start);
  if (config.loader.cache) fill_cache();
  loader->wait_until_full();
  facts.steps_per_epoch = loader->batches_per_epoch();
  facts.epoch_samples =
      config.train.drop_last ? facts.steps_per_epoch * config.train.batch : task.train_data->size();
  total_steps =
      config.train.steps > 0 ? config.train.steps : config.train.epochs * facts.steps_per_epoch;
  const Plan& program = session->program().plan();
  facts.plan_hash = plan_hash(program);
  facts.staging_bytes = loader->staging_bytes();
  facts.planned_bytes = program.total_bytes() + facts.staging_bytes;
  facts.state_bytes = program.state_bytes;
  facts.made_again = results_made_again(session->program());
  facts.batch = config.train.batch;
  facts.micro = config.train.micro;
  facts.queue = config.loader.workers == 0 ? 0 : config.loader.prefetch;
  facts.mix = config.data.is_ragged() ? kMixedBatches : 1;
  facts.open_seconds = static_cast<double>(now_ns() - opened) * 1e-9;
}

// What is measured is a run whose first epoch is over.
void EngineVariant::Parts::fill_cache() {
  for (int64_t i = 0; i < loader->batches_per_epoch(); ++i) loader->next();
  loader->seek(start);
}

void EngineVariant::Parts::step(const data::Batch& batch, RunMode mode) {
  // Beyond the end of the schedule its last step is repeated.
  const int64_t at = total_steps > 0 ? std::min(steps_done, total_steps - 1) : steps_done;
  last = session->train_step(batch, at, std::max<int64_t>(total_steps, 1), mode);
  ++steps_done;
  if (mode == RunMode::kNoKernel || last.is_finite()) return;
  throw UserError(fmt::format("step {}: the loss is {}, the norm of the gradient {}",
                              steps_done,
                              last.loss,
                              last.grad_norm),
                  "lower optimizer.lr or set optimizer.clip");
}

void EngineVariant::Parts::keep_batches() {
  if (facts.mix > 1) return keep_mix();
  while (kept.size() < kKeptBatches) {
    const data::Batch& batch = loader->next();
    // The last one of an epoch may be smaller: another amount of work.
    if (batch.count == config.train.batch || facts.steps_per_epoch == 1)
      kept.push_back(keep(batch, task.train_data->fields()));
  }
  loader->wait_until_full();
}

void EngineVariant::Parts::keep_mix() {
  if (!kept.empty()) return;
  loader->seek(start);
  std::vector<KeptBatch> seen;
  while (seen.size() < kSeenBatches) {
    const data::Batch& batch = loader->next();
    if (batch.count == config.train.batch || facts.steps_per_epoch == 1)
      seen.push_back(keep(batch, task.train_data->fields()));
  }
  loader->wait_until_full();
  std::stable_sort(seen.begin(), seen.end(), [](const KeptBatch& a, const KeptBatch& b) {
    return a.batch.longest < b.batch.longest;
  });
  // The first 1, 2 or 4 of them are about as long as all are.
  constexpr std::array<size_t, kMixedBatches> kOrder = {4, 3, 6, 1, 5, 2, 7, 0};
  constexpr size_t kApart = kSeenBatches / kMixedBatches;
  for (const size_t i : kOrder) kept.push_back(std::move(seen[i * kApart + kApart / 2]));
}

EngineVariant::EngineVariant(std::string_view config_toml, int64_t epoch)
    : parts_(std::make_unique<Parts>(config_toml, epoch)) {}

EngineVariant::~EngineVariant() = default;

const VariantFacts& EngineVariant::facts() const { return parts_->facts; }
std::string EngineVariant::state_hash() const { return parts_->session->state_hash(); }
double EngineVariant::last_loss() const { return parts_->last.loss; }

int64_t EngineVariant::measured_bytes() const {
  const int64_t now = resident_anonymous_bytes();
  return now > 0 ? now - parts_->memory_before : 0;
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
  const RunMode mode = kind == StepKind::kNoKernel ? RunMode::kNoKernel : RunMode::kNormal;
  const BlockClock clock(*p.loader);
  for (int64_t i = 0; i < steps; ++i) {
    const data::Batch& batch = loads ? p.loader->next() : p.kept[i % p.kept.size()].batch;
    if (kind != StepKind::kLoad) p.step(batch, mode);
  }
  if (loads) p.loader->wait_until_full();
  return clock.finish();
}

}  // namespace ridge
