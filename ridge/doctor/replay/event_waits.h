// Which record of an event a call waits for, and on which streams: as the recorder says, or else as
// the order of the calls suggests.
#pragma once

#include <unordered_map>

#include "ridge/doctor/replay/timeline.h"

namespace ridge::doctor {

class EventWaits {
 public:
  using Call = Timeline::Call;

  explicit EventWaits(const Timeline& timeline);

  /// The stream that the recorder names for a synchronization; Trace::kNone: it names none.
  uint32_t named_stream(const Call& call) const;
  /// The call that recorded the event which `wait`, at `position` of its thread, waits for; null:
  /// not known. `waiting`: the stream that waits, or Trace::kNone for the host.
  const Call* record_for(const Call& wait, size_t position, uint32_t waiting) const;
  /// The stream that the event was recorded on; Trace::kNone: not known.
  uint32_t recorded_stream(const Call& wait, const Call& record) const;

 private:
  /// The row in which the recorder describes a synchronization; Timeline::kNone: there is none.
  size_t row_of(const Call& call) const;
  /// What the recorder says that a call waited for; null: nothing.
  const Sync* named_sync(const Call& call) const;

  const Timeline& timeline_;
  const Trace& trace_;
  std::unordered_map<int64_t, size_t> row_of_correlation_;  ///< Synchronizations.
  std::unordered_map<int64_t, size_t> call_of_correlation_;
};

}  // namespace ridge::doctor
