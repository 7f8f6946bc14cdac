// Records of CUPTI as events: each field, what belongs together, and bytes that are no records.
#include "ridge/backend/cuda/trace/activity_records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/backend/cuda/trace_text.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::has;

constexpr const char* kSite = "blocks.0.attn:matmul.1";

ActivityRecords make_records() {
  return ActivityRecords({.call = [](CallDomain domain, uint32_t call) -> const char* {
                            if (call == 307)
                              return domain == CallDomain::kDriver ? "cuLaunchKernel"
                                                                   : "cudaLaunch";
                            return nullptr;
                          },
                          .scope = [](uint64_t id) { return id == 11 ? kSite : nullptr; }});
}

template <typename Record>
void add(ActivityRecords& records, const Record& record) {
  records.add(std::as_bytes(std::span(&record, 1)));
}

TraceLog log_of(ActivityRecords& records) {
  TraceLog log;
  records.finish(log);
  return log;
}

using Lines = std::vector<std::string>;
Lines lines_of(ActivityRecords& records) {
  Lines lines;
  for (const TraceEvent& event : log_of(records).events) lines.push_back(text_of(event));
  return lines;
}

KernelActivity kernel(uint32_t correlation, const char* name = "loop_mul_add") {
  KernelActivity record{};
  record.kind = ActivityKind::kConcurrentKernel;
  record.registers = 40;
  record.start = 5000, record.end = 5750;
  record.device = 1, record.context = 3, record.stream = 13;
  record.grid[0] = 8, record.grid[1] = 2, record.grid[2] = 1;
  record.block[0] = 256, record.block[1] = 1, record.block[2] = 1;
  record.static_shared_bytes = 100, record.dynamic_shared_bytes = 4000;
  record.correlation = correlation;
  record.name = name;
  return record;
}

// The record that ties a correlation to the scope of number `id`.
ExternalCorrelationActivity scope(uint32_t correlation,
                                  uint64_t id,
                                  ExternalKind kind = ExternalKind::kCustom0) {
  return {ActivityKind::kExternalCorrelation, kind, id, correlation};
}

TEST(ActivityRecords, AKernelHasItsShapeAndTheScopeThatLaunchedIt) {
  ActivityRecords records = make_records();
  add(records, kernel(77));
  add(records, kernel(78));
  add(records, scope(77, 11));
  // A record of another profiler, and one of a scope that is not known.
  add(records, scope(78, 11, ExternalKind{1}));
  add(records, scope(78, 12));
  const TraceLog log = log_of(records);
  EXPECT_EQ(log.dropped, 0);
  ASSERT_EQ(log.events.size(), 2u);
  EXPECT_EQ(text_of(log.events[0]),
            "kernel: loop_mul_add, 5000 + 750 ns, thread 0, stream 13, correlation 77; device 1; "
            "context 3; registers per thread 40; shared memory 4100; grid [8, 2, 1]; "
            "block [256, 1, 1]; site blocks.0.attn:matmul.1");
  EXPECT_EQ(text(log.events[1], "site"), "");
}

TEST(ActivityRecords, AGraphHasTheScopesOfTheSameWorkThatWasLaunched) {
  ActivityRecords records = make_records();
  // The first of two launches alone belongs to a scope of ours.
  add(records, kernel(2, "second"));
  add(records, kernel(1, "first"));
  add(records, scope(1, 11));
  // A graph of both, and one of other work, which are launched in a scope; nodes come in any order.
  for (const uint32_t launch : {5, 6}) {
    for (const bool is_first : {false, true}) {
      KernelActivity node = kernel(launch, is_first ? "first" : launch == 5 ? "second" : "third");
      node.graph = launch, node.graph_node = 1;
      if (!is_first) node.start += 1000, node.end += 1000;
      add(records, node);
    }
    add(records, scope(launch, 11));
  }
  const TraceLog log = log_of(records);
  ASSERT_EQ(log.events.size(), 6u);
  EXPECT_EQ(text(log.events[2], "site"), "");  // the second one of the known graph
  for (const size_t i : {3, 4, 5}) EXPECT_EQ(text(log.events[i], "site"), kSite);
  EXPECT_THAT(text_of(log.events[5]), has("graph id 6; graph node id 1"));
}

