// The time-line of a step: what is shown lies where it was in the trace, is no longer than the
// step, and is bounded.
#include "ridge/proof/report/step_timeline.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "ridge/base/trace/trace.h"
#include "ridge/tune/engine/engine_variant.h"

namespace ridge {
namespace {

constexpr int64_t kMs = 1'000'000;

TraceEvent event(const char* name, int64_t thread, int64_t start_ns, int64_t end_ns) {
  TraceEvent made;
  made.name = name;
  made.thread = thread;
  made.start_ns = start_ns;
  made.duration_ns = end_ns - start_ns;
  return made;
}

TraceLog log_of(std::vector<TraceEvent> events) {
  TraceLog log;
  log.events = std::move(events);
  log.thread_names = {{7, "main"}, {8, "loader 0"}};
  sort_events(log.events);
  return log;
}

TEST(StepTimeline, IsWhatLayInTheWindow) {
  const TraceLog log = log_of({
      event("earlier", 7, 80 * kMs, 99 * kMs),
      event("loader wait", 7, 100 * kMs, 103 * kMs),
      event("head:matmul", 7, 104 * kMs, 108 * kMs),
      event("inner", 7, 105 * kMs, 106 * kMs),
      event("sample", 8, 95 * kMs, 102 * kMs),   // begun before
      event("sample", 8, 106 * kMs, 115 * kMs),  // goes on after
      event("later", 7, 110 * kMs, 111 * kMs),
      event("on no stream of a device", 0, 104 * kMs, 105 * kMs),
      event("other", 9, 101 * kMs, 102 * kMs),
  });
  const StepTimeline timeline = make_timeline(
      log, {.start_ns = 100 * kMs, .end_ns = 110 * kMs, .thread = 7}, {{"head:matmul", "matmul"}});
  EXPECT_DOUBLE_EQ(timeline.step_ms, 10);
  EXPECT_EQ(timeline.merged, 0);
  struct Expected {
    const char *name, *row, *site;
    double start, duration;
  };
  const Expected expected[] = {{"loader wait", "step", "", 0, 3},
                               {"matmul", "step", "head:matmul", 4, 4},
                               {"sample", "loader 0", "", 0, 2},
                               {"sample", "loader 0", "", 6, 4},
                               {"other", "thread 9", "", 1, 1}};
  ASSERT_EQ(timeline.launches.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const StepLaunch& launch = timeline.launches[i];
    EXPECT_EQ(launch.name, expected[i].name);
    EXPECT_EQ(launch.row, expected[i].row) << launch.name;
    EXPECT_EQ(launch.site, expected[i].site);
    EXPECT_DOUBLE_EQ(launch.start_ms, expected[i].start) << launch.name;
    EXPECT_DOUBLE_EQ(launch.duration_ms, expected[i].duration) << launch.name;
  }
}

// Work of a device has a row a stream, and the op of the scope that launched it.
TEST(StepTimeline, ADeviceHasItsStreams) {
  TraceEvent kernel = event("gemm_128x128", 0, 104 * kMs, 107 * kMs);
  kernel.stream = 13;
  kernel.category = "kernel";
  kernel.args = {{"device", int64_t{0}}, {"site", std::string("head:matmul")}};
  TraceEvent copy = event("Memcpy HtoD (Pinned -> Device)", 0, 103 * kMs, 105 * kMs);
  copy.stream = 14;
  TraceEvent wait = event("Stream Wait Event", 0, 103 * kMs, 104 * kMs);
  wait.stream = 13;
  wait.category = "cuda_sync";
  TraceEvent all = event("Context Sync", 0, 103 * kMs, 104 * kMs);
  const StepTimeline timeline = make_timeline(
      log_of({kernel, copy, wait, all, event("head:matmul", 7, 103 * kMs, 104 * kMs)}),
      {.start_ns = 100 * kMs, .end_ns = 110 * kMs, .thread = 7},
      {{"head:matmul", "matmul"}});
  ASSERT_EQ(timeline.launches.size(), 3u);
  EXPECT_EQ(timeline.launches[0].row, "step");
  EXPECT_EQ(timeline.launches[1].row, "stream 13");
  EXPECT_EQ(timeline.launches[1].name, "matmul");
  EXPECT_EQ(timeline.launches[1].site, "head:matmul");
  EXPECT_DOUBLE_EQ(timeline.launches[1].start_ms, 4);
  EXPECT_DOUBLE_EQ(timeline.launches[1].duration_ms, 3);
  EXPECT_EQ(timeline.launches[2].row, "stream 14");
  EXPECT_EQ(timeline.launches[2].name, "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(timeline.launches[2].site, "");
}

// Whatever the step launches: bounded, in order, without overlap, and the longest stay as they are.
TEST(StepTimeline, TheShortestBecomeOneWithTheirNeighbours) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<TraceEvent> events;
    std::multiset<int64_t> durations;
    for (int64_t thread = 7; thread < 7 + round % 4 + 1; ++thread) {
      int64_t at = 0;
      const size_t count = random() % 900;
      for (size_t i = 0; i < count; ++i) {
        const auto length = static_cast<int64_t>(random() % 3 == 0 ? random() % 100 : 5) + 1;
        events.push_back(event("x", thread, at, at + length));
        durations.insert(length);
        at += length + static_cast<int64_t>(random() % 4);
      }
    }
    constexpr size_t kMost = 100;
    const size_t all = events.size();
    const StepTimeline timeline = make_timeline(
        log_of(std::move(events)), {.start_ns = 0, .end_ns = 100 * kMs, .thread = 7}, {}, kMost);
    EXPECT_LE(timeline.launches.size(), std::max(kMost, std::min(all, kMost)));
    std::map<std::string, double> end;
    size_t shown = 0;
    int64_t hidden = 0;
    double busy = 0;
    for (const StepLaunch& launch : timeline.launches) {
      EXPECT_GE(launch.start_ms, end[launch.row] - 1e-9);
      end[launch.row] = launch.start_ms + launch.duration_ms;
      busy += launch.duration_ms;
      if (launch.name.ends_with(kShortOnes))
        hidden += std::stoll(launch.name);
      else
        ++shown;
    }
    EXPECT_EQ(hidden, timeline.merged);
    EXPECT_EQ(shown + static_cast<size_t>(hidden), all);
    double spent = 0;
    for (int64_t length : durations) spent += 1e-6 * static_cast<double>(length);
    EXPECT_GE(busy, spent - 1e-9);
    if (all <= kMost) {
      EXPECT_EQ(hidden, 0);
    } else {
      const int64_t longest = *durations.rbegin();
      size_t whole = 0;
      for (const StepLaunch& launch : timeline.launches)
        whole +=
            launch.name == "x" && launch.duration_ms > 1e-6 * (static_cast<double>(longest) - 0.5);
      EXPECT_TRUE(durations.count(longest) > 40 || whole == durations.count(longest));
    }
  }
}

TEST(StepTimeline, NothingRecordedIsNothingShown) {
  const StepTimeline timeline =
      make_timeline({}, {.start_ns = 5, .end_ns = 5 + kMs, .thread = 7}, {});
  EXPECT_TRUE(timeline.launches.empty());
  EXPECT_DOUBLE_EQ(timeline.step_ms, 1);
}

std::string config(const std::string& more) {
  return "[model]\nkind = 'mlp'\nhidden = [64, 64]\noutputs = 3\n[data]\nkind = 'random'\n"
         "shape = [32]\nsamples = 512\nclasses = 3\n" +
         more;
}

// A real step, with and without threads that load: the row of the step is what ran in it, one after
// the other, within its wall time.
TEST(StepTimeline, AStepOfTheEngineLiesWithinItsWallTime) {
  for (const char* workers : {"0", "2"}) {
    EngineVariant variant(config("[loader]\nworkers = " + std::string(workers) +
                                 "\n[train]\nbatch = 64\nsteps = 100\nout = 'never-made'\n"),
                          0);
    variant.run(2);
    const StepTimeline timeline = variant.timeline(3);
    EXPECT_FALSE(is_tracing());
    double busy = 0, end = 0;
    std::set<std::string> names, sites;
    for (const StepLaunch& launch : timeline.launches) {
      EXPECT_GE(launch.start_ms, 0);
      EXPECT_GE(launch.duration_ms, 0);
      EXPECT_LE(launch.start_ms + launch.duration_ms, timeline.step_ms * (1 + 1e-9));
      if (launch.row != kStepRow) continue;
      EXPECT_GE(launch.start_ms, end - 1e-9) << launch.name;
      end = launch.start_ms + launch.duration_ms;
      busy += launch.duration_ms;
      names.insert(launch.name);
      if (!launch.site.empty()) sites.insert(launch.site);
    }
    EXPECT_GT(timeline.step_ms, 0);
    EXPECT_LE(busy, timeline.step_ms * (1 + 1e-9));
    // With threads of the loader a batch mostly lies ready; whether it does is up to the machine.
    if (*workers == '0') {
      EXPECT_TRUE(names.contains("loading"));
    }
    EXPECT_TRUE(names.contains("log_metrics"));
    EXPECT_TRUE(names.contains("matmul"));
    EXPECT_GE(sites.size(), 6u);  // products and fused loops, forth and back
    // Steps that are timed are not traced.
    variant.run(2);
    EXPECT_TRUE(drain_trace().events.empty());
    EXPECT_FALSE(std::filesystem::exists("never-made"));
  }
}

TEST(StepTimeline, TracingChangesNoState) {
  const std::string text = config("[train]\nbatch = 64\nsteps = 100\n[loader]\nworkers = 0\n");
  EngineVariant plain(text, 0), traced(text, 0);
  plain.run(3);
  traced.timeline(3);
  EXPECT_EQ(traced.state_hash(), plain.state_hash());
}

}  // namespace
}  // namespace ridge
