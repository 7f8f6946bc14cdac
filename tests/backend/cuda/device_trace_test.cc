// A program over the stand-in for the driver, recorded through the stand-in for CUPTI: what the
// trace has of it, what doctor makes of that, and what happens where CUPTI does not do its part.
#include "ridge/backend/cuda/trace/device_trace.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/captured_work.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "ridge/backend/cuda/trace/activity_buffers.h"
#include "ridge/backend/cuda/trace/cupti.h"
#include "ridge/base/clock.h"
#include "ridge/base/trace/chrome_trace.h"
#include "ridge/base/trace/trace.h"
#include "ridge/doctor/analysis/launches.h"
#include "ridge/doctor/examination.h"
#include "ridge/doctor/read/read_trace.h"
#include "tests/backend/cuda/fake_cupti/fake_cupti.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/trace_text.h"
#include "tests/support/count_allocations.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/succeeds_once.h"
#include "tests/support/temp_folder.h"

namespace ridge::cuda {
namespace {

using test::has;

constexpr size_t kBytes = 64;

/// Two streams, as a step has them: copies on one, kernels on the other.
struct Bench {
  explicit Bench(const DeviceRef& gpu)
      : trace(gpu),
        kernels(gpu),
        arena(gpu, kBytes),
        host(gpu, kBytes),
        copies(gpu),
        work(gpu),
        filled(gpu),
        used(gpu) {}

  void queue_add() {
    const TraceScope scope("layer.0:add", "cpu_op");
    kernels.add(work, arena.at(0, kBytes), 1, 16, {.grid_x = 3, .block_x = 16, .shared_bytes = 32});
  }
  void queue_double() {
    const TraceScope scope("layer.1:double", "cpu_op");
    kernels.double_all(work, arena.at(0, kBytes), 16, {.block_x = 16});
  }
  void step() {
    {
      const TraceScope scope("input", "cpu_op");
      copies.wait(used);
      copies.copy_to_device(arena.at(0, kBytes), host.bytes().data(), kBytes);
      copies.record(filled);
    }
    work.wait(filled);
    queue_add();
    queue_double();
    work.record(used);
  }
  void synchronize() {
    copies.synchronize();
    work.synchronize();
  }

  DeviceTrace trace;
  TestKernels kernels;
  Arena arena;
  PinnedMemory host;
  Stream copies, work;
  Event filled, used;
};

class CudaTrace : public FakeDriverTest {
 protected:
  CudaTrace()
      : cupti_(*open_stand_in<test::FakeCuptiEntry>(RIDGE_FAKE_CUPTI, test::kFakeCuptiEntry)()) {
    drain_trace();
    ::setenv("RIDGE_CUPTI", RIDGE_FAKE_CUPTI, 1);
    cupti_.reset();
    cupti_.observe(RIDGE_FAKE_CUDA);
    register_kernels(fake_);
  }
  ~CudaTrace() override {
    stop_tracing();
    drain_trace();
    EXPECT_EQ(cupti_.live(), std::vector<std::string>{});
    cupti_.reset();
    ::unsetenv("RIDGE_CUPTI");
  }

  static TraceLog recorded(size_t events, const std::function<void()>& body) {
    start_tracing(events);
    body();
    stop_tracing();
    return drain_trace();
  }
  /// `steps` steps between start and stop.
  TraceLog record(Bench& bench, int steps, size_t events = 1000) {
    return recorded(events, [&] {
      for (int i = 0; i < steps; ++i) bench.step();
    });
  }
  static std::vector<TraceEvent> of(const TraceLog& log, const std::string& category) {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : log.events)
      if (event.category == category) found.push_back(event);
    return found;
  }
  /// The call that launched it.
  static TraceEvent call_of(const TraceLog& log, const TraceEvent& kernel) {
    for (const TraceEvent& call : of(log, "cuda_driver"))
      if (call.correlation == kernel.correlation) return call;
    throw std::runtime_error("no call launched " + kernel.name);
  }
  /// How often each event of the device is there, by all that no clock decides.
  static std::map<std::string, int> counted(const TraceLog& log) {
    std::map<std::string, int> counts;
    for (const TraceEvent& event : log.events)
      if (event.category != "cpu_op")
        ++counts[fmt::format("{} {} stream {} site {}",
                             event.category,
                             event.name,
                             event.stream,
                             text(event, "site"))];
    return counts;
  }