TEST(ActivityRecords, NamesOfLibrariesArePlain) {
  ActivityRecords records = make_records();
  add(records, kernel(1, "_ZN4gemm6kernelIfLi8EEEvPKT_"));
  add(records, kernel(2, "_Zbroken"));
  add(records, kernel(3, nullptr));
  const TraceLog log = log_of(records);
  EXPECT_EQ(log.events.at(0).name, "void gemm::kernel<float, 8>(float const*)");
  EXPECT_EQ(log.events.at(1).name, "_Zbroken");
  EXPECT_EQ(log.events.at(2).name, "unnamed kernel");
}

TEST(ActivityRecords, CopiesAndFillsSayWhatTheyMove) {
  ActivityRecords records = make_records();
  CopyActivity copy{};
  copy.kind = ActivityKind::kCopy;
  copy.copy = CopyKind::kHostToDevice;
  copy.from = ActivityMemory::kPinned, copy.to = ActivityMemory::kDevice;
  copy.bytes = 4096, copy.start = 10, copy.end = 20, copy.stream = 7, copy.correlation = 5;
  add(records, copy);
  copy.copy = CopyKind{77}, copy.from = ActivityMemory{99};
  add(records, copy);
  SetActivity set{};
  set.kind = ActivityKind::kSet;
  set.memory = 3;
  set.bytes = 64, set.start = 10, set.end = 20;
  add(records, set);
  const std::string bytes = "thread 0, stream 7, correlation 5; device 0; context 0; bytes 4096";
  EXPECT_EQ(lines_of(records),
            (Lines{"gpu_memcpy: Memcpy HtoD (Pinned -> Device), 10 + 10 ns, " + bytes,
                   "gpu_memcpy: Memcpy Unknown (Unknown -> Device), 10 + 10 ns, " + bytes,
                   "gpu_memset: Memset (Device), 10 + 10 ns, thread 0, stream 0, correlation 0; "
                   "device 0; context 0; bytes 64"}));
}

TEST(ActivityRecords, CallsLieOnTheirThreads) {
  ActivityRecords records = make_records();
  CallActivity call{ActivityKind::kDriverCall, 307, 100, 140, 1, 4321, 77, 0};
  add(records, call);
  call.kind = ActivityKind::kRuntimeCall, call.result = 2;
  add(records, call);
  call.call = 9;
  add(records, call);
  OverheadActivity overhead{};
  overhead.kind = ActivityKind::kOverhead;
  overhead.overhead = OverheadKind::kBufferRequest;
  overhead.object = ActivityObject::kThread;
  overhead.object_ids[1] = 4321;
  overhead.start = 100, overhead.end = 110;
  add(records, overhead);
  EXPECT_EQ(
      lines_of(records),
      (Lines{
          "cuda_driver: cuLaunchKernel, 100 + 40 ns, thread 4321, stream -1, correlation 77",
          "cuda_runtime: cudaLaunch, 100 + 40 ns, thread 4321, stream -1, correlation 77; result 2",
          "cuda_runtime: runtime call 9, 100 + 40 ns, thread 4321, stream -1, correlation 77; "
          "result 2",
          "overhead: Activity Buffer Request, 100 + 10 ns, thread 4321, stream -1"}));
}

