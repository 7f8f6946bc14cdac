#include "ridge/doctor/replay/replay.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/doctor/simulated_program.h"

namespace ridge::doctor {
namespace {

using What = Instruction::What;

Instruction think(int64_t ns) { return {What::kThink, ns}; }
Instruction launch(int64_t ns, int stream = 0) { return {What::kLaunch, ns, stream}; }
Instruction record(int number, int stream) { return {What::kRecord, 0, stream, number}; }
Instruction wait_event(int number, int stream) { return {What::kWaitEvent, 0, stream, number}; }
Instruction sync_stream(int stream = 0) { return {What::kSyncStream, 0, stream}; }
Instruction mark() { return {What::kMark}; }

DependencyGraph graph_of(const Simulated& run) {
  auto graph = build_dependencies(run.trace, run.analysis);
  EXPECT_TRUE(graph.has_value());
  return graph ? std::move(*graph) : DependencyGraph{};
}

std::string text_of(const DependencyGraph& graph,
                    const std::vector<int64_t>& starts,
                    uint32_t number) {
  const Node& node = graph.nodes[number];
  std::string text = "node " + std::to_string(number) + " of row " + std::to_string(node.row) +
                     ", kind " + std::to_string(static_cast<int>(node.kind)) + ", after";
  for (const Edge& edge : node.after)
    text += " [node " + std::to_string(edge.from) + ", edge " +
            std::to_string(static_cast<int>(edge.kind)) + ", until " +
            std::to_string(starts[edge.from] +
                           (edge.from_end ? graph.nodes[edge.from].duration_ns : 0)) +
            " + " + std::to_string(edge.lag_ns) + "]";
  return text;
}

// Every node starts when the trace says it did.
void expect_reproduced(const DependencyGraph& graph) {
  const std::vector<int64_t> starts = replay(graph);
  for (size_t number = 0; number < starts.size(); ++number)
    ASSERT_EQ(starts[number], graph.nodes[number].start_ns)
        << text_of(graph, starts, static_cast<uint32_t>(number));
}

Program repeated(const Program& step, int times) {
  Program program;
  for (int i = 0; i < times; ++i) {
    program.insert(program.end(), step.begin(), step.end());
    program.push_back(mark());
  }
  return program;
}

TEST(Replay, OfTwoStreamsThatWaitForEachOther) {
  const Program step = {launch(200'000, 0),
                        record(1, 0),
                        wait_event(1, 1),
                        launch(300'000, 1),
                        launch(100'000, 0),
                        record(2, 1),
                        wait_event(2, 0),
                        launch(50'000, 0),
                        think(20'000)};
  const Simulated run = simulated(repeated(step, 4));
  const DependencyGraph graph = graph_of(run);
  expect_reproduced(graph);
  EXPECT_EQ(graph.contradictions, 0);
  // In a row of four steps: 200 + 1, 300 + 1, 50 + 1 us; the 100 us run beside the 300.
  EXPECT_NEAR(replayed_step(graph).replayed_ms, 0.553, 1e-9);
  WhatIf shorter(graph);
  for (size_t i = 0; i < run.work_of.size(); ++i)
    if (run.work_of[i] < run.trace.size() && run.trace.duration_ns[run.work_of[i]] == 300'000)
      shorter.set_duration(run.work_of[i], 30'000);
  // Now the 100 us are the longest between the two waits.
  EXPECT_NEAR(shorter.step_ms(), 0.353, 1e-9);
}

TEST(Replay, OfAHostThatWaitsInEveryStep) {
  const Program step = {launch(1'000'000), sync_stream(), think(400'000)};
  const Simulated run = simulated(repeated(step, 6));
  const DependencyGraph graph = graph_of(run);
  expect_reproduced(graph);
  // Launch 5 us, the kernel, 5 us to return, 400 us of thought.
  EXPECT_NEAR(replayed_step(graph).replayed_ms, 1.410, 1e-9);
  WhatIf change(graph);
  for (size_t i = 0; i < run.row_of.size(); i += 4)
    EXPECT_TRUE(change.drop_wait(run.row_of[i + 1]));
  EXPECT_FALSE(change.drop_wait(run.row_of[0])) << "a launch waits for nothing";
  EXPECT_NEAR(
      change.step_ms(), 1.001, 1e-9);  // The device alone: a kernel and the lag to the next.
}

TEST(Replay, OfAHostThatIsTheSlower) {
  const Program step = {launch(20'000), think(96'000), launch(20'000), think(96'000)};
  const Simulated run = simulated(repeated(step, 5));
  const DependencyGraph graph = graph_of(run);
  expect_reproduced(graph);
  EXPECT_NEAR(replayed_step(graph).replayed_ms, 0.200, 1e-9);
  WhatIf change(graph);
  change.capture({0, run.analysis.steps.windows.back().end});
  // 2 kernels of 20 us and a microsecond before each; the one launch is faster than that.
  EXPECT_NEAR(change.step_ms(), 0.042, 1e-3);
  WhatIf kept(graph);
  kept.capture({0, run.analysis.steps.windows.back().end},
               {{0, run.analysis.steps.windows.back().end}});
  EXPECT_GT(kept.step_ms(), 0.19) << "thought that is kept stays";
}

// Three kernels of a step as one: where the device is the slower, and where the host is.
TEST(Replay, OfKernelsThatAreFused) {
  for (const int64_t unit : {10'000, 1'000}) {
    const Program step = {launch(20 * unit),
                          launch(2 * unit),
                          think(30'000),
                          launch(2 * unit, 1),
                          think(10'000),
                          launch(2 * unit),
                          think(30'000),
                          launch(10 * unit)};
    const Program fused = {launch(20 * unit), launch(3 * unit), think(30'000), launch(10 * unit)};
    const Simulated run = simulated(repeated(step, 6));
    WhatIf change(graph_of(run));
    Intervals issuing;
    for (size_t at = 0; at < run.work_of.size(); at += step.size() + 1) {
      change.fuse(std::vector{run.work_of[at + 1], run.work_of[at + 3], run.work_of[at + 5]},
                  3 * unit);
      issuing.push_back(
          {run.trace.end_ns(run.row_of[at + 1]), run.trace.start_ns[run.row_of[at + 5]]});
    }
    change.remove_host_time(issuing);
    EXPECT_NEAR(change.step_ms(), simulated(repeated(fused, 6)).step_ms(), 1e-6) << unit;
  }
}

TEST(Replay, OfAQueueThatFills) {
  Program program;
  for (int i = 0; i < 3000; ++i) {
    program.push_back(launch(50'000));
    program.push_back(think(1'000));
    if (i % 500 == 499) program.push_back(mark());
  }
  const Simulated run = simulated(program);
  const DependencyGraph graph = graph_of(run);
  expect_reproduced(graph);
  EXPECT_NEAR(replayed_step(graph).replayed_ms, 25.5, 0.01);
  // Kernels of a tenth: the device is still the slower, 6 us each, and the host waits less.
  WhatIf change(graph);
  for (const size_t row : run.work_of)
    if (row < run.trace.size()) change.scale_duration(row, 0.1);
  EXPECT_NEAR(change.step_ms(), 3.0, 0.01);
}

TEST(Replay, OfThreadsThatTakeTurns) {
  Trace trace;
  TraceBuilder builder(trace);
  const uint32_t forward = builder.lane({.process = 1, .thread = 1}),
                 backward = builder.lane({.process = 1, .thread = 2}),
                 stream = builder.lane({.process = 0, .thread = 7, .device = 0});
  Analysis analysis;
  const uint32_t name = builder.text("cudaLaunchKernel");
  // 1 ms of each thread's calls, 20 us apart, in turn; kernels are short, so that hosts decide.
  for (int64_t turn = 0; turn < 8; ++turn)
    for (int64_t i = 0; i < 50; ++i) {
      const int64_t start = turn * 1'000'000 + i * 20'000;
      analysis.launched_by.resize(trace.size() + 2, SIZE_MAX);
      const size_t call =
          builder.add(EventKind::kRuntime, name, turn % 2 == 0 ? forward : backward, start, 5'000);
      builder.add(EventKind::kKernel, builder.text("k"), stream, start + 6'000, 3'000);
      analysis.launched_by[call + 1] = call;
    }
  analysis.steps.source = "ProfilerStep";
  for (int64_t step = 0; step < 4; ++step)
    analysis.steps.windows.push_back({step * 2'000'000, (step + 1) * 2'000'000});
  const auto graph = build_dependencies(trace, analysis);
  ASSERT_TRUE(graph);
  expect_reproduced(*graph);
  // Thought of the forward thread in its first half millisecond goes: the other comes earlier too.
  WhatIf change(*graph);
  Intervals gone;
  for (int64_t step = 0; step < 4; ++step)
    gone.push_back({step * 2'000'000, step * 2'000'000 + 500'000});
  change.remove_host_time(gone);
  EXPECT_NEAR(change.step_ms(), 2.0 - 25 * 0.015, 0.005);
}

TEST(Replay, WhatTheGraphCannotExplainIsAnError) {
  // A kernel that starts 2 ms after all that it is known to wait for.
  Trace trace;
  TraceBuilder builder(trace);
  const uint32_t host = builder.lane({.process = 1, .thread = 1}),
                 stream = builder.lane({.process = 0, .thread = 7, .device = 0});
  Analysis analysis;
  for (int64_t step = 0; step < 5; ++step) {
    builder.add(
        EventKind::kRuntime, builder.text("cudaLaunchKernel"), host, step * 3'000'000, 5'000);
    builder.add(
        EventKind::kKernel, builder.text("k"), stream, step * 3'000'000 + 2'000'000, 900'000);
    builder.add(EventKind::kRuntime,
                builder.text("cudaStreamSynchronize"),
                host,
                step * 3'000'000 + 20'000,
                2'900'000);
    analysis.launched_by.insert(analysis.launched_by.end(),
                                {SIZE_MAX, static_cast<size_t>(3 * step), SIZE_MAX});
    analysis.steps.windows.push_back({step * 3'000'000, (step + 1) * 3'000'000});
  }
  // Rows in order: the synchronisation begins before the kernel.
  for (size_t row = 1; row < trace.size(); row += 3) {
    std::swap(trace.kind[row], trace.kind[row + 1]);
    std::swap(trace.name[row], trace.name[row + 1]);
    std::swap(trace.lane[row], trace.lane[row + 1]);
    std::swap(trace.start_ns[row], trace.start_ns[row + 1]);
    std::swap(trace.duration_ns[row], trace.duration_ns[row + 1]);
    std::swap(analysis.launched_by[row], analysis.launched_by[row + 1]);
  }
  replay_steps(trace, analysis);
  ASSERT_TRUE(analysis.replay_error);
  EXPECT_GT(*analysis.replay_error, 0.5);
}

TEST(Replay, OfNothing) {
  Analysis none;
  replay_steps(Trace{}, none);
  EXPECT_FALSE(none.replay_error);
  EXPECT_FALSE(none.replay);
  Simulated run = simulated({launch(1'000), mark()});
  run.analysis.steps.windows.clear();
  EXPECT_FALSE(build_dependencies(run.trace, run.analysis));
}

// ---- random programs, against the forward simulation ----

Program random_step(std::mt19937& random) {
  const auto pick = [&](int64_t from, int64_t to) {
    return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from));
  };
  Program step;
  const int64_t length = pick(5, 60);
  for (int64_t i = 0; i < length; ++i) {
    const int stream = static_cast<int>(pick(0, 3));
    switch (pick(0, 12)) {
      case 0:
        step.push_back(record(stream, stream));
        break;
      case 1: {
        const int other = static_cast<int>(pick(0, 3));
        step.push_back(record(10 + other, other));
        if (other != stream) step.push_back(wait_event(10 + other, stream));
        break;
      }
      case 2:
        step.push_back({What::kCopyAsync, pick(1'000, 100'000), stream});
        break;
      case 3:
        step.push_back({What::kPrompt, pick(1'000, 3'000)});
        break;
      case 4:
        if (pick(0, 3) == 0) step.push_back(sync_stream(stream));
        break;
      case 5:
        if (pick(0, 6) == 0) step.push_back({What::kSyncDevice});
        break;
      case 6:
        if (pick(0, 4) == 0) {
          step.push_back(record(20, stream));
          step.push_back({What::kSyncEvent, 0, 0, 20});
        }
        break;
      case 7:
      case 8:
        step.push_back(think(pick(1'000, 80'000)));
        break;
      default:
        step.push_back(launch(pick(1'000, 60'000), stream));
        break;
    }
  }
  step.push_back(launch(pick(1'000, 60'000)));
  return step;
}

TEST(Replay, RandomProgramsAreReproducedToTheNanosecond) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Simulated run = simulated(repeated(random_step(random), 6));
    const DependencyGraph graph = graph_of(run);
    expect_reproduced(graph);
    const ReplayedStep step = replayed_step(graph);
    EXPECT_EQ(step.error(), 0);
    EXPECT_NEAR(step.replayed_ms, run.step_ms(), 1e-9);
    if (HasFatalFailure()) return;
  }
}

/// 200 random programs. `edit` makes another instruction of one, and in `change` what that means
/// for a replay of its trace; `check` is given the step that is so predicted, the one that the
/// edited program has, and the one that it had.
template <typename Edit, typename Check>
void edit_random_programs(Edit edit, Check check) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Program program = repeated(random_step(random), 6);
    const Simulated run = simulated(program);
    WhatIf change(graph_of(run));
    for (size_t i = 0; i < program.size(); ++i) edit(random, program[i], change, run, i);
    check(change.step_ms(), simulated(program).step_ms(), run.step_ms());
  }
}

TEST(Replay, ShorterKernelsOfRandomPrograms) {
  edit_random_programs(
      [](std::mt19937& random, Instruction& each, WhatIf& change, const Simulated& run, size_t i) {
        if (each.what != What::kLaunch || random() % 3 != 0) return;
        each.ns /= 2;
        change.set_duration(run.work_of[i], each.ns);
      },
      [](double predicted_ms, double truth_ms, double) {
        EXPECT_NEAR(predicted_ms, truth_ms, 1e-9);
      });
}

TEST(Replay, DroppedWaitsOfRandomPrograms) {
  int changed = 0;
  edit_random_programs(
      [](std::mt19937&, Instruction& each, WhatIf& change, const Simulated& run, size_t i) {
        if (each.what != What::kSyncStream) return;
        change.drop_wait(run.row_of[i]);
        each = {What::kPrompt, 5'000};
      },
      [&changed](double predicted_ms, double truth_ms, double before_ms) {
        changed += std::abs(truth_ms - before_ms) > 1e-6;
        // If a kernel waited for two things, only the usual lag is known of the one that held it
        // less.
        EXPECT_NEAR(predicted_ms, truth_ms, 0.001 * truth_ms);
      });
  EXPECT_GT(changed, 40);
}

TEST(Replay, CopiesOfRandomProgramsOnAStreamOfTheirOwn) {
  int changed = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // A blocking copy first, as of a batch; what follows works on it.
    Program step = random_step(random);
    // Who waits for the whole device waits for all streams, whatever is on which.
    std::erase_if(step, [](const Instruction& each) { return each.what == What::kSyncDevice; });
    step.insert(step.begin(), {What::kCopy, 100'000 + static_cast<int64_t>(random() % 400'000), 0});
    const Program before = repeated(step, 6);
    Program after = before;
    const Simulated run = simulated(before);
    WhatIf change(graph_of(run));
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i].what == What::kCopy) {
        change.move_to_own_stream(run.work_of[i], false);
        after[i] = {What::kCopyAsync, before[i].ns, 9};
      }
    const double truth = simulated(after, {}).step_ms();
    changed += std::abs(truth - run.step_ms()) > 1e-6;
    EXPECT_NEAR(change.step_ms(), truth, 0.02 * truth);
  }
  EXPECT_GT(changed, 100);
}

TEST(Replay, AGainHasABarAndACeiling) {
  const ReplayedStep exact{10, 10};
  const Gain gain = gain_between(exact, 5, 10);
  EXPECT_NEAR(gain.low, 1.7, 1e-9);  // Twice as fast, give or take 30 % of what is gained.
  EXPECT_NEAR(gain.high, 2.3, 1e-9);
  EXPECT_NEAR(gain_between(exact, 5, 2.1).high, 2.1, 1e-9);
  // Beyond the ceiling there is nothing to gain: the bar hangs from there.
  EXPECT_NEAR(gain_between(exact, 1, 2).low, 1.7, 1e-9);
  // The replay's own error of 4 % counts on twice as fast as 0.08, added in squares to 0.3.
  const Gain wide = gain_between({10, 9.6}, 4.8, 10);
  EXPECT_NEAR(wide.high - wide.low, 2 * std::sqrt(0.08 * 0.08 + 0.3 * 0.3), 1e-9);
  EXPECT_EQ(gain_between(exact, 20, 10).low, 1);
}

}  // namespace
}  // namespace ridge::doctor
