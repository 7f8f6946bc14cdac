// Programs on a device that runs beside the host: the bits of the CPU whatever the device's pace,
// each wait needed, and nothing queued in a step but what the plan says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/base/trace/trace.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/program.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/own_program.h"
#include "tests/support/scale.h"
#include "tests/support/small_training.h"

namespace ridge::test {
namespace {

using Schedule = LazyOptions::Schedule;

Seen run_on_cpu() {
  const auto cpu = make_cpu_backend();
  return run_on(*cpu);
}

// Every pace of the device that a test tries.
std::vector<LazyOptions> all_paces() {
  std::vector<LazyOptions> paces{{.schedule = Schedule::kAtLast}};
  for (size_t stream = 0; stream < 6; ++stream)
    paces.push_back({.schedule = Schedule::kFavored, .favored = stream});
  for (int seed = 0; seed < cases(40); ++seed)
    paces.push_back({.schedule = Schedule::kRandom, .seed = static_cast<uint64_t>(seed)});
  return paces;
}

TEST(Device, TheBitsDoNotDependOnItsPace) {
  const Seen wanted = run_on_cpu();
  for (LazyOptions pace : all_paces())
    for (const bool records : {false, true}) {
      pace.records = records;
      LazyBackend device(pace);
      EXPECT_TRUE(run_on(device) == wanted) << pace.favored << " " << pace.seed << " " << records;
    }
}

// Streams on threads: under ThreadSanitizer a missing wait is a race besides.
TEST(Device, StreamsOnThreadsGiveTheSameBits) {
  const Seen wanted = run_on_cpu();
  const auto ref = make_ref_backend(), threaded_ref = make_ref_backend(StreamMode::kThread);
  const auto threaded = make_cpu_backend(StreamMode::kThread);
  for (int i = 0; i < cases(20); ++i) EXPECT_TRUE(run_on(*threaded) == wanted);
  EXPECT_TRUE(run_on(*threaded_ref) == run_on(*ref));
}

TEST(Device, EveryWaitIsNeeded) {
  const Seen wanted = run_on_cpu();
  const auto shows = [&](const LazyOptions& mutation) {
    for (LazyOptions pace : all_paces()) {
      pace.ignored_event = mutation.ignored_event;
      pace.host_ignores_events = mutation.host_ignores_events;
      LazyBackend device(pace);
      if (!(run_on(device) == wanted)) return true;
    }
    return false;
  };
  LazyBackend counts;
  run_on(counts);
  ASSERT_EQ(counts.events(), 6u);
  for (size_t event = 0; event < counts.events(); ++event)
    EXPECT_TRUE(shows({.ignored_event = event})) << "event " << event;
  EXPECT_TRUE(shows({.host_ignores_events = true}));
  EXPECT_FALSE(shows({}));
}

std::string place_text(const Place& place) {
  return fmt::format("{}+{}", place.region == Region::kState ? 2 : 0, place.offset);
}

// The launches of a run as the log has them, from the plan alone.
std::vector<std::string> planned_launches(const EntryPlan& entry) {
  std::vector<std::string> lines;
  for (const PlanStep& step : entry.steps) {
    std::string line = "launch (";
    for (const Place& place : step.inputs) line += " " + place_text(place);
    line += " ) -> (";
    for (const Place& place : step.outputs) line += " " + place_text(place);
    line += " )";
    if (step.workspace.bytes > 0) line += " " + place_text(step.workspace);
    lines.push_back(line);
  }
  return lines;
}

// Streams 0 and 4 compute and copy. Events 2 and 3 are those of slot 0, 4 and 5 of slot 1.
std::vector<std::string> planned_run(const Plan& plan, size_t entry, int slot, bool is_replay) {
  const int copied = slot == 0 ? 2 : 4, before = slot == 0 ? 4 : 2;
  const int64_t start = slot * plan.staging_bytes / 2;
  std::vector<std::string> lines{fmt::format("1: wait for event {}", copied + 1)};
  const auto& inputs = plan.entries[entry].inputs;
  for (const PlanSlot& input : inputs)
    lines.push_back(fmt::format("1: {} bytes to 1+{}", input.place.bytes, start + input.staging));
  lines.push_back(fmt::format("1: record event {}", copied));
  lines.push_back(fmt::format("0: wait for event {}", copied));
  for (size_t i = 0; i < inputs.size();) {
    Place place = inputs[i].place;
    const int64_t staging = inputs[i].staging;
    // Inputs that lie side by side here and there go as one.
    for (++i; i < inputs.size() && inputs[i].staging == staging + place.bytes &&
              inputs[i].place.offset == place.offset + place.bytes;
         ++i)
      place.bytes += inputs[i].place.bytes;
    lines.push_back(fmt::format(
        "0: {} bytes from 1+{} to {}", place.bytes, start + staging, place_text(place)));
  }
  lines.push_back(fmt::format("0: record event {}", copied + 1));
  const auto launches = planned_launches(plan.entries[entry]);
  if (is_replay)
    lines.push_back(fmt::format("0: replay {} launches", launches.size()));
  else
    for (const std::string& launch : launches) lines.push_back("0: " + launch);
  lines.push_back(fmt::format("host waits for event {}", before));
  return lines;
}

// No allocation, no wait for a stream, and of the host's waits only those for the copies of the run
// before the last: the log is what the plan says, line by line.
TEST(Device, ASteadyStepQueuesWhatThePlanSays) {
  for (const bool records : {false, true}) {
    LazyBackend device({.records = records});
    Loop loop(device, {}, kSteps);
    const Plan& plan = loop.program().plan();
    ASSERT_GT(plan.staging_bytes, 0);
    for (int64_t step = 0; step < 12; ++step) loop.run_step(step);  // 12 steps of 3 runs, 2 of 1
    device.clear_log();
    loop.run_step(14);
    loop.program().synchronize();
    loop.run_step(15);  // nothing but the step
    device.clear_log();
    std::vector<std::string> wanted;
    int slot = -1;
    loop.run_step(21);
    for (const char* entry : {"micro", "micro", "apply"}) {
      if (slot < 0) slot = device.log()[0] == "1: wait for event 3" ? 0 : 1;
      const auto lines = planned_run(plan, loop.program().entry(entry), slot, records);
      wanted.insert(wanted.end(), lines.begin(), lines.end());
      slot = 1 - slot;
    }
    EXPECT_EQ(device.log(), wanted);
  }
}

TEST(Device, StagingIsPartOfThePlan) {
  const auto cpu = make_cpu_backend(), threaded = make_cpu_backend(StreamMode::kThread);
  ProgramGraphs graphs = small_training(), same = small_training();
  const Plan host = make_plan(graphs, *cpu, {}), device = make_plan(same, *threaded, {});
  EXPECT_EQ(host.staging_bytes, 0);
  EXPECT_EQ(device.staging_bytes, 2 * (kRows.bytes() + kRow.bytes()));  // micro's x and part
  EXPECT_EQ(device.total_bytes(), host.total_bytes() + device.staging_bytes);
  EXPECT_EQ(print(host).find("stag"), std::string::npos);
  EXPECT_THAT(print(device), testing::HasSubstr(fmt::format(" staging {}\n", 2 * 1088)));
  EXPECT_THAT(print(device), testing::HasSubstr("  staged \"part\" at 1024\n"));
}

size_t count(const std::vector<std::string>& log, std::string_view text) {
  return static_cast<size_t>(std::count_if(log.begin(), log.end(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  }));
}

TEST(Device, AnEntryIsRecordedAfterItsFirstRun) {
  LazyBackend device({.records = true});
  Loop loop(device, {}, kSteps);
  Program& program = loop.program();
  const size_t apply = program.entry("apply"),
               launches = program.plan().entries[apply].steps.size();
  Tensor hyper(kRow);
  const auto run = [&] {
    device.clear_log();
    program.write_scalars(program.input(apply, "hyper"), hyper.data());
    program.run(apply);
  };
  run();
  EXPECT_EQ(count(device.log(), "0: launch"), launches);
  EXPECT_FALSE(program.is_recorded(apply));
  run();
  EXPECT_EQ(count(device.log(), "recorded: launch"), launches);
  EXPECT_EQ(count(device.log(), "0: replay"), 1u);
  EXPECT_TRUE(program.is_recorded(apply));
  run();
  EXPECT_EQ(count(device.log(), "launch"), 1u);  // "replay 3 launches"
  EXPECT_FALSE(program.is_recorded(program.entry("micro")));
  start_tracing();
  run();  // a trace shows each launch
  stop_tracing();
  EXPECT_EQ(count(device.log(), "0: launch"), launches);
  EXPECT_GE(drain_trace().events.size(), launches);
  run();
  // A device that records its work also records that of a replay: the first run launches one by
  // one, to show the site of each piece.
  static constexpr ScopeHooks kHooks = {[](const char*) {}, [] {}};
  hear_scopes(ScopeListener::kDevice, kHooks);
  start_tracing();
  run();
  EXPECT_EQ(count(device.log(), "0: launch"), launches);
  for (int i = 0; i < 2; ++i) {
    run();
    EXPECT_EQ(count(device.log(), "0: replay"), 1u);
    EXPECT_EQ(count(device.log(), "0: launch"), 0u);
  }
  stop_tracing();
  stop_hearing_scopes(ScopeListener::kDevice);
  const TraceLog log = drain_trace();
  const auto is_replay = [](const TraceEvent& event) { return event.name == "replay"; };
  EXPECT_EQ(std::count_if(log.events.begin(), log.events.end(), is_replay), 2);
  run();
  EXPECT_EQ(count(device.log(), "0: replay"), 1u);
  EXPECT_EQ(program.first_not_finite(apply), "");
  EXPECT_EQ(count(device.log(), "0: launch"), launches);
}

TEST(Device, CaptureIsRefusedWhereItIsAskedForAndCannotBe) {
  const Seen wanted = run_on_cpu();
  LazyBackend cannot, refuses({.records = true, .refuses_recordings = true}),
      off({.records = true});
  const auto message = [](Backend& backend) {
    try {
      run_on(backend, Capture::kOn);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(cannot),
            "device 'lazy' cannot capture the launches of a step; set train.capture to auto");
  EXPECT_EQ(message(refuses),
            "device 'lazy' cannot capture all launches of 'micro': it was asked to refuse; set "
            "train.capture to auto");
  EXPECT_EQ(message(off), "");
  EXPECT_TRUE(run_on(refuses) == wanted);
  off.clear_log();
  EXPECT_TRUE(run_on(off, Capture::kOff) == wanted);
  EXPECT_EQ(count(off.log(), "record"), count(off.log(), "record event"));
}

TEST(Device, WhyARecordingWasRefusedIsKnown) {
  LazyBackend refuses({.records = true, .refuses_recordings = true}), records({.records = true});
  for (LazyBackend* const device : {&refuses, &records}) {
    Loop loop(*device, {}, kSteps);
    loop.run();
    const Program& program = loop.program();
    for (size_t entry = 0; entry < program.entries().size(); ++entry) {
      EXPECT_EQ(program.is_recorded(entry), device == &records);
      EXPECT_EQ(program.recording_refusal(entry),
                device == &records ? "" : "it was asked to refuse");
    }
    EXPECT_EQ(program.recorded_bytes(), 0);  // it counts no memory
  }
}

// The error comes with the wait, once, and the program can go on.
TEST(Device, WrongDataAreToldByTheWait) {
  const auto run = [](Backend& backend) {
    ProgramGraphs graphs;
    Graph& g = graphs.entries.emplace_back("lookup");
    const Value ids = input(g, "ids", {DType::kI64, {2}}),
                table = input(g, "table", {DType::kF32, {4, 2}});
    g.add_output("y", embedding(table, ids));
    OwnProgram program(std::move(graphs), backend);
    Tensor table_values({DType::kF32, {4, 2}}), numbers({DType::kI64, {2}}),
        y({DType::kF32, {2, 2}});
    table_values.set(6, 1.5);
    const auto run_with = [&](double id) {
      numbers.set(1, id);
      program.write(program.input(0, "ids"), numbers.data());
      program.write(program.input(0, "table"), table_values.data());
      program.run(0);
      program.read(program.output(0, "y"), y.data());
      program.synchronize();
      return y.at(2);
    };
    for (int i = 0; i < 3; ++i) {
      EXPECT_THROW(run_with(4), UserError);
      EXPECT_EQ(run_with(3), 1.5);
    }
  };
  const auto threaded = make_cpu_backend(StreamMode::kThread);
  run(*threaded);
  for (const bool records : {false, true}) {
    LazyBackend lazy({.records = records});
    run(lazy);
  }
}

// Staged inputs of two entries would lie in one slot.
TEST(Device, InputsOfTwoEntriesAtOnceAreAFault) {
  LazyBackend device;
  Loop loop(device, {}, kSteps);
  Program& program = loop.program();
  Tensor row(kRow);
  program.write_scalars(program.input(program.entry("apply"), "hyper"), row.data());
  EXPECT_THROW(program.write(program.input(program.entry("eval"), "x"), row.data()), InternalError);
  EXPECT_THROW(program.run(program.entry("eval")), InternalError);
  program.run(program.entry("apply"));
  program.synchronize();
}

}  // namespace
}  // namespace ridge::test
