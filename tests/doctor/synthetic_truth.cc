#include "tests/doctor/synthetic_truth.h"

#include <algorithm>

namespace ridge::doctor::synthetic {
namespace {

// Work that `task` comes after, and is in `part`, directly or not.
void add_blocking(const std::vector<Task>& tasks,
                  size_t task,
                  Interval part,
                  std::vector<Interval>& copies,
                  std::vector<Interval>& others) {
  for (const size_t each : tasks[task].after) {
    const Task& before = tasks[each];
    if (before.at.end <= part.begin) continue;
    const Interval within{std::max(before.at.begin, part.begin), std::min(before.at.end, part.end)};
    if (within.length() > 0) (before.is_copy ? copies : others).push_back(within);
    add_blocking(tasks, each, part, copies, others);
  }
}

// A call that had blocked when the device ran dry has the time up to the next launch, but for what
// has a cause of its own.
void explain_starved(const std::vector<HostStretch>& host_time,
                     Interval gap,
                     Interval part,
                     StepTruth& step) {
  if (part.length() == 0) return;
  HostCause otherwise = HostCause::kOperators;
  auto at = std::partition_point(host_time.begin(), host_time.end(), [&](const HostStretch& each) {
    return each.at.end <= gap.begin;
  });
  if (at != host_time.end() && at->drains && at->at.begin <= gap.begin) otherwise = at->cause;
  int64_t left = part.length();
  for (; at != host_time.end() && at->at.begin < part.end; ++at) {
    const Interval within{std::max(at->at.begin, part.begin), std::min(at->at.end, part.end)};
    const HostCause cause = at->cause == HostCause::kOperators ? otherwise : at->cause;
    step.starved_by[static_cast<size_t>(cause)] += within.length();
    left -= within.length();
  }
  step.starved_by[static_cast<size_t>(HostCause::kOperators)] += left;
}

void explain_gap(const std::vector<Task>& tasks,
                 const std::vector<HostStretch>& host_time,
                 Interval gap,
                 const Task* next,
                 std::vector<StepTruth>& steps) {
  const int64_t submitted = next == nullptr ? gap.end : next->call_start;
  const Interval starved{gap.begin, std::clamp(submitted, gap.begin, gap.end)};
  const Interval rest{starved.end, gap.end};
  std::vector<Interval> copies, others;
  if (next != nullptr)
    add_blocking(tasks, static_cast<size_t>(next - tasks.data()), rest, copies, others);
  const Intervals by_copies = union_of(copies);
  const Intervals by_others = difference_of(union_of(others), by_copies);
  for (StepTruth& step : steps) {
    const auto in_step = [&](Interval part) {
      return Interval{std::max(part.begin, step.at.begin), std::min(part.end, step.at.end)};
    };
    const int64_t copied = total_length(clipped(by_copies, step.at));
    const int64_t communicated = total_length(clipped(by_others, step.at));
    step.blocked_by_copies += copied;
    step.blocked_by_communication += communicated;
    step.blocking += copied + communicated;
    step.launch += in_step(rest).length() - copied - communicated;
    step.starved += in_step(starved).length();
    explain_starved(host_time, gap, in_step(starved), step);
  }
}

}  // namespace

void find_truth(const std::vector<Task>& tasks,
                const std::vector<HostStretch>& host_time,
                std::vector<StepTruth>& steps) {
  std::vector<Interval> compute;
  std::vector<const Task*> by_start;
  for (const Task& task : tasks) {
    if (!task.computes) continue;
    compute.push_back(task.at);
    by_start.push_back(&task);
  }
  std::stable_sort(by_start.begin(), by_start.end(), [](const Task* a, const Task* b) {
    return a->at.begin < b->at.begin;
  });
  const Intervals busy = union_of(compute);
  for (StepTruth& step : steps) step.compute = total_length(clipped(busy, step.at));
  const Interval whole{steps.front().at.begin, steps.back().at.end};
  for (const Interval& gap : difference_of({{0, whole.end}}, busy)) {
    const auto next = std::partition_point(by_start.begin(), by_start.end(), [&](const Task* task) {
      return task->at.begin < gap.end;
    });
    explain_gap(tasks, host_time, gap, next == by_start.end() ? nullptr : *next, steps);
  }
}

}  // namespace ridge::doctor::synthetic