  test::FakeCupti& cupti_;
};

TEST_F(CudaTrace, ATraceHasWhatTheDeviceDid) {
  Bench bench(device());
  const int64_t before = now_ns();
  const TraceLog log = record(bench, 3);
  EXPECT_EQ(log.notes, std::vector<std::string>{});
  EXPECT_EQ(log.dropped, 0);
  const std::vector<TraceEvent> kernels = of(log, "kernel");
  ASSERT_EQ(kernels.size(), 6u);
  for (const TraceEvent& kernel : kernels) {
    const bool is_add = kernel.name == "add";
    EXPECT_GE(kernel.start_ns, before);
    EXPECT_THAT(text_of(kernel),
                has(" + 500 ns, thread 0, stream 2,",
                    is_add ? "site layer.0:add" : "site layer.1:double",
                    is_add ? "grid [3, 1, 1]" : "grid [1, 1, 1]",
                    "block [16, 1, 1]"));
    // The call that launched it, within the scope that made the call.
    const TraceEvent call = call_of(log, kernel);
    EXPECT_EQ(call.name, "cuLaunchKernel");
    EXPECT_EQ(call.thread, this_thread_id());
    EXPECT_LE(call.start_ns, kernel.start_ns);
    const auto is_around = [&](const TraceEvent& scope) {
      return scope.category == "cpu_op" && scope.name == text(kernel, "site") &&
             scope.start_ns <= call.start_ns && call.end_ns() <= scope.end_ns();
    };
    EXPECT_EQ(std::count_if(log.events.begin(), log.events.end(), is_around), 1);
  }
  const std::vector<TraceEvent> copies = of(log, "gpu_memcpy");
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_THAT(text_of(copies[0]),
              has("Memcpy HtoD (Pinned -> Device)", "stream 1,", "bytes 64", "site input"));
  ASSERT_EQ(log.devices.size(), 1u);
  EXPECT_EQ(log.devices[0].name, "NVIDIA Fake 9000");
  EXPECT_EQ(log.devices[0].multiprocessors, 132);
}

TEST_F(CudaTrace, NothingIsRecordedOutsideOfIt) {
  Bench bench(device());
  bench.step();
  EXPECT_EQ(record(bench, 1).events.empty(), false);
  bench.step();
  bench.synchronize();
  EXPECT_TRUE(drain_trace().events.empty());
  // A scope that is open at the start or at the end is not one of the device's.
  {
    const TraceScope open("before", "test");
    start_tracing();
  }
  const TraceScope scope("behind", "test");
  stop_tracing();
  bench.step();
  bench.synchronize();
  EXPECT_EQ(of(drain_trace(), "kernel").size(), 0u);
}

TEST_F(CudaTrace, ARecordingMayBeMadeAgain) {
  Bench bench(device());
  const auto first = counted(record(bench, 2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(counted(record(bench, 2)), first);
  // Started twice, stopped twice, drained late.
  start_tracing();
  start_tracing();
  bench.step();
  stop_tracing();
  stop_tracing();
  EXPECT_EQ(of(drain_trace(), "kernel").size(), 2u);
}

TEST_F(CudaTrace, BuffersMayComeBackInAnyOrderAndHalfFilled) {
  Bench bench(device());
  const auto plain = counted(record(bench, 2));
  for (const size_t records : {1, 2, 3, 7})
    for (const bool is_reversed : {false, true})
      for (const size_t strange : {0, 2, 5}) {
        SCOPED_TRACE(fmt::format("{} records, reversed {}, {}", records, is_reversed, strange));
        cupti_.records_per_buffer = records;
        cupti_.is_late_and_reversed = is_reversed;
        cupti_.strange_every = strange;
        // Enough buffers, however few records each has.
        const TraceLog log = record(bench, 2, size_t{200} << 10);
        EXPECT_EQ(counted(log), plain);
        EXPECT_EQ(log.dropped, 0);
      }
}

TEST_F(CudaTrace, WhatFindsNoBufferIsCounted) {
  Bench bench(device());
  const auto events = [&](const TraceLog& log) {
    return std::ranges::count_if(
        log.events, [](const TraceEvent& event) { return event.category != "cpu_op"; });
  };
  const auto all = events(record(bench, 40));
  cupti_.records_per_buffer = 1;
  cupti_.is_late_and_reversed = true;
  const TraceLog log = record(bench, 40, 1);
  EXPECT_LT(events(log), 10);
  EXPECT_GT(log.dropped, all - events(log));  // ids of scopes and events too
}

TEST_F(CudaTrace, AGraphsKernelsBelongToItsLaunch) {
  Bench bench(device());
  const CapturedWork captured(bench.work, [&] {
    bench.queue_add();
    bench.queue_double();
  });
  // Captured before the recording, launched within it.
  const TraceLog log = recorded(1000, [&] {
    const TraceScope scope("step", "cpu_op");
    captured.launch(bench.work);
  });
  const std::vector<TraceEvent> kernels = of(log, "kernel");
  ASSERT_EQ(kernels.size(), 2u);
  for (const TraceEvent& kernel : kernels) {
    EXPECT_EQ(text(kernel, "graph id"), "1");
    EXPECT_EQ(text(kernel, "site"), "step");
    EXPECT_EQ(call_of(log, kernel).name, "cuGraphLaunch");
  }
}

TEST_F(CudaTrace, ThreadsHaveTheirOwnCallsAndScopes) {
  const DeviceRef gpu = device();
  Bench first(gpu), second(gpu);
  const TraceLog log = recorded(1000, [&] {
    std::thread other([&] {
      gpu->make_current();
      for (int i = 0; i < 50; ++i) second.queue_double();
    });
    for (int i = 0; i < 50; ++i) first.queue_add();
    other.join();
  });
  std::map<std::string, std::set<int64_t>> threads;
  for (const TraceEvent& kernel : of(log, "kernel"))
    threads[kernel.name + " " + text(kernel, "site")].insert(call_of(log, kernel).thread);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(log.devices.size(), 1u);  // both share one device
  EXPECT_EQ(threads["add layer.0:add"], std::set<int64_t>{this_thread_id()});
  EXPECT_EQ(threads["double_all layer.1:double"].size(), 1u);
  EXPECT_NE(*threads["double_all layer.1:double"].begin(), this_thread_id());
}

// Reads back the file that `ridge train --trace` writes.
class CudaTraceFile : public CudaTrace {
 protected:
  doctor::Trace written(const TraceLog& log) {
    const std::string path = (folder_ / "trace.json").string();
    {
      std::ofstream file(path);
      write_chrome_trace(log, file);
    }
    return doctor::read_trace(path);
  }
  test::TempFolder folder_;
};

TEST_F(CudaTraceFile, DoctorReadsIt) {
  Bench bench(device());
  const doctor::Trace trace = written(record(bench, 3));
  EXPECT_TRUE(trace.warnings.empty()) << trace.warnings.front().text;
  EXPECT_EQ(trace.recorder, "ridge");
  std::map<doctor::EventKind, int> kinds;
  const std::vector<size_t> launched_by = doctor::find_launches(trace);
  for (size_t row = 0; row < trace.size(); ++row) {
    ++kinds[trace.kind[row]];
    if (!doctor::is_device_work(trace.kind[row])) continue;
    EXPECT_EQ(trace.lane_of(row).device, 0);
    EXPECT_EQ(trace.lane_of(row).thread, trace.kind[row] == doctor::EventKind::kCopy ? 1 : 2);
    ASSERT_LT(launched_by[row], trace.size());
    EXPECT_EQ(trace.kind[launched_by[row]], doctor::EventKind::kRuntime);
  }
  using enum doctor::EventKind;
  EXPECT_EQ(std::tuple(kinds[kKernel], kinds[kCopy], kinds[kOperator], kinds[kSynchronization]),
            std::tuple(6, 3, 9, 6));
  EXPECT_EQ(trace.launches.at(0).threads(), 16);
  EXPECT_EQ(trace.transfers.at(0).bytes, 64);
  EXPECT_EQ(trace.transfers.at(0).from, doctor::MemoryKind::kPinned);
  EXPECT_TRUE(trace.transfers.at(0).is_async);
  ASSERT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.devices[0].multiprocessors, 132);
  // A kernel waits for the copy that filled its input, though both are on other streams.
  const doctor::Producers producers(trace, 0, launched_by);
  EXPECT_TRUE(producers.has_event_waits());
  bool has_copy = false;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == doctor::EventKind::kKernel)
      for (const size_t before : producers.of(row))
        has_copy = has_copy || trace.kind[before] == doctor::EventKind::kCopy;
  EXPECT_TRUE(has_copy);
}

// The device starves while the program waits for its loader, and doctor says so.
TEST_F(CudaTraceFile, DoctorFindsAStarvedInput) {
  fake_.set_schedule(Schedule::kAtOnce);
  Bench bench(device());
  EXPECT_TRUE(test::succeeds_once([&] {
    start_tracing(4000);
    for (int i = 0; i < 12; ++i) {
      const TraceScope step(intern_trace_name(fmt::format("ProfilerStep#{}", i)),
                            "user_annotation");
      {
        const TraceScope wait("loader wait", "loader");
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      bench.step();
    }
    stop_tracing();
    const doctor::Examination examination = doctor::examine(written(drain_trace()));
    EXPECT_FALSE(examination.analysis.is_cpu_only);
    EXPECT_EQ(examination.analysis.steps.source, "ProfilerStep");
    const std::vector<doctor::Finding>& findings = examination.diagnosis.findings;
    return !findings.empty() && findings[0].rule == "R01";
  }));
}

TEST_F(CudaTrace, AnotherProfilerIsNamedAndAllElseGoesOn) {
  cupti_.is_taken = true;
  Bench bench(device());
  const TraceLog log = record(bench, 2);
  ASSERT_EQ(log.notes.size(), 1u);
  EXPECT_EQ(log.notes[0],
            "the trace is without the device: [cupti] cuptiSubscribe failed: "
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; another profiler is attached to this "
            "program, and CUPTI serves one: record with one of the two");
  EXPECT_EQ(of(log, "cpu_op").size(), 6u);
  EXPECT_EQ(of(log, "kernel").size(), 0u);
  EXPECT_TRUE(drain_trace().notes.empty());  // reported once
}

TEST_F(CudaTrace, EachCallMayFail) {
  Bench bench(device());
  const auto plain = counted(record(bench, 2));
  const size_t calls = cupti_.calls().size();
  ASSERT_GT(calls, 20u);
  for (size_t n = 1; n <= calls; ++n) {
    const std::string name = cupti_.calls().at(n - 1);
    SCOPED_TRACE(fmt::format("call {} ({})", n, name));
    cupti_.reset();
    cupti_.observe(RIDGE_FAKE_CUDA);
    cupti_.fail("", static_cast<int64_t>(n), 999);
    const TraceLog log = record(bench, 2);
    EXPECT_EQ(of(log, "cpu_op").size(), 6u);
    const bool is_at_end = name == "cuptiActivityDisable" || name == "cuptiActivityFlushAll" ||
                           name == "cuptiActivityGetNumDroppedRecords" ||
                           name == "cuptiUnsubscribe" || name == "cuptiActivitySetAttribute";
    if (is_at_end) {
      EXPECT_TRUE(log.notes.empty());
    } else {
      ASSERT_EQ(log.notes.size(), 1u);
      EXPECT_THAT(log.notes[0], has(name + " failed: CUPTI_ERROR_OF_THE_FAKE"));
      EXPECT_EQ(cupti_.live(), std::vector<std::string>{});
    }
    cupti_.reset();
    cupti_.observe(RIDGE_FAKE_CUDA);
    EXPECT_EQ(counted(record(bench, 2)), plain);  // the next recording is whole again
  }
}

TEST_F(CudaTrace, ALostDeviceEndsTheRecording) {
  const DeviceRef gpu = device();
  Bench bench(gpu);
  start_tracing();
  bench.step();
  fake_.fail("cuLaunchKernel", 1, 719);
  EXPECT_THROW(bench.step(), CudaError);
  stop_tracing();
  EXPECT_GT(of(drain_trace(), "cuda_driver").size(), 5u);
}

TEST_F(CudaTrace, TheLastDeviceEndsTheRecording) {
  {
    Bench bench(device());
    start_tracing();
    bench.step();
  }
  EXPECT_EQ(cupti_.live(), std::vector<std::string>{});
  stop_tracing();
  EXPECT_EQ(of(drain_trace(), "kernel").size(), 2u);
  start_tracing();  // there is no device any more
  stop_tracing();
  const TraceLog log = drain_trace();
  EXPECT_TRUE(log.notes.empty());
  EXPECT_TRUE(log.devices.empty());
}

TEST_F(CudaTrace, AnotherLibraryOrAnOldOneIsRefused) {
  ::setenv("RIDGE_CUPTI", "libm.so.6", 1);
  EXPECT_THAT(test::user_error([] { Cupti::open(13000); }),
              testing::StartsWith("[cupti] cannot open the recorder of GPUs: 'libm.so.6' has no "
                                  "function cuptiGetVersion"));
  ::setenv("RIDGE_CUPTI", RIDGE_FAKE_CUPTI, 1);
  cupti_.version = 17;
  EXPECT_THAT(test::user_error([] { Cupti::open(13000); }), has("is older than CUDA 12.0"));
  cupti_.version = 18;
  EXPECT_EQ(Cupti::open(13000)->version(), 18u);
}

TEST(ActivityBuffers, AreHandedOutAndComeBackWithoutAllocating) {
  ActivityBuffers buffers;
  EXPECT_EQ(buffers.take(), nullptr);
  buffers.reserve(2);
  const int64_t allocated = test::allocations;
  uint8_t *const first = buffers.take(), *const second = buffers.take();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(buffers.take(), nullptr);
  EXPECT_EQ(buffers.handed_out(), 2u);
  EXPECT_EQ(first[ActivityBuffers::kBytes - 1], 0);
  first[0] = 1, second[0] = 2;
  uint8_t stranger = 0;
  buffers.give_back(&stranger, 1);
  buffers.give_back(second, 8);
  buffers.give_back(second, 16);  // it is back already
  buffers.give_back(first, ActivityBuffers::kBytes + 5);
  if (test::kCountsAllocations) {
    EXPECT_EQ(test::allocations, allocated);
  }
  std::vector<std::pair<int, size_t>> read;
  const auto note = [&](std::span<uint8_t> bytes) { read.emplace_back(bytes[0], bytes.size()); };
  buffers.read(note);
  EXPECT_EQ(read, (std::vector<std::pair<int, size_t>>{{2, 8}, {1, ActivityBuffers::kBytes}}));
  buffers.read(note);
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(*buffers.take(), 0);  // zeroes again
  buffers.release();
  EXPECT_EQ(buffers.handed_out(), 1u);
  EXPECT_EQ(buffers.take(), nullptr);
}

// NVIDIA's own library, where PyTorch's wheels have brought one: it has all functions, and without
// a driver none of them is called, for none would return.
TEST(Cupti, TheRealOneIsFoundInWheels) {
  const std::filesystem::path peers = std::filesystem::absolute("build/peers");
  bool is_there = false;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(peers / "lib", none))
    is_there = is_there || std::filesystem::exists(entry.path() /
                                                   "site-packages/nvidia/cu13/lib/libcupti.so.13");
  if (!is_there) GTEST_SKIP() << "no libcupti.so.13 here: ./dev peers brings one";
  if (void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    ::dlclose(driver);
    GTEST_SKIP() << "this machine has a driver";
  }
  const char* const before = std::getenv("VIRTUAL_ENV");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("VIRTUAL_ENV", peers.c_str(), 1);
  const std::string error = test::user_error([] { Cupti::open(13000); });
  before == nullptr ? ::unsetenv("VIRTUAL_ENV") : ::setenv("VIRTUAL_ENV", kept.c_str(), 1);
  EXPECT_THAT(error, has("lib/libcupti.so.13' needs a driver, libcuda.so.1; looked for "));
}

}  // namespace
}  // namespace ridge::cuda
