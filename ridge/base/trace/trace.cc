#include "ridge/base/trace/trace.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"

namespace ridge {

namespace trace_detail {
std::atomic<unsigned> duties{0};
}  // namespace trace_detail

namespace {

using trace_detail::duties;
using trace_detail::kFirstListener;
using trace_detail::kRecords;

constexpr size_t kListeners = 2;
std::atomic<const ScopeHooks*> scope_hooks[kListeners];

constexpr unsigned duty_of(size_t listener) { return kFirstListener << listener; }

// A ring with one writer, its thread, and one reader at a time, who holds the registry's lock.
class Buffer {
 public:
  explicit Buffer(size_t capacity) : records_(capacity) {}

  size_t capacity() const { return records_.size(); }

  void write(const TraceRecord& record) {
    const uint64_t written = written_.load(std::memory_order_relaxed);
    if (written - taken_.load(std::memory_order_acquire) == records_.size()) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    records_[written % records_.size()] = record;
    written_.store(written + 1, std::memory_order_release);
  }

  template <typename Take>
  int64_t drain(Take take) {
    const uint64_t written = written_.load(std::memory_order_acquire);
    uint64_t next = taken_.load(std::memory_order_relaxed);
    for (; next != written; ++next) take(records_[next % records_.size()]);
    taken_.store(next, std::memory_order_release);
    return dropped_.exchange(0, std::memory_order_relaxed);
  }

  // Its thread will write no more: the next drain is the last.
  std::atomic<bool> retired{false};

 private:
  std::vector<TraceRecord> records_;
  alignas(64) std::atomic<uint64_t> written_{0};
  std::atomic<int64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> taken_{0};
};

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::map<int64_t, std::string> thread_names;
  std::set<std::string, std::less<>> names;
  std::atomic<size_t> capacity{kDefaultTraceCapacity};
  // Held while sources run; one may take the other lock then.
  std::mutex sources_mutex;
  std::vector<TraceSource*> sources;
};

// Never destroyed: threads may record while the program exits.
Registry& registry() {
  static Registry* const made = new Registry;
  return *made;
}

// A fork while another thread holds the lock would leave it locked in the child for ever, so the
// forking thread takes it first.
void lock_for_fork() {
  registry().sources_mutex.lock();
  registry().mutex.lock();
}
void unlock_after_fork() {
  registry().mutex.unlock();
  registry().sources_mutex.unlock();
}

[[maybe_unused]] const int kForkHandlers =
    pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);

// The calling thread's buffer, retired when the thread ends.
struct LocalBuffer {
  std::shared_ptr<Buffer> buffer;
  ~LocalBuffer() {
    if (buffer) buffer->retired.store(true, std::memory_order_release);
  }
};

Buffer& local_buffer() {
  thread_local LocalBuffer local;
  const size_t capacity = registry().capacity.load(std::memory_order_relaxed);
  if (local.buffer == nullptr || local.buffer->capacity() != capacity) [[unlikely]] {
    auto fresh = std::make_shared<Buffer>(capacity);
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().buffers.push_back(fresh);
    if (local.buffer) local.buffer->retired.store(true, std::memory_order_release);
    local.buffer = std::move(fresh);
  }
  return *local.buffer;
}

TraceEvent event_of(const TraceRecord& record) {
  TraceEvent event;
  event.name = record.name;
  event.category = record.category;
  event.start_ns = record.start_ns;
  event.duration_ns = record.duration_ns;
  event.thread = record.thread;
  event.stream = record.stream;
  if (record.correlated) event.correlation = record.correlation;
  if (record.arg_name) event.args.emplace_back(record.arg_name, record.arg);
  return event;
}

}  // namespace

void start_tracing(size_t events_per_thread) {
  check_internal(events_per_thread > 0, "[start_tracing] buffers of no events");
  Registry& all = registry();
  all.capacity.store(events_per_thread, std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(all.sources_mutex);
    for (TraceSource* source : all.sources) source->start(events_per_thread);
  }
  duties.fetch_or(kRecords, std::memory_order_seq_cst);
}

