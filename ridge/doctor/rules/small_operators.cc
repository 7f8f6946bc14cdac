#include "ridge/doctor/rules/small_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/matrix_roof.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

// Overhead of a call, as a multiple of what the smallest quarter of a program's calls takes: those
// do little else than choose a kernel, make the result and split the work.
constexpr double kTimesSmallest = 2;
constexpr double kLeastCallUs = 3, kMostCallUs = 10;
constexpr double kMostRecordingNs = 3000;  // Most time that a profiler adds to a call.

// True of operators whose first input has a sample a row.
bool takes_samples(std::string_view name) {
  return name == "aten::linear" || name == "aten::conv1d" || name == "aten::conv2d" ||
         name == "aten::conv3d" || name == "aten::embedding" || name == "aten::lstm" ||
         name == "aten::matmul";
}

// "/usr/lib/python3.11/random.py", "torch/nn/modules/linear.py(130): forward"; recorders leave the
// folders of sys.path away, so that modules of the standard library look like the program's own.
bool is_own_frame(std::string_view name) {
  static constexpr std::string_view kNotOwn[] = {
      "torch/", "site-packages/", "dist-packages/", "/lib/python", "ridge-shim-"};
  static constexpr std::string_view kStandard[] = {"_collections_abc",
                                                   "abc",
                                                   "collections/",
                                                   "concurrent/",
                                                   "contextlib",
                                                   "copy",
                                                   "enum",
                                                   "functools",
                                                   "importlib/",
                                                   "multiprocessing/",
                                                   "runpy",
                                                   "threading",
                                                   "typing",
                                                   "weakref"};
  if (name.find(".py(") == name.npos || name.starts_with('<') || holds_any(name, kNotOwn))
    return false;
  return std::ranges::none_of(kStandard, [&](std::string_view module) {
    return name.starts_with(module) &&
           (module.ends_with('/') || name.substr(module.size()).starts_with(".py("));
  });
}

// "train.py(12): forward" with the line of "train.py:20", where that is in the same file.
std::string at_line(std::string_view frame, std::string_view line) {
  const size_t open = frame.rfind(".py(") + 3, colon = line.rfind(':');
  const size_t close = frame.find(')', open);
  if (colon == line.npos || close == frame.npos || line.substr(0, colon) != frame.substr(0, open))
    return std::string(frame);
  return fmt::format("{}({}{}", frame.substr(0, open), line.substr(colon + 1), frame.substr(close));
}

struct Call {
  size_t row = 0;
  int64_t own_ns = 0;  // less what it calls
  size_t outer = 0;    // In the list of calls; its own place: nothing calls it.
  bool updates = false;
};

bool covers(const Intervals& set, size_t& from, int64_t time) {
  while (from < set.size() && set[from].end <= time) ++from;
  return from < set.size() && set[from].begin <= time;
}

class Measure {
 public:
  Measure(const Trace& trace, const Analysis& analysis)
      : trace_(trace),
        analysis_(analysis),
        steps_(static_cast<double>(std::max<size_t>(1, analysis.steps.windows.size()))) {
    find_calls();
  }

  SmallOperators measured() {
    if (calls_.empty()) return std::move(found_);
    find_recording();
    find_cost_of_call();
    count_calls();
    find_samples();
    add_up();
    found_.place = analysis_.place.share > 0 ? analysis_.place : place();
    return std::move(found_);
  }

 private:
  void find_calls();
  void nest(size_t row, bool updates);
  void find_recording();
  void find_cost_of_call();
  void count_calls();
  void find_samples();
  void add_up();
  bool is_thin_product(size_t row) const;
  CallPlace place() const;
  double share_of_step(double ns) const;
  std::string_view shapes_of(size_t row) const {
    if (trace_.detail[row] == Trace::kNone) return {};
    return trace_.names[trace_.details[trace_.detail[row]].shapes];
  }

  const Trace& trace_;
  const Analysis& analysis_;
  const double steps_;
  SmallOperators found_;
  std::vector<Call> calls_;
  std::vector<size_t> open_;  // Calls that have not ended, the innermost last.
  double call_ns_ = 0;
  double recording_ns_ = 0;  // Time that recording adds to each call.
};

void Measure::nest(size_t row, bool updates) {
  while (!open_.empty() && trace_.end_ns(calls_[open_.back()].row) <= trace_.start_ns[row])
    open_.pop_back();
  const size_t at = calls_.size();
  calls_.push_back({row, trace_.duration_ns[row], open_.empty() ? at : open_.front(), updates});
  if (!open_.empty()) calls_[open_.back()].own_ns -= trace_.duration_ns[row];
  open_.push_back(at);
}

