// Traces made by hand, in microseconds.
#pragma once

#include <string_view>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Rows of one program on device 0. Host rows lie on `thread` (1: the main one), device rows on
/// `stream`.
class MadeTrace {
 public:
  struct Span {
    double start = 0, length = 0;
  };

  /// A row on a host thread.
  size_t host(EventKind kind, std::string_view name, Span us, int64_t thread = 1) {
    const Lane lane{.process = 10, .thread = thread, .device = -1, .name = ""};
    return add(kind, name, lane, us);
  }
  size_t op(std::string_view name, Span us, int64_t thread = 1) {
    return host(EventKind::kOperator, name, us, thread);
  }
  size_t range(std::string_view name, Span us, int64_t thread = 1) {
    return host(EventKind::kRange, name, us, thread);
  }
  /// A call of the runtime; calls are numbered from 1.
  int64_t call(std::string_view name, Span us, int64_t thread = 1) {
    const size_t row = host(EventKind::kRuntime, name, us, thread);
    builder_.set_correlation(row, ++calls_);
    return calls_;
  }
  /// Device work that a call of this number launched; -1: nobody knows who.
  size_t device(EventKind kind, std::string_view name, Span us, int64_t call, int64_t stream = 7) {
    const Lane lane{.process = 0, .thread = stream, .device = 0, .name = ""};
    const size_t row = add(kind, name, lane, us);
    builder_.set_correlation(row, call);
    return row;
  }
  /// A kernel, and the call of 5 us that launched it.
  size_t kernel(std::string_view name, double call_us, Span us, int64_t stream = 7) {
    return device(EventKind::kKernel, name, us, call("cudaLaunchKernel", {call_us, 5}), stream);
  }
  size_t copy(std::string_view name, double call_us, Span us, int64_t stream = 7) {
    return device(EventKind::kCopy, name, us, call("cudaMemcpyAsync", {call_us, 5}), stream);
  }

  TraceBuilder& builder() { return builder_; }
  Trace& trace() { return trace_; }
  /// Sorted.
  Trace done() {
    trace_.sort();
    return trace_;
  }

 private:
  static int64_t ns(double us) { return static_cast<int64_t>(us * 1000); }
  size_t add(EventKind kind, std::string_view name, const Lane& lane, Span us) {
    return builder_.add(
        kind, builder_.text(name), builder_.lane(lane), ns(us.start), ns(us.length));
  }

  Trace trace_;
  TraceBuilder builder_{trace_};
  int64_t calls_ = 0;
};

}  // namespace ridge::doctor