void stop_tracing() {
  duties.fetch_and(~kRecords, std::memory_order_seq_cst);
  const std::lock_guard<std::mutex> lock(registry().sources_mutex);
  for (TraceSource* source : registry().sources) source->stop();
}

void add_trace_source(TraceSource& source) {
  const std::lock_guard<std::mutex> lock(registry().sources_mutex);
  registry().sources.push_back(&source);
}

void hear_scopes(ScopeListener listener, const ScopeHooks& hooks) {
  const auto at = static_cast<size_t>(listener);
  scope_hooks[at].store(&hooks, std::memory_order_release);
  duties.fetch_or(duty_of(at), std::memory_order_seq_cst);
}

void stop_hearing_scopes(ScopeListener listener) {
  duties.fetch_and(~duty_of(static_cast<size_t>(listener)), std::memory_order_seq_cst);
}

bool is_heard_by(ScopeListener listener) {
  return (duties.load(std::memory_order_relaxed) & duty_of(static_cast<size_t>(listener))) != 0;
}

TraceLog drain_trace() {
  TraceLog log;
  log.wall_minus_steady_ns = wall_ns() - now_ns();
  Registry& all = registry();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    std::erase_if(all.buffers, [&](const std::shared_ptr<Buffer>& buffer) {
      // Asked before the drain: what the thread wrote before it ended is seen by it.
      const bool last = buffer->retired.load(std::memory_order_acquire);
      log.dropped +=
          buffer->drain([&](const TraceRecord& record) { log.events.push_back(event_of(record)); });
      return last;
    });
    log.thread_names = all.thread_names;
  }
  {
    const std::lock_guard<std::mutex> lock(all.sources_mutex);
    for (TraceSource* source : all.sources) source->drain(log);
  }
  sort_events(log.events);
  return log;
}

void name_this_thread(std::string_view name) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().thread_names[this_thread_id()] = name;
}

const char* intern_trace_name(std::string_view name) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  auto found = registry().names.find(name);
  if (found == registry().names.end()) found = registry().names.emplace(name).first;
  return found->c_str();
}

int64_t this_thread_id() {
  thread_local const int64_t id = syscall(SYS_gettid);
  return id;
}

void record_event(const TraceRecord& record) {
  check_internal(record.name != nullptr && record.category != nullptr,
                 "[record_event] an event needs a name and a category");
  if (is_tracing()) local_buffer().write(record);
}

void TraceScope::begin(unsigned due, const char* name, const char* category, int32_t stream) {
  if ((due & kRecords) != 0) {
    name_ = name;
    category_ = category;
    stream_ = stream;
    correlated_ = false;
    arg_name_ = nullptr;
    local_buffer();  // the allocation may throw, which the destructor must not
    duties_ = kRecords;
  }
  for (size_t i = 0; i < kListeners; ++i) {
    if ((due & duty_of(i)) == 0) continue;
    const ScopeHooks* const hooks = scope_hooks[i].load(std::memory_order_acquire);
    if (hooks == nullptr) continue;
    hooks->begin(name);
    duties_ |= duty_of(i);
  }
  start_ns_ = now_ns();
}

void TraceScope::end() {
  const int64_t end_ns = now_ns();
  for (size_t i = kListeners; i-- > 0;) {
    if ((duties_ & duty_of(i)) == 0) continue;
    scope_hooks[i].load(std::memory_order_acquire)->end();
  }
  if ((duties_ & kRecords) == 0) return;
  TraceRecord record{.name = name_, .category = category_, .start_ns = start_ns_};
  record.duration_ns = end_ns - start_ns_;
  record.thread = this_thread_id();
  record.stream = stream_;
  record.correlated = correlated_;
  record.correlation = correlated_ ? correlation_ : 0;
  record.arg_name = arg_name_;
  record.arg = arg_name_ ? arg_ : 0;
  local_buffer().write(record);
}

}  // namespace ridge
