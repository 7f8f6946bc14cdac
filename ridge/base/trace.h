// Records what Ridge itself does: scopes on every thread, cheap enough to stay in the code.
//
// Each thread writes into a buffer of its own, allocated at the thread's first event; nothing is
// locked or allocated per event. A full buffer drops events and counts them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ridge/base/trace_event.h"

namespace ridge {

inline constexpr size_t kDefaultTraceCapacity = size_t{1} << 15;

/// Starts recording, `events_per_thread` at most between two drains (about 80 bytes each).
void start_tracing(size_t events_per_thread = kDefaultTraceCapacity);

/// Stops it; scopes that are open now are still recorded at their end.
void stop_tracing();

/// Takes all events recorded and not yet taken, of all threads, those that ended included. May
/// run while others record.
TraceLog drain_trace();

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

namespace trace_detail {
extern std::atomic<bool> enabled;
}  // namespace trace_detail

/// True while recording: one relaxed load.
inline bool is_tracing() { return trace_detail::enabled.load(std::memory_order_relaxed); }

/// The system's id of the calling thread.
int64_t this_thread_id();

/// Records the time from its construction to its destruction. While tracing is off it costs one
/// relaxed load and a branch. `name` and `category` must live as long as the process.
class TraceScope {
 public:
  TraceScope(const char* name, const char* category, int32_t stream = -1) {
    if (is_tracing()) [[unlikely]]
      begin(name, category, stream);
  }
  ~TraceScope() {
    if (active_) [[unlikely]]
      end();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// Attaches one number; a later one replaces it.
  void set_arg(const char* name, int64_t value) {
    if (!active_) return;
    arg_name_ = name;
    arg_ = value;
  }
  void set_correlation(uint64_t id) {
    if (!active_) return;
    correlated_ = true;
    correlation_ = id;
  }

 private:
  void begin(const char* name, const char* category, int32_t stream);
  void end();

  bool active_ = false;
  // The rest is unset until begin(): a scope that is off writes nothing.
  bool correlated_;
  int32_t stream_;
  const char *name_, *category_, *arg_name_;
  int64_t start_ns_, arg_;
  uint64_t correlation_;
};

}  // namespace ridge
