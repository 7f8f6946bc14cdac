// The state of a watched program, from samples that are made up.
#include "ridge/attach/watch/watch_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/watch_inputs.h"

namespace ridge::attach {
namespace {

using test::facts_at;
using test::full_input_at;
using test::input_at;
using test::kHostile;
using test::kSecondNs;
using test::kStartedNs;
using test::state_after;

TEST(WatchState, FirstLookKnowsNoRates) {
  const WatchState state = state_after(1, input_at);
  EXPECT_FALSE(state.load);
  EXPECT_FALSE(state.is_over);
  EXPECT_EQ(state.pid, 100);
  EXPECT_EQ(state.program, "python");
  EXPECT_LT(watts_of(state), 0);
  const auto json = nlohmann::json::parse(watch_json(state));
  EXPECT_TRUE(json.at("cpu").at("used_cpus").is_null());
}

TEST(WatchState, RatesAreThoseOfTheSamples) {
  const WatchState state = state_after(31, full_input_at);
  ASSERT_TRUE(state.load && state.steps);
  EXPECT_NEAR(state.load->cpus, 3, 1e-9);
  EXPECT_DOUBLE_EQ(cpu_limit_of(state), 4);
  EXPECT_NEAR(state.cpu_seconds, 90, 1e-6);
  EXPECT_EQ(state.steps->count, 59);
  EXPECT_NEAR(state.steps->per_second, 2, 1e-9);
  EXPECT_NEAR(state.steps->loader_share, 0.25, 1e-9);
  EXPECT_NEAR(state.steps->loader_share_ever, 0.25, 1e-9);
  EXPECT_NEAR(state.steps->since_last, 0, 1e-6);
  EXPECT_EQ(state.program, "train.py");
  EXPECT_NEAR(state.elapsed, 30, 1e-9);
  // Two devices at 412 W, and 150 J a second.
  EXPECT_NEAR(watts_of(state), 974, 1e-6);
  EXPECT_NEAR(joules_per_step(state), 487, 1e-6);
  EXPECT_NEAR(cost_so_far(state), 0.03, 1e-9);
  EXPECT_NEAR(cost_per_thousand_steps(state), 0.5, 1e-9);
  for (double seconds : state.step_history) EXPECT_NEAR(seconds, 0.5, 1e-9);
}

// Under torchrun the launcher's main thread waits all the time.
TEST(WatchState, TheMainThreadIsThatOfTheRankWhichSteps) {
  const auto launched = [](double seconds) {
    WatchInput input = full_input_at(seconds);
    input.tree.processes[0].threads = {test::thread_of(100, 0)};
    input.tree.processes[1].threads[0].queue_seconds = 0.5 * seconds;
    input.facts = {facts_at(101, seconds)};
    return input;
  };
  const WatchState state = state_after(11, launched);
  ASSERT_TRUE(state.load);
  EXPECT_EQ(state.main_pid, 101);
  EXPECT_NEAR(state.load->main_cpu, 1, 1e-9);
  EXPECT_NEAR(state.load->main_queue, 0.5, 1e-9);
  EXPECT_NEAR(state.load->cpus, 3, 1e-9);  // of all
  EXPECT_EQ(nlohmann::json::parse(watch_json(state)).at("cpu").at("main_thread_pid"), 101);
  // The main thread is the root's if the leader is not among the processes that are seen, or none
  // makes steps.
  const WatchState other = state_after(11, [&](double seconds) {
    WatchInput input = launched(seconds);
    input.facts = {facts_at(7, seconds)};
    return input;
  });
  EXPECT_EQ(other.main_pid, 100);
  EXPECT_EQ(other.load->main_cpu, 0);
  EXPECT_EQ(state_after(3, input_at).main_pid, 100);
}

TEST(WatchState, StepsOfLatelyCountNotThoseOfOld) {
  // Ten seconds at two steps a second without a wait, then one step every four seconds, all waits.
  WatchState state;
  for (int second = 0; second <= 60; ++second) {
    WatchInput input = full_input_at(std::min(second, 11));
    input.wall_ns = kStartedNs + second * kSecondNs;
    ProcessFacts& facts = input.facts[0];
    facts.loader_seconds = 0;
    if (second > 11) {
      const int slow = (second - 11) / 4;
      facts.steps += slow;
      facts.last_step_wall_ns += slow * 4 * kSecondNs;
      facts.loader_seconds = 4 * slow;
    }
    advance(state, input);
  }
  EXPECT_NEAR(state.steps->per_second, 0.25, 1e-9);
  EXPECT_NEAR(state.steps->loader_share, 1, 1e-9);
  EXPECT_NEAR(state.steps->loader_share_ever, 48.0 / 58, 1e-9);
}

// Steps are counted anew where an optimizer takes over from the calls of a module.
TEST(WatchState, StepsThatAreCountedAnewHaveTheirOwnRate) {
  WatchState state;
  for (int second = 2; second <= 50; ++second) {
    WatchInput input = full_input_at(second);
    if (second > 30) {
      ProcessFacts& facts = input.facts[0];
      facts.steps = second - 30;
      facts.first_step_wall_ns = kStartedNs + 31 * kSecondNs;
      facts.last_step_wall_ns = kStartedNs + second * kSecondNs;
    }
    const int64_t before = state.steps ? state.steps->count : 0;
    advance(state, input);
    EXPECT_GE(state.steps->count, before);
  }
  EXPECT_NEAR(state.steps->per_second, 1, 1e-9);
}

TEST(WatchState, WithoutStepsItSaysWhy) {
  EXPECT_EQ(state_after(3, input_at).why_no_steps, "not known (start it with ridge watch -- CMD)");
  const auto with_shim = [](double at) {
    WatchInput input = input_at(at);
    input.has_shim = true;
    return input;
  };
  EXPECT_NE(state_after(3, with_shim).why_no_steps.find("no Python"), std::string::npos);
  const auto without_step = [&](double at) {
    WatchInput input = with_shim(at);
    input.facts = {facts_at(100, 0)};
    return input;
  };
  EXPECT_EQ(state_after(3, without_step).why_no_steps, "none yet");
  EXPECT_LT(cost_per_thousand_steps(state_after(3, input_at)), 0);
}

TEST(WatchState, DataThatNoLoaderMakesIsNotKnown) {
  const auto without_loader = [](double at) {
    WatchInput input = full_input_at(at);
    input.facts[0].loaders.clear();
    input.facts[0].loader_seconds = 0;
    return input;
  };
  const WatchState state = state_after(20, without_loader);
  EXPECT_LT(state.steps->loader_share, 0);
  EXPECT_LT(state.steps->loader_seconds, 0);
}

TEST(WatchState, OfSeveralRanksOneLeads) {
  WatchState state;
  for (int i = 2; i < 40; ++i) {
    WatchInput input = full_input_at(i);
    // The other rank is now ahead of the first and now behind it.
    input.facts.push_back(facts_at(101, i % 2 == 0 ? i + 1 : i - 0.5));
    const int64_t before = state.steps ? state.steps->count : 0;
    const pid_t leader = state.steps ? state.steps->pid : 101;
    advance(state, input);
    EXPECT_GE(state.steps->count, before);
    EXPECT_EQ(state.steps->pid, leader);
  }
  EXPECT_EQ(state.steps->processes, 2);
  EXPECT_EQ(state.load->processes, 2);
}

TEST(WatchState, CountersNeverGoDownWhenProcessesEnd) {
  WatchState state;
  double before = 0;
  for (int i = 0; i < 20; ++i) {
    WatchInput input = full_input_at(i);
    if (i >= 10) input.tree.processes.pop_back();
    if (i >= 12) input.facts[0].steps = 1;  // broken, or of another program
    const int64_t steps = state.steps ? state.steps->count : 0;
    advance(state, input);
    EXPECT_GE(state.cpu_seconds, before);
    EXPECT_GE(state.steps ? state.steps->count : 0, steps);
    before = state.cpu_seconds;
  }
  EXPECT_GE(before, 1.5 * 19);
}

TEST(WatchState, EndsWithTheProcessAndNotWithItsNumber) {
  const auto ended = [](auto change) {
    WatchState state = state_after(3, input_at);
    WatchInput input = input_at(3);
    change(input);
    advance(state, input);
    return state.is_over;
  };
  EXPECT_FALSE(ended([](WatchInput&) {}));
  EXPECT_TRUE(ended([](WatchInput& input) { input.tree.processes.clear(); }));
  EXPECT_TRUE(ended([](WatchInput& input) { ++input.tree.processes[0].start_ticks; }));
  EXPECT_TRUE(ended([](WatchInput& input) {
    input.tree.processes[0].threads.resize(1);
    input.tree.processes[0].thread_count = 1;
    input.tree.processes[0].threads[0].state = 'Z';
  }));
  // The main thread has left, the others run.
  EXPECT_FALSE(ended([](WatchInput& input) { input.tree.processes[0].threads[0].state = 'Z'; }));
}

TEST(WatchState, WhatWasKnownLastStaysAtTheEnd) {
  WatchState state = state_after(20, full_input_at);
  WatchInput input = full_input_at(20);
  input.tree.processes.clear();
  advance(state, input);
  EXPECT_TRUE(state.is_over);
  EXPECT_EQ(state.pid, 100);
  EXPECT_EQ(state.steps->count, 39);
  EXPECT_FALSE(state.last.tree.processes.empty());
  EXPECT_NEAR(state.elapsed, 19, 1e-9);
}

TEST(WatchState, HistoriesAreBounded) {
  const WatchState state = state_after(500, full_input_at);
  EXPECT_EQ(state.step_history.size(), kWatchHistory);
  EXPECT_EQ(state.cpu_history.size(), kWatchHistory);
  EXPECT_EQ(state.gpu_history.size(), kWatchHistory);
  EXPECT_LT(state.marks.size(), 30u);
}

TEST(WatchJson, OneValidLineWhateverTheNames) {
  const auto hostile = [](double at) {
    WatchInput input = full_input_at(at);
    input.tree.processes[0].name = kHostile;
    input.facts[0].program = kHostile;
    input.facts[0].loaders[0].dataset = kHostile;
    input.gpus[0].name = kHostile;
    input.gpus[0].held_by = {kHostile};
    input.missing = {kHostile};
    return input;
  };
  const std::string line = watch_json(state_after(5, hostile));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  for (char c : line.substr(0, line.size() - 1)) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json.at("schema"), "ridge.watch/1");
  EXPECT_EQ(json.at("steps").at("count"), 7);
  EXPECT_DOUBLE_EQ(json.at("gpus").at(1).at("watts"), 412);
  EXPECT_DOUBLE_EQ(json.at("cpu").at("used_cpus"), 3);
  EXPECT_EQ(json.at("missing").size(), 1u);
}

TEST(WatchJson, WhatIsNotKnownIsNull) {
  const auto bare = [](double at) {
    WatchInput input = input_at(at);
    input.gpus = {GpuSample()};
    return input;
  };
  WatchState state = state_after(5, bare);
  state.price_per_hour = -1;
  const auto json = nlohmann::json::parse(watch_json(state));
  EXPECT_TRUE(json.at("steps").at("count").is_null());
  for (const char* key : {"kernel_time_share", "memory_bytes", "watts", "sm_mhz", "celsius"})
    EXPECT_TRUE(json.at("gpus").at(0).at(key).is_null()) << key;
  EXPECT_TRUE(json.at("power").at("cpu_watts").is_null());
  EXPECT_TRUE(json.at("cost").at("so_far").is_null());
  EXPECT_TRUE(json.at("cpu").at("quota_cpus").is_null());
}

}  // namespace
}  // namespace ridge::attach