// Whatever the order of records: an event is that of the last recording before the wait.
TEST(ActivityRecords, AWaitIsJoinedWithWhatRecordedItsEvent) {
  const SynchronizationActivity wait{
      ActivityKind::kSynchronization, SynchronizationKind::kStreamWaitsEvent, 50, 60, 20, 3, 14, 6};
  SynchronizationActivity early = wait, all = wait;
  early.correlation = 4;  // before the event was first recorded
  all.synchronization = SynchronizationKind::kContext;
  all.stream = kNoActivityId, all.event = kNoActivityId;
  ActivityRecords records = make_records();
  add(records, EventActivity{ActivityKind::kEvent, 30, 3, 15, 6});  // behind it
  add(records, wait);
  add(records, EventActivity{ActivityKind::kEvent, 18, 3, 13, 6});
  add(records, EventActivity{ActivityKind::kEvent, 19, 4, 16, 6});  // an event of another context
  add(records, EventActivity{ActivityKind::kEvent, 19, 3, 17, 5});  // another event
  add(records, EventActivity{ActivityKind::kEvent, 10, 3, 12, 6});
  add(records, early);
  add(records, all);
  add(records, kernel(1));  // says which device the context is of
  const TraceLog log = log_of(records);
  ASSERT_EQ(log.events.size(), 4u);
  EXPECT_EQ(text_of(log.events[0]),
            "cuda_sync: Stream Wait Event, 50 + 10 ns, thread 0, stream 14, correlation 20; "
            "cuda_sync_kind Stream Wait Event; context 3; wait_on_cuda_event_id 6; device 1; "
            "wait_on_stream 13; wait_on_cuda_event_record_corr_id 18");
  EXPECT_EQ(text(log.events[1], "wait_on_stream"), "");
  EXPECT_EQ(text_of(log.events[2]),
            "cuda_sync: Context Sync, 50 + 10 ns, thread 0, stream -1, correlation 20; "
            "cuda_sync_kind Context Sync; context 3; device 1");
}

TEST(ActivityRecords, WorkWithoutTimesIsLostAndCounted) {
  ActivityRecords records = make_records();
  KernelActivity record = kernel(1);
  record.start = 0, record.end = 0;
  add(records, record);
  record.start = 20, record.end = 10;
  add(records, record);
  record.end = UINT64_MAX;
  add(records, record);
  const TraceLog log = log_of(records);
  EXPECT_TRUE(log.events.empty());
  EXPECT_EQ(log.dropped, 3);
  EXPECT_EQ(log_of(records).dropped, 0);  // reported once
}

TEST(ActivityRecords, ARecordThatIsCutOffIsLost) {
  const KernelActivity whole = kernel(1);
  const auto bytes = std::as_bytes(std::span(&whole, 1));
  ActivityRecords records = make_records();
  for (size_t size = sizeof(ActivityKind); size < bytes.size(); ++size)
    records.add(bytes.first(size));
  const TraceLog log = log_of(records);
  EXPECT_TRUE(log.events.empty());
  EXPECT_EQ(log.dropped, static_cast<int64_t>(bytes.size() - sizeof(ActivityKind)));
}

// Kinds that nobody asked for, and any bytes at all; only addresses are CUPTI's own.
TEST(ActivityRecords, AnyBytesAreTaken) {
  std::mt19937_64 random(5);
  const int rounds = test::cases(2000);
  for (int round = 0; round < rounds; ++round) {
    ActivityRecords records = make_records();
    for (int i = 0; i < 40; ++i) {
      std::vector<std::byte> bytes(random() % (sizeof(KernelActivity) + 40));
      for (std::byte& each : bytes) each = static_cast<std::byte>(random());
      const uint32_t kind = static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 64);
      if (bytes.size() >= sizeof kind) std::memcpy(bytes.data(), &kind, sizeof kind);
      const size_t name = offsetof(KernelActivity, name);
      if (bytes.size() >= name + sizeof(char*)) std::memset(bytes.data() + name, 0, sizeof(char*));
      records.add(bytes);
    }
    const TraceLog log = log_of(records);
    EXPECT_LE(log.events.size() + static_cast<size_t>(log.dropped), 40u);
    for (const TraceEvent& event : log.events) {
      EXPECT_GT(event.start_ns, 0);
      EXPECT_GE(event.duration_ns, 0);
      EXPECT_FALSE(event.name.empty());
    }
  }
}

}  // namespace
}  // namespace ridge::cuda