// Those of the thread that trains, in steady steps; what a loader calls is the loader's.
void Measure::find_calls() {
  const uint32_t lane = analysis_.launching_lane;
  if (lane == Trace::kNone) return;
  const std::vector<HostCause> causes = causes_of(trace_);
  std::vector<Interval> loading;
  for (size_t row = 0; row < trace_.size(); ++row)
    if (trace_.lane[row] == lane && causes[row] == HostCause::kLoader)
      loading.push_back({trace_.start_ns[row], trace_.end_ns(row)});
  const Intervals fetching = union_of(std::move(loading));
  const Intervals steps =
      union_of({analysis_.steps.windows.begin(), analysis_.steps.windows.end()});
  const Intervals updates = optimizer_ranges(trace_)[lane];
  size_t fetch = 0, step = 0, update = 0;
  for (size_t row = 0; row < trace_.size(); ++row) {
    if (trace_.lane[row] != lane || trace_.kind[row] != EventKind::kOperator ||
        causes[row] != HostCause::kOperators)
      continue;
    const int64_t begin = trace_.start_ns[row];
    if (covers(steps, step, begin) && !covers(fetching, fetch, begin))
      nest(row, covers(updates, update, begin));
  }
}

// A profiler that makes steps longer does so at each call.
void Measure::find_recording() {
  if (!analysis_.unprofiled) return;
  const double slowdown = std::max(0.0, analysis_.unprofiled->slowdown);
  const double added = 1e6 * analysis_.breakdown.wall * slowdown / (1 + slowdown);
  recording_ns_ = std::min(kMostRecordingNs, added * steps_ / static_cast<double>(calls_.size()));
}

void Measure::find_cost_of_call() {
  std::vector<double> times;
  for (size_t i = 0; i < calls_.size(); ++i)
    if (calls_[i].outer == i)
      times.push_back(static_cast<double>(trace_.duration_ns[calls_[i].row]) - recording_ns_);
  const auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), quarter, times.end());
  found_.per_call_us = std::clamp(kTimesSmallest * *quarter / 1e3, kLeastCallUs, kMostCallUs);
  call_ns_ = 1e3 * found_.per_call_us;
}

// How many there are, how long they take, and which of them are alike.
void Measure::count_calls() {
  struct Alike {
    double count = 0;
    size_t row = 0;
  };
  std::map<std::pair<uint32_t, std::string_view>, Alike> groups;
  std::vector<double> times, between;
  double counted = 0, passes = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (call.outer != i) continue;
    found_.calls += 1 / steps_;
    times.push_back(static_cast<double>(trace_.duration_ns[call.row]) / 1e3);
    // Updates have as many calls as the model has tensors: R21 reports those.
    if (call.updates) continue;
    ++counted;
    Alike& alike = groups[{trace_.name[call.row], shapes_of(call.row)}];
    ++alike.count;
    alike.row = call.row;
    // A backward pass begins with ones_like of the scalar loss.
    passes +=
        trace_.name_text(call.row) == "aten::ones_like" && shapes_of(call.row).starts_with("[[]");
  }
  for (const Gap& gap : analysis_.gaps)
    if (gap.cause == HostCause::kOperators)
      between.push_back(static_cast<double>(gap.at.length()) / 1e3);
  found_.median_us = middle_of(times);
  found_.between_us = middle_of(between);
  found_.passes = std::max(1.0, std::round(passes / steps_));
  double looped = 0;
  const Alike* most = nullptr;
  for (const auto& [key, alike] : groups) {
    if (alike.count / steps_ / found_.passes >= SmallOperators::kManyAlike) looped += alike.count;
    if (most == nullptr || alike.count > most->count) most = &alike;
  }
  found_.looped = counted > 0 ? looped / counted : 0;
  if (most == nullptr) return;
  found_.most_alike = most->count / steps_;
  found_.alike = fmt::format("{} {}", trace_.name_text(most->row), shapes_of(most->row));
}

// The loader says how many samples there are, else what most operators get at once.
void Measure::find_samples() {
  found_.rows = std::max<int64_t>(0, analysis_.batch);
  if (found_.rows > 0) return;
  std::map<int64_t, size_t> counts;
  for (const Call& call : calls_) {
    if (call.updates || !takes_samples(trace_.name_text(call.row))) continue;
    const auto shapes = shapes_in(shapes_of(call.row));
    if (!shapes.empty() && shapes[0].size() >= 2) ++counts[shapes[0][0]];
  }
  size_t most = 0;
  for (const auto& [rows, count] : counts)
    if (count > most) {
      most = count;
      found_.rows = rows;
    }
}

