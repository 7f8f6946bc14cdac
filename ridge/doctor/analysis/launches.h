// Finds the calls that put work on a device, and the work that it had to wait for.
#pragma once

#include <vector>

#include "ridge/doctor/analysis/analysis.h"

namespace ridge::doctor {

/// The device with most kernel time; -1 where there is no device work.
int32_t busiest_device(const Trace& trace);

/// By row: of device work the row of the call that launched it, else trace.size().
std::vector<size_t> find_launches(const Trace& trace);

/// Finds the operations that one operation of a device waits for: the one before it on its stream,
/// those that an event wait names, and within a captured graph the one that ended last before it.
class Producers {
 public:
  Producers(const Trace& trace, int32_t device, const std::vector<size_t>& launched_by);

  /// Rows, ascending, each once. `row` is device work of the device.
  std::vector<size_t> of(size_t row) const;
  /// Whether waits for events are recorded with what they wait for.
  bool has_event_waits() const { return has_event_waits_; }

 private:
  struct Stream {
    uint32_t lane = 0;
    std::vector<size_t> rows;      ///< By start.
    std::vector<size_t> launched;  ///< By their calls, those without one left out.
  };
  int64_t call_start(size_t row) const { return trace_.start_ns[launched_by_[row]]; }
  bool is_launched(size_t row) const { return launched_by_[row] < trace_.size(); }
  struct EventWait {
    const Stream* waiting = nullptr;
    const Stream* other = nullptr;
    int64_t waited_ns = 0, recorded_ns = 0;  ///< When the calls began.
  };
  const Stream* stream_of(int64_t process, int64_t thread) const;
  void find_streams(int32_t device);
  void find_graphs();
  void find_event_waits(int32_t device);
  void join(const EventWait& wait);

  const Trace& trace_;
  const std::vector<size_t>& launched_by_;
  std::vector<Stream> streams_;
  std::vector<size_t> previous_;                     ///< By row; size(): none.
  std::vector<size_t> in_graph_;                     ///< By row; size(): none.
  std::vector<std::pair<size_t, size_t>> by_event_;  ///< (row, producer), sorted.
  bool has_event_waits_ = false;
};

}  // namespace ridge::doctor
