// Batches are planned in order into a ring of slots; threads take parts of the earliest batch that
// has some left, so that the batch that is needed next is the one that all work on.
//
// The planner, the slots' states and the error are under one mutex; the memory of a part belongs
// to the thread that took it until the thread counts it as done.
#include "ridge/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "ridge/base/alignment.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/error.h"
#include "ridge/base/trace/trace.h"
#include "ridge/data/batch_planner.h"

namespace ridge::data {
namespace {

constexpr std::align_val_t kAlignment{kBufferAlignment};
constexpr int64_t kMaxWorkers = 1024, kMaxPrefetch = 1 << 16;
constexpr int64_t kMaxBytes = int64_t{1} << 46;
// Small enough that threads share a batch evenly, large enough that the lock costs nothing.
constexpr int64_t kPartsOfWorker = 4, kMaxPart = 256;

using Bytes = std::unique_ptr<std::byte, std::function<void(void*)>>;

Bytes heap_memory(size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
  check(memory != nullptr, "out of memory: {} bytes for batches of the data", bytes);
  return {memory, [](void* freed) { ::operator delete(freed, kAlignment); }};
}

/// Zeros: writing them makes the system find the pages now.
Bytes touched_memory(const BatchMemory& from, size_t bytes) {
  Bytes memory = from.allocate == nullptr
                     ? heap_memory(bytes)
                     : Bytes(static_cast<std::byte*>(from.allocate(bytes)), from.deallocate);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

/// One batch in the making, ready, or at the consumer.
struct Slot {
  Batch batch;
  Bytes memory;
  std::vector<int64_t> samples;
  int64_t taken = 0, done = 0;  // samples of the batch
  int64_t skipped = 0;
  std::exception_ptr error;
  int64_t error_place = 0;
};

/// The place of a field's samples in a slot, in bytes.
struct FieldPlace {
  int64_t offset = 0, sample_bytes = 0;
};

/// The buffers of one reading thread: a sample is written to `out`, one address a field.
struct Reader {
  std::unique_ptr<Scratch> scratch;
  std::vector<void*> out;
};

}  // namespace

class Loader::Pipeline {
 public:
  Pipeline(const Dataset& dataset,
           const BatchPlan& plan,
           const LoaderOptions& options,
           LoaderPosition start,
           const BatchMemory& memory);
  ~Pipeline();

  const Batch& next();
  void wait_until_full();
  void seek(LoaderPosition position);
  int64_t staging_bytes() const;
  const BatchPlanner& planner() const { return planner_; }
  const LoaderStats& stats() const { return stats_; }

 private:
  /// Samples [begin, end) of a slot, which one thread reads.
  struct Part {
    Slot* slot = nullptr;
    int64_t begin = 0, end = 0;
  };

  void make_slots(int64_t count, const BatchMemory& memory);
  void start_workers(int64_t count);
  void stop_workers();
  void work(int64_t worker);
  Part take_part();
  void plan_batch(Slot& slot);
  void read_part(const Part& part, Reader& reader);
  void finish_part(const Part& part, int64_t skipped, std::exception_ptr error, int64_t place);
  void wait_for(Slot& slot);

  Slot& slot_at(int64_t number) { return slots_[number % static_cast<int64_t>(slots_.size())]; }

  const Dataset& dataset_;
  BatchPlan plan_;
  std::unique_ptr<SampleCache> cache_;
  std::vector<FieldPlace> places_;
  int64_t slot_bytes_ = 0;
  BatchPlanner planner_;  // under mutex_, but for what stays the same
  int64_t most_;          ///< Samples of a batch.
  int64_t part_samples_;
  LoaderStats stats_;

  std::mutex mutex_;
  std::condition_variable work_ready_, batch_ready_;
  std::vector<Slot> slots_;
  // Numbers of batches: [consumed_, planned_) are in slots. given_ is the one that the consumer has
  // or asks for, those before it are kept for it; filling_ is the earliest with samples that nobody
  // took.
  int64_t consumed_ = 0, given_ = 0, filling_ = 0, planned_ = 0;
  const int64_t kept_;
  int64_t parts_running_ = 0, started_ = 0;
  bool at_consumer_ = false, paused_ = false, stopping_ = false;

