// A buffer of the state that a program makes from others.
#pragma once

#include <vector>

#include "ridge/run/launches.h"
#include "ridge/run/state.h"

namespace ridge {

class Derivation {
 public:
  /// `plan` and `backend` must outlive it.
  Derivation(const DerivationPlan& plan, Backend& backend);

  void prepare() const { launches_.prepare(); }
  /// The buffers of the state, by the plan's slots.
  void bind(const State& state, const std::vector<std::shared_ptr<StateBuffer>>& buffers);

  /// Whether a source was written since it was made, by whichever program. The state's lock is
  /// held.
  bool is_stale() const;
  /// Makes it, and returns when that is done: queued behind work that fails it would not run, and
  /// must not count as made. The state's lock is held alone. `address` gives the addresses of the
  /// plan's places, the arena's in memory that is free then.
  void make(Stream& stream, FunctionRef<void*(const Place&)> address);

 private:
  void run_launches(Stream& stream, FunctionRef<void*(const Place&)> address);
  void run_kernel(Stream& stream);

  const DerivationPlan& plan_;
  Launches launches_;
  const char* trace_name_;
  const State* state_ = nullptr;
  StateBuffer* made_ = nullptr;
  std::vector<std::shared_ptr<StateBuffer>> sources_;
};

}  // namespace ridge
