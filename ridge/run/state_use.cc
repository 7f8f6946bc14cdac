#include "ridge/run/state_use.h"

#include <algorithm>
#include <shared_mutex>

namespace ridge {

// A program that comes second finds no event behind what the first wrote so far.
StateUse::StateUse(State& state, Stream& compute, Stream* copies)
    : state_(state), compute_(compute), copies_(copies) {
  const std::lock_guard lock(state_.runs_);
  number_ = state_.next_use_++;
  if (state_.backend_.is_asynchronous())
    for (StateUse* const other : state_.uses_)
      if (other->last_write_ > other->finished_) other->record();
  state_.uses_.push_back(this);
}

StateUse::~StateUse() {
  const std::lock_guard lock(state_.runs_);
  std::erase(state_.uses_, this);
  for (StateUse* const other : state_.uses_) other->seen_.erase(number_);
  for (Event* const event : {computed_, copied_})
    if (event != nullptr) state_.free_events_.push_back(event);
}

Event& StateUse::take_event(Stream& stream) {
  std::vector<Event*>& free = state_.free_events_;
  if (free.empty()) return *state_.events_.emplace_back(stream.make_event());
  Event* const event = free.back();
  free.pop_back();
  return *event;
}

// Behind all that is queued on the stream that computes.
void StateUse::record() {
  if (computed_ == nullptr) computed_ = &take_event(compute_);
  compute_.record(*computed_);
}

bool StateUse::is_behind(const StateUse& other, uint64_t run) const {
  const auto seen = seen_.find(other.number_);
  return run > std::max(other.finished_.load(), seen == seen_.end() ? 0 : seen->second);
}

void StateUse::hold_up(Stream& stream) {
  record();
  stream.wait(*computed_);
  if (copies_ == nullptr) return;
  if (copied_ == nullptr) copied_ = &take_event(*copies_);
  copies_->record(*copied_);
  stream.wait(*copied_);
}

void StateUse::wait_for_all() {
  for (StateUse* const other : state_.uses_) {
    if (other == this || !is_behind(*other, other->queued_)) continue;
    other->hold_up(compute_);
    seen_[other->number_] = other->queued_;
  }
}

void StateUse::wait_for_writers() {
  for (const StateUse* const other : state_.uses_) {
    if (other == this || !is_behind(*other, other->last_write_)) continue;
    compute_.wait(*other->computed_);
    seen_[other->number_] = other->last_write_;
  }
}

void StateUse::read(FunctionRef<void()> queue) {
  const std::shared_lock lock(state_.runs_);
  if (state_.backend_.is_asynchronous()) wait_for_writers();
  ++queued_;
  queue();
}

void StateUse::write(FunctionRef<void()> queue) {
  const std::lock_guard lock(state_.runs_);
  if (state_.backend_.is_asynchronous()) wait_for_all();
  last_write_ = ++queued_;
  const bool is_shared = state_.backend_.is_asynchronous() && state_.uses_.size() > 1;
  try {
    queue();
  } catch (...) {
    if (is_shared) record();
    throw;
  }
  if (is_shared) record();
}

}  // namespace ridge
