#include "ridge/compile/live_ranges.h"

#include <algorithm>

#include "ridge/compile/memory/memory.h"

namespace ridge {
namespace {

bool overlap(const Place& a, const Place& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

class Replay {
 public:
  explicit Replay(const EntryPlan& entry) : entry_(entry) {}

  std::vector<LiveRange> run() {
    for (size_t i = 0; i < entry_.inputs.size(); ++i)
      write(LiveRange::Kind::kInput, i, entry_.inputs[i].place, 0);
    for (size_t i = 0; i < entry_.steps.size(); ++i)
      run_step(entry_.steps[i], static_cast<int>(i) + 1);
    for (const PlanSlot& output : entry_.outputs)
      read(output.place, static_cast<int>(entry_.steps.size()) + 1);
    return std::move(ranges_);
  }

 private:
  void run_step(const PlanStep& step, int number) {
    for (const Place& place : step.inputs) read(place, number);
    if (step.workspace.bytes > 0) write(LiveRange::Kind::kWorkspace, 0, step.workspace, number);
    for (size_t i = 0; i < step.outputs.size(); ++i)
      write(LiveRange::Kind::kResult, i, step.outputs[i], number);
  }

  void read(const Place& place, int number) {
    if (place.region != Region::kArena) return;
    for (const size_t i : held_)
      if (overlap(ranges_[i].place, place)) ranges_[i].end = number;
  }

  void write(LiveRange::Kind kind, size_t index, const Place& place, int number) {
    if (place.region != Region::kArena) return;
    std::erase_if(held_, [&](size_t i) { return overlap(ranges_[i].place, place); });
    held_.push_back(ranges_.size());
    ranges_.push_back({kind, index, place, number, number});
  }

  const EntryPlan& entry_;
  std::vector<LiveRange> ranges_;
  std::vector<size_t> held_;  ///< Ranges whose bytes nothing has overwritten yet.
};

// Bytes that at least one of the places covers.
int64_t union_bytes(std::vector<Place>& places) {
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.offset < b.offset;
  });
  int64_t bytes = 0, covered = 0;
  for (const Place& place : places) {
    const int64_t end = place.offset + aligned_bytes(place.bytes);
    bytes += std::max<int64_t>(0, end - std::max(covered, place.offset));
    covered = std::max(covered, end);
  }
  return bytes;
}

}  // namespace

std::vector<LiveRange> live_ranges(const EntryPlan& entry) { return Replay(entry).run(); }

std::vector<int64_t> live_bytes(const EntryPlan& entry, const std::vector<LiveRange>& ranges) {
  std::vector<std::vector<Place>> live(entry.steps.size() + 2);
  for (const LiveRange& range : ranges)
    for (int step = range.begin; step <= range.end; ++step)
      live[static_cast<size_t>(step)].push_back(range.place);
  std::vector<int64_t> bytes;
  for (std::vector<Place>& places : live) bytes.push_back(union_bytes(places));
  return bytes;
}

}  // namespace ridge