  std::vector<Reader> readers_;
  std::vector<std::thread> threads_;
};

Loader::Pipeline::Pipeline(const Dataset& dataset,
                           const BatchPlan& plan,
                           const LoaderOptions& options,
                           LoaderPosition start,
                           const BatchMemory& memory)
    : dataset_(dataset),
      plan_(plan),
      planner_(dataset, plan),
      most_(planner_.most()),
      part_samples_(most_),
      kept_(memory.kept) {
  check(options.workers >= 0 && options.workers <= kMaxWorkers,
        "workers is {}: it may be 0 to {}",
        options.workers,
        kMaxWorkers);
  check(options.prefetch >= 1 && options.prefetch <= kMaxPrefetch,
        "prefetch is {}: it may be 1 to {}",
        options.prefetch,
        kMaxPrefetch);
  planner_.seek(start);
  if (options.cache) cache_ = dataset.load_cache();
  // More than are made ahead: the batches that the consumer has.
  make_slots(kept_ + (options.workers == 0 ? 1 : options.prefetch + 1), memory);
  for (int64_t i = 0; i < std::max<int64_t>(options.workers, 1); ++i) {
    readers_.push_back({.scratch = dataset.make_scratch(cache_.get()), .out = {}});
    readers_.back().out.resize(dataset.fields().size());
  }
  if (options.workers > 0) start_workers(options.workers);
}

Loader::Pipeline::~Pipeline() { stop_workers(); }

void Loader::Pipeline::make_slots(int64_t count, const BatchMemory& memory) {
  for (const FieldType& field : dataset_.fields()) {
    check(field.bytes() <= kMaxBytes / most_ && slot_bytes_ <= kMaxBytes / count,
          "a batch of {} samples with {} bytes of '{}' each is more than this machine has",
          most_,
          field.bytes(),
          field.name);
    places_.push_back({.offset = slot_bytes_, .sample_bytes = field.bytes()});
    slot_bytes_ += aligned_bytes(field.bytes() * most_);
  }
  slots_.resize(static_cast<size_t>(count));
  for (Slot& slot : slots_) {
    slot.memory = touched_memory(memory, static_cast<size_t>(slot_bytes_));
    slot.samples.resize(static_cast<size_t>(most_));
    for (const FieldPlace& place : places_)
      slot.batch.fields.push_back(slot.memory.get() + place.offset);
  }
}

int64_t Loader::Pipeline::staging_bytes() const {
  const int64_t batch = slot_bytes_ + most_ * static_cast<int64_t>(sizeof(int64_t));
  int64_t bytes = batch * static_cast<int64_t>(slots_.size()) + planner_.bytes();
  for (const Reader& reader : readers_) bytes += reader.scratch->bytes();
  return bytes + (cache_ == nullptr ? 0 : cache_->bytes());
}

void Loader::Pipeline::start_workers(int64_t count) {
  part_samples_ = std::clamp<int64_t>(most_ / (count * kPartsOfWorker), 1, kMaxPart);
  const UnpinnedScope unpinned;
  try {
    for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    stop_workers();
    throw UserError(fmt::format("cannot start {} loader threads: {}", count, error.what()));
  }
  // A thread allocates when it begins; from here on none does.
  std::unique_lock lock(mutex_);
  batch_ready_.wait(lock, [this, count] { return started_ == count; });
}

void Loader::Pipeline::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Loader::Pipeline::work(int64_t worker) {
  name_this_thread(fmt::format("loader {}", worker));
  {
    const std::lock_guard lock(mutex_);
    ++started_;
    batch_ready_.notify_one();
  }
  while (true) {
    Part part;
    {
      std::unique_lock lock(mutex_);
      work_ready_.wait(lock, [this, &part] {
        if (!stopping_ && !paused_) part = take_part();
        return stopping_ || part.slot != nullptr;
      });
      if (stopping_) return;
    }
    read_part(part, readers_[worker]);
  }
}

/// With the mutex held: the next samples to read, or no slot when there is nothing to do.
Loader::Pipeline::Part Loader::Pipeline::take_part() {
  if (filling_ == planned_) {
    if (planned_ - consumed_ == static_cast<int64_t>(slots_.size())) return {};
    Slot& slot = slot_at(planned_);
    plan_batch(slot);
    ++planned_;
    if (slot.batch.count == 0) {  // the end: as good as ready
      ++filling_;
      batch_ready_.notify_one();
      paused_ = true;
      return {};
    }
  }
  Slot& slot = slot_at(filling_);
  const Part part{.slot = &slot,
                  .begin = slot.taken,
                  .end = std::min(slot.taken + part_samples_, slot.batch.count)};
  slot.taken = part.end;
  if (slot.taken == slot.batch.count) ++filling_;
  ++parts_running_;
  return part;
}

void Loader::Pipeline::plan_batch(Slot& slot) {
  const BatchPlanner::Range range = planner_.next(slot.samples);
  slot.batch.count = range.count;
  slot.batch.is_rest = range.is_rest;
  slot.batch.begin = range.begin;
  slot.batch.end = range.end;
  slot.batch.longest = 0;
  for (int64_t i = 0; i < range.count; ++i)
    slot.batch.longest = std::max(slot.batch.longest, dataset_.length(slot.samples[i]));
  slot.taken = slot.done = slot.skipped = 0;
  slot.error = nullptr;
}

void Loader::Pipeline::read_part(const Part& part, Reader& reader) {
  const int64_t skipped = reader.scratch->skipped;
  std::exception_ptr error;
  int64_t place = part.begin;
  try {
    for (; place < part.end; ++place) {
      const TraceScope scope("sample", "loader");
      for (size_t f = 0; f < places_.size(); ++f)
        reader.out[f] =
            part.slot->memory.get() + places_[f].offset + place * places_[f].sample_bytes;
      const int64_t sample = part.slot->samples[place];
      const int64_t epoch = part.slot->batch.begin.epoch;
      dataset_.read(sample,
                    {.seed = plan_.seed, .epoch = epoch, .sample = sample},
                    reader.out,
                    *reader.scratch);
    }
  } catch (...) {
    error = std::current_exception();
  }
  finish_part(part, reader.scratch->skipped - skipped, std::move(error), place);
}

void Loader::Pipeline::finish_part(const Part& part,
                                   int64_t skipped,
                                   std::exception_ptr error,
                                   int64_t place) {
  const std::lock_guard lock(mutex_);
  Slot& slot = *part.slot;
  // The first by place, whichever thread came first.
  if (error != nullptr && (slot.error == nullptr || place < slot.error_place)) {
    slot.error = std::move(error);
    slot.error_place = place;
  }
  slot.skipped += skipped;
  slot.done += part.end - part.begin;
  --parts_running_;
  // Inside the lock: the consumer may destroy the condition variable once it holds the mutex.
  if (slot.done == slot.batch.count || parts_running_ == 0) batch_ready_.notify_one();
}

/// Until all samples of batch given_ are there.
void Loader::Pipeline::wait_for(Slot& slot) {
  const TraceScope scope("wait for batch", "loader");
  const int64_t start = now_ns();
  if (threads_.empty()) {
    while (planned_ == given_ || slot.done < slot.batch.count) {
      const Part part = take_part();
      if (part.slot != nullptr) read_part(part, readers_[0]);
    }
  } else {
    std::unique_lock lock(mutex_);
    batch_ready_.wait(lock,
                      [this, &slot] { return planned_ > given_ && slot.done == slot.batch.count; });
  }
  stats_.wait_seconds += static_cast<double>(now_ns() - start) * 1e-9;
}

const Batch& Loader::Pipeline::next() {
  Slot& held = slot_at(given_);
  if (at_consumer_ && held.batch.count > 0 && held.error == nullptr) {
    {
      const std::lock_guard lock(mutex_);
      consumed_ = std::max(consumed_, ++given_ - kept_);
    }
    work_ready_.notify_all();
    at_consumer_ = false;
  }
  Slot& slot = slot_at(given_);
  if (!at_consumer_) wait_for(slot);
  at_consumer_ = true;
  if (slot.error != nullptr) std::rethrow_exception(slot.error);
  if (slot.batch.count > 0) {
    ++stats_.batches;
    stats_.samples += slot.batch.count;
    stats_.skipped += slot.skipped;
  }
  return slot.batch;
}

void Loader::Pipeline::wait_until_full() {
  if (threads_.empty()) return;
  std::unique_lock lock(mutex_);
  batch_ready_.wait(lock, [this] {
    const bool all_planned = paused_ || planned_ - consumed_ == static_cast<int64_t>(slots_.size());
    return all_planned && filling_ == planned_ && parts_running_ == 0;
  });
}

void Loader::Pipeline::seek(LoaderPosition position) {
  {
    std::unique_lock lock(mutex_);
    planner_.seek(position);
    paused_ = true;
    batch_ready_.wait(lock, [this] { return parts_running_ == 0; });
    consumed_ = given_ = filling_ = planned_ = 0;
    at_consumer_ = false;
    paused_ = false;
  }
  work_ready_.notify_all();
}

Loader::Loader(const Dataset& dataset,
               const BatchPlan& plan,
               const LoaderOptions& options,
               LoaderPosition start,
               const BatchMemory& memory)
    : pipeline_(std::make_unique<Pipeline>(dataset, plan, options, start, memory)) {}

Loader::~Loader() = default;

const Batch& Loader::next() { return pipeline_->next(); }
void Loader::wait_until_full() { pipeline_->wait_until_full(); }
void Loader::seek(LoaderPosition position) { pipeline_->seek(position); }
int64_t Loader::batches_per_epoch() const { return pipeline_->planner().batches_per_epoch(); }
int64_t Loader::rest() const { return pipeline_->planner().rest(); }
int64_t Loader::samples_per_epoch() const { return pipeline_->planner().samples_per_epoch(); }
int64_t Loader::staging_bytes() const { return pipeline_->staging_bytes(); }
LoaderStats Loader::stats() const { return pipeline_->stats(); }

}  // namespace ridge::data