// All weights are read, or their gradients written, for a few rows.
bool Measure::is_thin_product(size_t row) const {
  if (found_.rows == 0 || found_.rows > SmallOperators::kFewRows) return false;
  const auto product = product_of(trace_.name_text(row), shapes_of(row), {});
  return product && (product->m == found_.rows || product->k == found_.rows);
}

// By the innermost frame of the program itself around each call, and what that frame called.
CallPlace Measure::place() const {
  struct Function {
    double calls = 0;
    std::map<uint32_t, size_t> lines;
  };
  std::map<uint32_t, Function> functions;  // By their names.
  ByName is_own(trace_, is_own_frame);
  ByName is_backward(trace_, [](std::string_view name) { return holds(name, "autograd::"); });
  std::vector<size_t> frames;  // Frames that have not ended, the innermost last.
  const auto end_before = [&](int64_t time) {
    while (!frames.empty() && trace_.end_ns(frames.back()) <= time) frames.pop_back();
  };
  size_t next = 0;
  double counted = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const size_t row = calls_[i].row;
    for (; next < row; ++next) {
      if (trace_.kind[next] != EventKind::kPython || trace_.lane[next] != trace_.lane[row])
        continue;
      end_before(trace_.start_ns[next]);
      frames.push_back(next);
    }
    if (calls_[i].outer != i || calls_[i].updates || is_backward(row)) continue;
    end_before(trace_.start_ns[row]);
    ++counted;
    size_t at = frames.size();
    while (at > 0 && !is_own(frames[at - 1])) --at;
    if (at == 0) continue;
    Function& function = functions[trace_.name[frames[at - 1]]];
    ++function.calls;
    if (at < frames.size() && trace_.detail[frames[at]] != Trace::kNone)
      ++function.lines[trace_.details[trace_.detail[frames[at]]].stack];
  }
  const auto most =
      std::ranges::max_element(functions, {}, [](const auto& each) { return each.second.calls; });
  if (most == functions.end()) return {};
  const auto& [name, function] = *most;
  const auto line =
      std::ranges::max_element(function.lines, {}, [](const auto& each) { return each.second; });
  return {.name = line == function.lines.end()
                      ? trace_.names[name]
                      : at_line(trace_.names[name], trace_.names[line->first]),
          .share = function.calls / counted};
}

// Returns the share of a step's time without what the profiler added to its calls.
double Measure::share_of_step(double ns) const {
  const double step_ns =
      1e6 * analysis_.breakdown.wall - recording_ns_ * static_cast<double>(calls_.size()) / steps_;
  return step_ns > 0 ? std::clamp(ns / steps_ / step_ns, 0.0, 1.0) : 0;
}

void Measure::add_up() {
  double overhead = 0, fixed = 0;
  std::vector<Interval> at, fixed_at;
  std::vector<double> within(calls_.size());  // Overhead within each outermost call.
  for (const Call& call : calls_) {
    const double own = std::max(0.0, static_cast<double>(call.own_ns) - recording_ns_);
    const double of_call = std::min(own, call_ns_);
    overhead += of_call;
    within[call.outer] += of_call + recording_ns_;
    if (!call.updates && !is_thin_product(call.row)) continue;
    fixed += own - of_call;
    fixed_at.push_back({trace_.start_ns[call.row], trace_.end_ns(call.row)});
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    const size_t row = calls_[i].row;
    if (calls_[i].outer == i && 2 * within[i] >= static_cast<double>(trace_.duration_ns[row]))
      at.push_back({trace_.start_ns[row], trace_.end_ns(row)});
  }
  for (const Gap& gap : analysis_.gaps) {
    const int64_t part = gap.by_cause_ns[static_cast<size_t>(HostCause::kOperators)];
    overhead += static_cast<double>(part);
    if (part > 0 && 2 * part >= gap.at.length()) at.push_back(gap.at);
  }
  found_.share = share_of_step(overhead);
  found_.fixed_share = share_of_step(overhead + fixed);
  fixed_at.insert(fixed_at.end(), at.begin(), at.end());
  found_.at = union_of(std::move(at));
  found_.fixed_at = union_of(std::move(fixed_at));
}

}  // namespace

SmallOperators small_operators(const Trace& trace, const Analysis& analysis) {
  return Measure(trace, analysis).measured();
}

}  // namespace ridge::doctor
