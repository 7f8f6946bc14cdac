// Marks and profiles of live programs, made by hand: what a shim and torch.profiler would write.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "tests/doctor/made_trace.h"

namespace ridge::doctor {

/// Steps one after the other, each `step_ms` long and what is saved in it.
struct Marks {
  int steps = 0;
  double step_ms = 10, loader_ms = 0;
  int save_each = 0;
  double save_ms = 0;
  std::string loader = "DataLoader.__next__";
  std::map<int, double> slow{};  ///< Other lengths of some.
  int profiled_from = 0, profiled_to = 0;
};

inline Trace marks_of(const Marks& marks) {
  MadeTrace made;
  double at = 0, profiled = 0;
  for (int step = 0; step < marks.steps; ++step) {
    const auto slow = marks.slow.find(step);
    double length = slow == marks.slow.end() ? marks.step_ms : slow->second;
    if (marks.loader_ms > 0) made.range(marks.loader, {1000 * at, 1000 * marks.loader_ms});
    if (marks.save_each > 0 && step % marks.save_each == marks.save_each - 1) {
      made.range("torch.save", {1000 * (at + length - 0.5), 1000 * marks.save_ms});
      length += marks.save_ms;
    }
    made.range(fmt::format("Step#{}", step + 1), {1000 * at, 1000 * length});
    if (step == marks.profiled_from) profiled = at;
    at += length;
    if (step + 1 == marks.profiled_to)
      made.range("ridge profiling", {1000 * profiled + 1, 1000 * (at - profiled) - 2});
  }
  made.trace().recorder = "kineto";
  made.trace().source = "train.py";
  return made.done();
}

/// Calls of one operator.
struct Layer {
  std::string name = "aten::linear";
  std::string shapes = "[[64, 256], [256, 256], [256]]";
  /// Length of a call; time between the last one's end and this one.
  double us = 1000, gap_us = 5;
  int times = 1;
  std::string frame{};  ///< Frame of the interpreter around the calls.
};

/// Eight steps; the layers come one after the other at its end, after what loads data.
struct Profile {
  double step_ms = 10, loader_ms = 0, device_ms = 0;
  std::vector<Layer> layers{};
  std::string loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
};

inline void add_calls(MadeTrace& made, const Layer& layer, double& at) {
  const double begin = at;
  for (int i = 0; i < layer.times; ++i) {
    at += layer.gap_us;
    const size_t row = made.op(layer.name, {at, layer.us});
    Details details;
    details.shapes = made.builder().text(layer.shapes);
    made.builder().set(row, details);
    at += layer.us;
  }
  if (!layer.frame.empty()) made.host(EventKind::kPython, layer.frame, {begin, at - begin + 1});
}

inline Trace profile_of(const Profile& profile) {
  MadeTrace made;
  for (int step = 0; step < 8; ++step) {
    double at = 1000 * profile.step_ms * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 1000 * profile.step_ms});
    if (profile.device_ms > 0) made.kernel("gemm", at, {at + 5, 1000 * profile.device_ms});
    if (profile.loader_ms > 0) made.range(profile.loader, {at, 1000 * profile.loader_ms});
    at += 1000 * profile.loader_ms;
    for (const Layer& layer : profile.layers) add_calls(made, layer, at);
  }
  made.trace().recorder = "kineto";
  made.trace().source = "train.py";
  return made.done();
}

}  // namespace ridge::doctor
