// Analyses of traces that others recorded: sums, and agreement with HolisticTraceAnalysis (HTA)
// where it means the same. golden/make_hta.py wrote golden/hta.json.
//
// HTA counts whole microseconds, leaves the last profiler step out, and its window is that of the
// device rows it keeps: analyse() is given the same one. Where it means something else:
// - Rows of category cuda_sync on a stream are busy to HTA: it waits there, nothing runs. Of traces
//   that have such rows only the compute time is the same.
// - Its idle breakdown is for each stream by itself: a side stream that nobody needs is idle all
// the
//   time. Ours is of stretches in which no kernel computes on any stream.
// - Its "host_wait" is all of a gap whose launch came after it began; our starved time ends at the
//   launch, and copies and collectives beside it do not end a gap. So starved time may be less on
//   one stream, never more than its host_wait and the time of what is no compute.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/doctor/analysis/analysis.h"
#include "ridge/doctor/analysis/launches.h"
#include "ridge/doctor/read/read_trace.h"

namespace ridge::doctor {
namespace {

const std::string kFolder = "tests/data/traces/";
constexpr const char* kTraces[] = {"alexnet_inference",
                                   "simple_add",
                                   "event_sync_multi_stream",
                                   "mi250_minitoy_train",
                                   "train_nccl",
                                   "train_ns_resolution",
                                   "rank_non_gpu"};

Trace trace_of(const std::string& name) { return read_kineto(kFolder + name + ".json.gz"); }

Interval device_span(const Trace& trace) {
  Interval span{INT64_MAX, INT64_MIN};
  for (size_t row = 0; row < trace.size(); ++row)
    if (is_device_work(trace.kind[row])) {
      span.begin = std::min(span.begin, trace.start_ns[row]);
      span.end = std::max(span.end, trace.end_ns(row));
    }
  return span;
}

TEST(SharedTraces, AllTimeIsChargedOnce) {
  for (const char* name : kTraces) {
    const Analysis analysis = analyse(trace_of(name));
    const Breakdown& b = analysis.breakdown;
    ASSERT_GT(b.wall, 0) << name;
    EXPECT_NEAR(b.busy + b.idle, b.wall, 1e-3 * b.wall) << name;
    EXPECT_NEAR(b.starved + b.launch + b.blocking + b.unknown, b.wall - b.compute, 1e-3 * b.wall)
        << name;
    double starved = 0;
    for (double part : b.starved_by) starved += part;
    EXPECT_NEAR(starved, b.starved, 1e-6) << name;
  }
}

TEST(SharedTraces, StepsAsTheRecorderMarkedThem) {
  const Steps train = find_steps(trace_of("train_ns_resolution"));
  EXPECT_EQ(train.source, "ProfilerStep");
  EXPECT_EQ(train.windows.size() + static_cast<size_t>(train.left_out), 5u);
  EXPECT_EQ(find_steps(trace_of("train_nccl")).source, "ProfilerStep");
  const Steps toy = find_steps(trace_of("mi250_minitoy_train"));
  ASSERT_EQ(toy.windows.size(), 1u) << "the second is 49 us in which the recorder stopped";
  EXPECT_NEAR(static_cast<double>(toy.windows[0].length()), 9'288'291, 1000);
  EXPECT_TRUE(analyse(trace_of("rank_non_gpu")).is_cpu_only);
}

// The stretches between rows of each stream whose call came after they began.
std::map<std::string, double> late_us(const Trace& trace, Interval window) {
  const std::vector<size_t> launched_by = find_launches(trace);
  std::map<uint32_t, int64_t> end;
  std::map<std::string, double> late;
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_device_work(trace.kind[row]) || trace.start_ns[row] >= window.end) continue;
    const auto [last, is_first] = end.try_emplace(trace.lane[row], 0);
    const size_t call = launched_by[row];
    if (!is_first && call < trace.size() && trace.start_ns[call] > last->second)
      late[std::to_string(trace.lane_of(row).thread)] +=
          static_cast<double>(trace.start_ns[row] - last->second) / 1e3;
    last->second = trace.end_ns(row);
  }
  return late;
}

TEST(SharedTraces, AsHolisticTraceAnalysisHasIt) {
  std::ifstream file("tests/doctor/golden/hta.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const auto& expected : golden.at("traces")) {
    const std::string name = expected.at("trace");
    SCOPED_TRACE(name);
    const Trace trace = trace_of(name);
    Interval span = device_span(trace);
    const bool has_syncs = name == "alexnet_inference" || name == "simple_add";
    const double length = expected.at("length");
    if (!has_syncs) span.end = span.begin + static_cast<int64_t>(length * 1000);
    const Analysis analysis = analyse(trace, {.windows = {span}, .source = "given"});
    const Breakdown& b = analysis.breakdown;
    // HTA may cut up to a microsecond off each row.
    const double cut = expected.at("rows").get<double>();
    const double compute = expected.at("compute");
    EXPECT_NEAR(b.compute * 1e3, compute, 0.01 * compute + cut);
    if (has_syncs) continue;
    EXPECT_NEAR(b.compute * 1e3, compute, 0.01 * length);
    EXPECT_NEAR(b.idle * 1e3, expected.at("idle").get<double>(), 0.01 * length);
    EXPECT_NEAR(
        (b.busy - b.compute) * 1e3, expected.at("non_compute").get<double>(), 0.01 * length);
    double host_wait = 0;
    const auto late = late_us(trace, span);
    for (const auto& [stream, wait] : expected.at("host_wait").items()) {
      const auto it = late.find(stream);
      ASSERT_NE(it, late.end()) << stream;
      EXPECT_NEAR(it->second, wait.get<double>(), 0.01 * length) << stream;
      host_wait = std::max(host_wait, wait.get<double>());
    }
    EXPECT_LE(b.starved * 1e3, host_wait + (b.busy - b.compute) * 1e3 + 0.01 * length);
  }
}

}  // namespace
}  // namespace ridge::doctor
