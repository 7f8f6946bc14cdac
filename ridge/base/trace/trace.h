// Records what Ridge itself does: scopes on every thread, cheap enough to stay in the code.
//
// Each thread writes into a buffer of its own, allocated at the thread's first event; nothing is
// locked or allocated per event. A full buffer drops events and counts them. Other recorders, such
// as that of a device, run along as sources; a profiler of the user hears of scopes by hooks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ridge/base/trace/trace_event.h"

namespace ridge {

inline constexpr size_t kDefaultTraceCapacity = size_t{1} << 15;

/// Starts recording, `events_per_thread` at most between two drains (about 80 bytes each).
void start_tracing(size_t events_per_thread = kDefaultTraceCapacity);

/// Stops it; scopes that are open now are still recorded at their end.
void stop_tracing();

/// Takes all events recorded and not yet taken, of all threads, those that ended included, and of
/// all sources. May run while others record.
TraceLog drain_trace();

/// Another recorder that runs while Ridge's own does. Its functions are called one at a time, from
/// any thread.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  /// `events`: about how many will come, as start_tracing() was given. A recorder that cannot
  /// record is no error: drain() says why in TraceLog::notes.
  virtual void start(size_t events) noexcept = 0;
  /// May be called when nothing was started.
  virtual void stop() noexcept = 0;
  /// Adds what was recorded and not yet taken, on the clock of now_ns(), in any order.
  virtual void drain(TraceLog& log) = 0;
};

/// `source` starts, stops and is drained with Ridge's own recording from now on, and must live as
/// long as the process. One that comes while tracing runs begins with the next start.
void add_trace_source(TraceSource& source);

/// Names the calling thread in traces.
void name_this_thread(std::string_view name);

/// A copy of `name` that lives as long as the process, the same pointer for the same text: for
/// names of scopes that are made at run time. Takes a lock; call it when a plan is built.
const char* intern_trace_name(std::string_view name);

/// One event as recorded; the texts must live as long as the process.
struct TraceRecord {
  const char* name = nullptr;
  const char* category = nullptr;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t thread = 0;
  int32_t stream = -1;
  bool correlated = false;
  uint64_t correlation = 0;
  const char* arg_name = nullptr;  // one number may go with it, such as bytes
  int64_t arg = 0;
};

/// Records an event on the calling thread's buffer if tracing is on. `thread` 0 is kept: it marks
/// work that no thread of this process did.
void record_event(const TraceRecord& record);

/// Who hears of scopes at their begin and end, on their threads, beside Ridge's own recording.
enum class ScopeListener : uint8_t {
  kDevice,    ///< The recorder of a device, which ties work to the scope that launched it.
  kProfiler,  ///< A profiler that the user runs the program under.
};
struct ScopeHooks {
  void (*begin)(const char* name);
  void (*end)();
};

/// From now on scopes that begin call `hooks`, which live as long as the process.
void hear_scopes(ScopeListener listener, const ScopeHooks& hooks);
/// Scopes that begin are not heard any more; those whose begin was heard still have their end
/// heard.
void stop_hearing_scopes(ScopeListener listener);
/// Whether it hears of scopes now: that of a device hears of them as long as it records. One
/// relaxed load.
bool is_heard_by(ScopeListener listener);

namespace trace_detail {
// Bits of a scope's duties: kRecords, and one bit for each listener from kFirstListener on.
inline constexpr unsigned kRecords = 1, kFirstListener = 2;
extern std::atomic<unsigned> duties;
}  // namespace trace_detail

/// True while recording: one relaxed load.
inline bool is_tracing() {
  return (trace_detail::duties.load(std::memory_order_relaxed) & trace_detail::kRecords) != 0;
}

/// The system's id of the calling thread.
int64_t this_thread_id();

/// Records the time from its construction to its destruction. While nobody listens it costs one
/// relaxed load and a branch. `name` and `category` must live as long as the process.
class TraceScope {
 public:
  TraceScope(const char* name, const char* category, int32_t stream = -1) {
    const unsigned duties = trace_detail::duties.load(std::memory_order_relaxed);
    if (duties != 0) [[unlikely]]
      begin(duties, name, category, stream);
  }
  ~TraceScope() {
    if (duties_ != 0) [[unlikely]]
      end();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// Attaches one number; a later one replaces it.
  void set_arg(const char* name, int64_t value) {
    if ((duties_ & trace_detail::kRecords) == 0) return;
    arg_name_ = name;
    arg_ = value;
  }
  void set_correlation(uint64_t id) {
    if ((duties_ & trace_detail::kRecords) == 0) return;
    correlated_ = true;
    correlation_ = id;
  }

 private:
  void begin(unsigned duties, const char* name, const char* category, int32_t stream);
  void end();

  unsigned duties_ = 0;  // those that it began
  // The rest is unset until begin(): a scope that is off writes nothing.
  bool correlated_;
  int32_t stream_;
  const char *name_, *category_, *arg_name_;
  int64_t start_ns_, arg_;
  uint64_t correlation_;
};

}  // namespace ridge
