// Made-up samples of a program that is watched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/attach/watch/watch_state.h"

namespace ridge::test {

inline constexpr int64_t kSecondNs = 1'000'000'000;
inline constexpr int64_t kStartedNs = 1'700'000'000 * kSecondNs;  // since 1970

/// A name that tries to steer terminals and to end quotes.
inline const std::string kHostile =
    "a\x1b]0;owned\x07\"b\\\n# TYPE x\r{}\xc2\x9b"
    "31m\xff\xe2\x80\xae";

inline attach::ThreadSample thread_of(pid_t number, double cpu_seconds) {
  return {.thread = number, .name = "main", .state = 'R', .cpu_seconds = cpu_seconds};
}

inline attach::ProcessSample process_of(pid_t pid, const std::string& name, double cpu_seconds) {
  attach::ProcessSample process;
  process.pid = pid;
  process.parent = pid == 100 ? 1 : 100;
  process.start_ticks = 5000 + pid;
  process.name = name;
  process.rss_bytes = int64_t{300} << 20;
  process.read_bytes = 1000;
  process.written_bytes = 2000;
  process.threads = {thread_of(pid, cpu_seconds), thread_of(pid + 1000, cpu_seconds / 2)};
  process.thread_count = 2;
  process.cpu_seconds = 1.5 * cpu_seconds;
  return process;
}

/// The input `seconds` after the start of a program that reports nothing of itself: two processes
/// that use 1.5 processors each.
inline attach::WatchInput input_at(double seconds) {
  attach::WatchInput input;
  input.wall_ns = kStartedNs + static_cast<int64_t>(seconds * 1e9);
  input.started_wall_ns = kStartedNs;
  input.tree.at_ns = 77 * kSecondNs + static_cast<int64_t>(seconds * 1e9);
  input.tree.processes = {process_of(100, "python", seconds), process_of(101, "worker", seconds)};
  return input;
}

/// The facts of a rank that has taken steps of half a second since the first second, a quarter of
/// which it waited for data.
inline attach::ProcessFacts facts_at(pid_t pid, double seconds) {
  attach::ProcessFacts facts;
  facts.pid = pid;
  facts.program = "train.py";
  facts.step_source = "optimizer";
  facts.steps = seconds < 1 ? 0 : 1 + static_cast<int64_t>((seconds - 1) / 0.5);
  facts.first_step_wall_ns = kStartedNs + kSecondNs;
  facts.last_step_wall_ns = facts.first_step_wall_ns + (facts.steps - 1) * kSecondNs / 2;
  facts.step_seconds = 0.5;
  facts.loader_seconds = 0.125 * static_cast<double>(facts.steps - 1);
  facts.loaders = {{.batch = 64, .workers = 4, .prefetch = 2, .dataset = "Pictures"}};
  return facts;
}

inline GpuSample gpu_of(int32_t number) {
  return {.number = number,
          .name = "NVIDIA H200",
          .uuid = "GPU-" + std::to_string(number),
          .kernel_time = 0.87,
          .memory_time = 0.25,
          .memory_bytes = int64_t{12} << 30,
          .memory_total_bytes = int64_t{140} << 30,
          .watts = 412,
          .watts_limit = 700,
          .joules = 1234.5,
          .sm_mhz = 1755,
          .most_sm_mhz = 1980,
          .celsius = 61,
          .held_by = {"power limit"}};
}

/// All there is: steps, two devices, a cgroup, power.
inline attach::WatchInput full_input_at(double seconds) {
  attach::WatchInput input = input_at(seconds);
  input.has_shim = true;
  input.facts = {facts_at(100, seconds)};
  input.gpus = {gpu_of(0), gpu_of(1)};
  input.cpu_joules = 150;
  input.tree.cgroup = {.quota_cpus = 4,
                       .throttled_seconds = 0.25 * seconds,
                       .memory_bytes = int64_t{2} << 30,
                       .memory_limit_bytes = int64_t{8} << 30};
  return input;
}

/// After `count` inputs, a second apart.
template <typename Input>
attach::WatchState state_after(int count, Input&& input) {
  attach::WatchState state;
  state.usable_cpus = 8;
  state.price_per_hour = 3.6;
  for (int i = 0; i < count; ++i) attach::advance(state, input(static_cast<double>(i)));
  return state;
}

}  // namespace ridge::test
