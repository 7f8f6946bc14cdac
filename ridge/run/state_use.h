// The order of the runs of several programs over one state.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "ridge/base/function_ref.h"
#include "ridge/run/state.h"

namespace ridge {

/// The part of one program. Runs that only read are queued at once by several threads; one that
/// writes excludes all others. Where the device runs beside the host, the streams keep that order,
/// too, by events:
///
///   a writer     waits for all that other programs have queued: their events are recorded then
///   a reader     waits for the last run of each other program that wrote: its event was recorded
///                behind that run
///
/// A program alone records and waits for nothing.
class StateUse {
 public:
  /// `copies` also reads the state; null where there is none. All must outlive it.
  StateUse(State& state, Stream& compute, Stream* copies);
  /// All that it queued has run.
  ~StateUse();
  StateUse(const StateUse&) = delete;
  StateUse& operator=(const StateUse&) = delete;

  /// Calls `queue`, which queues work that only reads the state.
  void read(FunctionRef<void()> queue);
  /// Calls `queue`, which queues work that also writes the state, and raises the versions of what
  /// it writes.
  void write(FunctionRef<void()> queue);
  /// Says that all it queued has run: nobody needs to wait for it.
  void finish() { finished_ = queued_.load(); }

 private:
  friend class State;

  Event& take_event(Stream& stream);
  void record();
  bool is_behind(const StateUse& other, uint64_t run) const;
  void wait_for_all();
  void wait_for_writers();
  /// Has `stream` wait for all that this program has queued; the state's lock is held alone.
  void hold_up(Stream& stream);

  State& state_;
  Stream& compute_;
  Stream* copies_;
  uint64_t number_ = 0;
  Event* computed_ = nullptr;  ///< Both belong to the state, and are there once they are needed.
  Event* copied_ = nullptr;
  std::atomic<uint64_t> queued_ = 0;    ///< Number of runs.
  std::atomic<uint64_t> finished_ = 0;  ///< The runs up to this one are over.
  uint64_t last_write_ = 0;             ///< The last run that wrote, from 1; behind it is an event
                                        ///< where there was another program.
  std::map<uint64_t, uint64_t> seen_;   ///< The run of each other program that it has waited for.
};

}  // namespace ridge
