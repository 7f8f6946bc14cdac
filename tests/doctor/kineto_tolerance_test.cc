// Kineto traces with errors of recorders, with hostile contents, and with events of all versions.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "ridge/base/trace/chrome_trace.h"
#include "ridge/doctor/read/read_kineto.h"
#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/kineto_text.h"
#include "tests/doctor/trace_rows.h"
#include "tests/support/errors.h"

namespace ridge::doctor {
namespace {

std::string event(const std::string& name, int64_t ts, const std::string& more = "") {
  return fmt::format(
      R"({{"ph": "X", "cat": "cpu_op", "name": "{}", "pid": 1, "tid": 1, "ts": {}, "dur": 1{}}})",
      name,
      ts,
      more);
}

/// Names of the rows, one after another.
std::string names_of(const Trace& trace) {
  std::string names;
  for (size_t row = 0; row < trace.size(); ++row)
    names += (row > 0 ? " " : "") + std::string(trace.name_text(row));
  return names;
}

std::string warnings_of(const Trace& trace) {
  std::string texts;
  for (const Warning& warning : trace.warnings) texts += warning.text + "\n";
  return texts;
}

/// One event with these fields, alone in a trace.
Trace read_fields(const std::string& fields) {
  return read_text(trace_text({"{\"pid\": 1, \"tid\": 2, \"dur\": 3, " + fields + "}"}));
}

const std::string kFeatures = R"({
 "schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, "x": [{"y": "]}"}],
 "deviceProperties": [{"id": 1, "name": "B"}, {"id": 0, "name": "A \"q\"", "numSms": 7}],
 "traceEvents": [
 {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main "}},
 {"ph": "X", "cat": "cpu_op", "name": "a\u00e9\n", "pid": 1, "tid": 2, "ts": 10.5, "dur": 2.125,
  "args": {"Input Dims": [[2,3] , []], "Input type": ["fl, oat",""],
  "Input Strides": [[3,1], []], "Call stack": "f;g"}},
 {"ph": "B", "name": "r", "cat": "user_annotation", "pid": 1, "tid": 2, "ts": 9},
 {"ph": "E", "pid": 1, "tid": 2, "ts": 19},
 {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 9223372036854775807},
 {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 12, "dur": 1, "args": {
  "device": 0, "stream": 7, "correlation": 5, "grid": [1, 2, 3], "block": [4, 5, 6],
  "registers per thread": 8, "shared memory": 9}}
 ], "baseTimeNanoseconds": 1700000000000000000}
)";

TEST(KinetoTolerance, EveryBoundaryOfPiecesGivesTheSame) {
  const Trace whole = read_text(kFeatures);
  ASSERT_EQ(lines_of(whole),
            (std::vector<std::string>{
                "range 'r' 0 1/2/-1 'main' 0+10000 #-1",
                "operator 'a\xc3\xa9\n' 0 1/2/-1 'main' 1500+2125 #-1 [[2, 3], []] "
                "[\"fl, oat\", \"\"] 0 -1 -1 stack f\ng",
                "kernel 'k' 1 0/7/0 '' 3000+1000 #5 grid 1,2,3 block 4,5,6 8 registers 9 shared "
                "graph 0"}));
  EXPECT_EQ(whole.names.at(whole.details.at(0).strides), "[[3, 1], []]");
  EXPECT_EQ(whole.base_ns, 1'700'000'000'000'009'000);
  EXPECT_EQ(whole.rank, 3);
  EXPECT_EQ(whole.world, 8);
  ASSERT_EQ(whole.devices.size(), 2u);
  EXPECT_EQ(whole.devices[0], (Device{.number = 0, .name = "A \"q\"", .multiprocessors = 7}));
  for (size_t at = 0; at <= kFeatures.size(); ++at) {
    const Trace other = read_pieces(kFeatures, at, kFeatures.size());
    ASSERT_EQ(lines_of(other), lines_of(whole)) << at;
    ASSERT_EQ(other.devices, whole.devices) << at;
  }
}

TEST(KinetoTolerance, BeginningsAndEndsNest) {
  std::mt19937 random(29);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> pairs, whole;
    for (int thread = 0; thread < 2; ++thread) {
      std::vector<std::pair<int64_t, int>> open;
      int64_t now = 0;
      for (int i = 0; i < 40 || !open.empty(); ++i) {
        const std::string where = fmt::format(R"("pid": 1, "tid": {}, "ts": )", thread);
        now += static_cast<int64_t>(random() % 5) + 1;
        if (i < 40 && (open.empty() || random() % 2 == 0)) {
          open.emplace_back(now, i);
          pairs.push_back(fmt::format(R"({{"ph": "B", "name": "e{}", {}{}}})", i, where, now));
        } else {
          const auto [start, name] = open.back();
          open.pop_back();
          pairs.push_back(fmt::format(R"({{"ph": "E", {}{}}})", where, now));
          whole.push_back(fmt::format(
              R"({{"ph": "X", "name": "e{}", "dur": {}, {}{}}})", name, now - start, where, start));
        }
      }
    }
    const Trace expected = read_text(trace_text(whole));
    EXPECT_TRUE(expected.warnings.empty());
    EXPECT_EQ(lines_of(read_text(trace_text(pairs))), lines_of(expected));
    std::shuffle(pairs.begin(), pairs.end(), random);  // no two are at one time
    EXPECT_EQ(lines_of(read_text(trace_text(pairs))), lines_of(expected));
  }
}

TEST(KinetoTolerance, BeginningsWithoutEndsAreLeftOut) {
  const Trace trace = read_text(trace_text({R"({"ph": "B", "name": "b", "pid": 1, "ts": 1})",
                                            R"({"ph": "E", "pid": 2, "ts": 1})",
                                            event("kept", 5)}));
  EXPECT_EQ(names_of(trace), "kept");
  EXPECT_EQ(trace.warnings.size(), 2u);
}

TEST(KinetoTolerance, BrokenEventsCostNoOthers) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {event("ctl\x01\n\t\x1b[31m", 2), "a ctl\x01\n\t\x1b[31m z"},
      {event("bad\xff\xc3", 2), "a bad\xef\xbf\xbd\xef\xbf\xbd z"},
      {event("quo\"te", 2), "a quo\"te z"},
      {event("n", 2, R"(, "args": {"x": N/A, "y": NaN, "z": -Infinity})"), "a n z"},
      {event("n", 2, R"(, "args": {"x": 1,},)"), "a n z"},
      {event("n", 2, R"( "missing comma": 1)"), "a n z"},
      {R"({"ph": "X", "name": "lost", "ts": 2, "args": {"x": [1, 2})", "a z"},
      {R"({"ph": "X", "name": "lost, "ts": 2})", "a z"},
      {R"({"ph": "X", "name" "lost", "ts": 2})", "a z"},
      {"garbage \"", "a z"},
      {"[[[", "a z"},
      {std::string(100'000, '[') + std::string(100'000, ']'), "a z"},
      {R"({"ph": "X", "name": "deep", "args": )" + std::string(100, '[') + std::string(100, ']') +
           "}",
       "a z"},
      {event("nul#l", 2), "a nul#l z"},
      {R"({"ph": "X", "name": "\ud83d\ude00\ud83d\u12\/\q", "ts": 2})",
       "a \xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u12/q z"},
      {"", "a z"},
      {"null", "a z"},
      {"{}", "a z"},
      {R"({"name": "no phase", "ts": 2})", "a z"},
      {R"({"ph": "XX", "name": "long phase", "ts": 2})", "a z"},
      {R"({"ph": "X", "name": "no time"})", "a z"},
      {R"({"ph": "X", "name": "no time", "ts": "soon"})", "a z"},
      {R"({"ph": "X", "name": {"no": "text"}, "ts": 2})", "a {\"no\": \"text\"} z"},
  };
  for (const auto& [broken, expected] : cases) {
    SCOPED_TRACE(broken.substr(0, 200));
    std::string text = trace_text({event("a", 1), broken, event("z", 3)});
    std::replace(text.begin(), text.end(), '#', '\0');
    std::string names = names_of(read_text(text));
    std::replace(names.begin(), names.end(), '\0', '#');
    EXPECT_EQ(names, expected);
    EXPECT_FALSE(read_text(text).is_truncated);
  }
}

TEST(KinetoTolerance, TroubleIsAWarningInOurWords) {
  const Trace trace = read_text(trace_text({event("a", 1),
                                            R"({"ph": "X", "name": "\u001b]0;title", "ts": 2 2})",
                                            R"({"ph": "X", "cat": "\u001b[2J", "ts": "\u001b[2J"})",
                                            event("\\u001b[31mred", 3)}));
  EXPECT_EQ(warnings_of(trace).find('\x1b'), std::string::npos);
  EXPECT_EQ(trace.warnings.size(), 2u);
  EXPECT_EQ(names_of(trace), "a \x1b[31mred");  // whoever prints it has to see to it
}

TEST(KinetoTolerance, TimesAreExact) {
  const std::vector<std::pair<std::string, int64_t>> cases = {
      {"1712195495505582.988", 1712195495505582988},
      {"4203669604595.407", 4203669604595407},
      {"\"12.5\"", 12500},
      {"0.0005", 1},
      {"0.00049999999999999999999999", 0},
      {"0.0004999999999999999999999999999999999999", 0},
      {"-1.5", -1500},
      {"-0.0005", -1},
      {"1.5e3", 1500000},
      {"1.712195495519689e+15", 1712195495519689000},
      {"15E-1", 1500},
      {"1e-400", 0},
      {"0e999999999", 0},
      {"2305843009213693.951", 2305843009213693951},
      {"1712195495505582.9885", 1712195495505582989},
      {"00000000000000000000000000000000000012", 12000},
  };
  for (const auto& [text, nanoseconds] : cases) {
    // A second event at 0 keeps the first from being the zero of all times.
    const Trace trace = read_text(trace_text({R"({"ph": "X", "name": "t", "ts": )" + text + "}",
                                              R"({"ph": "X", "name": "zero", "ts": 0})"}));
    ASSERT_EQ(trace.size(), 2u) << text;
    const size_t row = trace.name_text(0) == "t" ? 0 : 1;
    EXPECT_EQ(trace.start_ns[row] - trace.start_ns[1 - row], nanoseconds) << text;
  }
}

TEST(KinetoTolerance, NumbersBeyondAllBoundsAreNone) {
  for (const char* text : {"9223372036854775807",
                           "-9223372036854775808",
                           "1e19",
                           "1e99999999999999999999",
                           "99999999999999999999999999999999999999999",
                           "4611686018427387.904",
                           "true",
                           "N/A",
                           "\"\"",
                           "-",
                           ".",
                           "1.2.3",
                           "0x10",
                           "[1]",
                           "{}"}) {
    const std::string ts = fmt::format(R"({{"ph": "X", "name": "t", "ts": {}}})", text);
    const Trace trace = read_text(trace_text({ts, event("kept", 1)}));
    EXPECT_EQ(names_of(trace), "kept") << text;
    EXPECT_EQ(trace.warnings.size(), 1u) << text;
    const Trace args = read_text(trace_text({fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": {0}, "pid": {0}, "tid": {0},
         "args": {{"device": {0}, "stream": {0}, "correlation": {0}, "grid": {0}, "bytes": {0},
         "registers per thread": {0}, "shared memory": -5}}}})",
        text)}));
    ASSERT_EQ(args.size(), 1u) << text;
    EXPECT_GE(args.duration_ns[0], 0) << text;
    EXPECT_GE(args.lane_of(0).device, 0) << text;
    EXPECT_GE(args.launches.at(0).registers, 0) << text;
    EXPECT_EQ(args.launches.at(0).shared_bytes, 0) << text;
  }
}

TEST(KinetoTolerance, AbsurdTimesAreLeftOut) {
  std::vector<std::string> events;
  for (int64_t i = 0; i < 20; ++i) events.push_back(event("e", 1'700'000'000'000'000 + 1000 * i));
  const Trace clean = read_text(trace_text(events));
  events.push_back(event("zero", 0));
  events.push_back(event("late", 4'000'000'000'000'000));
  events.push_back(R"({"ph": "X", "name": "long", "ts": 1700000000000000, "dur": 4e15})");
  const Trace trace = read_text(trace_text(events));
  EXPECT_EQ(trace.size(), 20u);
  EXPECT_EQ(trace.base_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(trace.start_ns, clean.start_ns);
  ASSERT_EQ(trace.warnings.size(), 1u);
  EXPECT_EQ(trace.warnings[0].count, 3);
  EXPECT_TRUE(clean.warnings.empty());
}

TEST(KinetoTolerance, BaseIsKnownWhereTheRecorderSaysIt) {
  EXPECT_EQ(read_text(trace_text({event("a", 5000)})).base_ns, 0);
  EXPECT_EQ(
      read_text(R"({"baseTimeNanoseconds": 1000, "traceEvents": [)" + event("a", 7) + "]}").base_ns,
      8000);
  EXPECT_EQ(read_text(trace_text({event("a", 1'600'000'000'000'000)})).base_ns,
            1'600'000'000'000'000'000);
}

TEST(KinetoTolerance, KindsOfOldNewAndOtherRecorders) {
  struct Case {
    const char* fields;
    EventKind kind;
  };
  for (const auto& [fields, kind] : {
           Case{R"("cat": "Operator", "name": "aten::add")", EventKind::kOperator},
           Case{R"("cat": "Kernel", "name": "k")", EventKind::kKernel},
           Case{R"j("cat": "Memcpy", "name": "Memcpy DtoH (Device -> Pinned)")j", EventKind::kCopy},
           Case{R"j("cat": "Memset", "name": "Memset (Device)")j", EventKind::kSet},
           Case{R"("cat": "Runtime", "name": "cudaLaunchKernel")", EventKind::kRuntime},
           Case{R"("cat": "cuda_driver", "name": "cuLaunchKernelEx")", EventKind::kRuntime},
           Case{R"("cat": "python_function", "name": "a.py(1): f")", EventKind::kPython},
           Case{R"("cat": "overhead", "name": "Activity Buffer Request")", EventKind::kOverhead},
           Case{R"("cat": "kernel", "name": "CopyHostToDevice")", EventKind::kCopy},
           Case{R"("cat": "kernel", "name": "FillBufferAligned")", EventKind::kSet},
           Case{R"("name": "hipLaunchKernel")", EventKind::kRuntime},
           Case{R"("name": "cudnn::op")", EventKind::kOther},
           Case{R"("name": "aten::mm")", EventKind::kOperator},
           Case{R"("name": "ProfilerStep#3")", EventKind::kRange},
           Case{R"("name": "k", "args": {"grid": [1, 1, 1]})", EventKind::kKernel},
           Case{R"("name": "k", "args": {"device": 0, "stream": 7})", EventKind::kKernel},
           Case{R"("cat": "loader", "name": "wait for batch")", EventKind::kRange},
           Case{R"("cat": "news to us", "name": "x")", EventKind::kOther},
       }) {
    const Trace trace = read_fields(std::string(R"("ph": "X", "ts": 1, )") + fields);
    ASSERT_EQ(trace.size(), 1u) << fields;
    EXPECT_EQ(name_of(trace.kind[0]), name_of(kind)) << fields;
  }
  EXPECT_EQ(read_fields(R"("ph": "X", "ts": 1, "cat": "Trace", "name": "span")").size(), 0u);
}

TEST(KinetoTolerance, CopiesSayBetweenWhichMemories) {
  using enum MemoryKind;
  struct Case {
    const char* name;
    MemoryKind from, to;
  };
  for (const auto& [name, from, to] : {
           Case{"Memcpy HtoD (Pageable -> Device)", kPageable, kDevice},
           Case{"Memcpy DtoH (Device -> Pinned)", kDevice, kPinned},
           Case{"Memcpy DtoD (Device -> Device)", kDevice, kDevice},
           Case{"Memcpy HtoD (Host -> Device)", kUnknown, kDevice},
           Case{"Memcpy HtoA (Pinned -> Array)", kPinned, kArray},
           Case{"Memcpy HtoD (Managed -> Device)", kManaged, kDevice},
           Case{"Memcpy DtoH", kDevice, kUnknown},
           Case{"CopyHostToDevice", kUnknown, kDevice},
           Case{"CopyDeviceToHost", kDevice, kUnknown},
       }) {
    const Trace trace =
        read_fields(fmt::format(R"("ph": "X", "ts": 1, "cat": "gpu_memcpy", "name": "{}")", name));
    EXPECT_EQ(trace.transfers.at(0).from, from) << name;
    EXPECT_EQ(trace.transfers.at(0).to, to) << name;
  }
}

TEST(KinetoTolerance, CopiesByBlockingCallsAreNotAsynchronous) {
  for (const auto& [call, is_async] : {std::pair("cudaMemcpyAsync", true),
                                       std::pair("cudaMemcpy", false),
                                       std::pair("cuMemcpyHtoD_v2", false),
                                       std::pair("cuMemcpyHtoDAsync_v2", true)}) {
    const std::string args = R"(, "ts": 1, "args": {"correlation": 4}})";
    const Trace trace = read_text(trace_text(
        {R"({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD")" + args,
         fmt::format(R"({{"ph": "X", "cat": "cuda_runtime", "name": "{}")", call) + args}));
    EXPECT_EQ(trace.transfers.at(0).is_async, is_async) << call;
  }
}

TEST(KinetoTolerance, SynchronizationSaysWhatWaitsForWhat) {
  const Trace trace = read_fields(
      R"("ph": "X", "ts": 1, "cat": "cuda_sync", "name": "Stream Wait Event", "args": {
       "cuda_sync_kind": "Stream Wait Event", "stream": 20, "correlation": 12, "device": 1,
       "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11, "wait_on_cuda_event_id": 2})");
  const Sync& sync = trace.syncs.at(0);
  EXPECT_EQ(sync.what, Sync::What::kStreamWaitsEvent);
  EXPECT_EQ(sync.waits_on_stream, 7);
  EXPECT_EQ(sync.waits_on_correlation, 11);
  EXPECT_EQ(sync.event, 2);
  EXPECT_EQ(trace.lane_of(0).device, 1);
  EXPECT_EQ(trace.lane_of(0).thread, 20);
}

TEST(KinetoTolerance, OldTracesNameTheirStreams) {
  const Trace trace = read_text(trace_text(
      {R"({"ph": "X", "cat": "Kernel", "name": "k", "pid": 1, "tid": "stream 7", "ts": 1})"}));
  EXPECT_EQ(trace.lane_of(0).device, 1);
  EXPECT_EQ(trace.lane_of(0).thread, 7);
  EXPECT_EQ(trace.lane_of(0).name, "stream 7");
}

TraceEvent own(
    const char* name, const char* category, int64_t start, int64_t length, int64_t thread) {
  TraceEvent event;
  event.name = name;
  event.category = category;
  event.start_ns = start;
  event.duration_ns = length;
  event.thread = thread;
  return event;
}

TEST(KinetoTolerance, RidgesOwnTraces) {
  TraceLog log;
  log.events = {own("step", "user_annotation", 5'000'001, 900, 77),
                own("mm", "cpu_op", 5'000'101, 99, 77),
                own("k", "kernel", 5'000'201, 10, 0)};
  log.events[1].args = {{"bytes", int64_t{64}}};
  log.events[2].stream = 4;
  log.events[2].correlation = 6;
  log.thread_names = {{77, "main"}};
  log.dropped = 3;
  log.wall_minus_steady_ns = 1'700'000'000'000'000'000;
  std::ostringstream out;
  write_chrome_trace(log, out);
  const Trace trace = read_text(out.str());
  EXPECT_EQ(trace.recorder, "ridge");
  EXPECT_EQ(trace.dropped, 3);
  EXPECT_EQ(trace.base_ns, 1'700'000'000'005'000'001);
  EXPECT_EQ(trace.start_ns, (std::vector<int64_t>{0, 100, 200}));
  EXPECT_EQ(trace.duration_ns, (std::vector<int64_t>{900, 99, 10}));
  EXPECT_EQ(names_of(trace), "step mm k");
  EXPECT_EQ(trace.lane_of(0).name, "main");
  EXPECT_EQ(trace.lane_of(2).name, "stream 4");
  EXPECT_EQ(trace.lane_of(2).thread, 4);
  EXPECT_TRUE(trace.lane_of(2).is_device());
  EXPECT_EQ(trace.correlation[2], 6);
  EXPECT_EQ(trace.details.at(0).bytes, 64);
  EXPECT_TRUE(trace.warnings.empty());
}

TEST(KinetoTolerance, HostileSizesAreBounded) {
  const std::string name(3'000'000, 'n');
  const Trace large = read_text(trace_text({event(name, 1), event("z", 2)}));
  EXPECT_EQ(large.name_text(0), std::string(65536, 'n'));
  EXPECT_EQ(large.warnings.size(), 1u);
  std::string dims = "[1";
  while (dims.size() < 200'000) dims += ", 1";
  const Trace listed =
      read_text(trace_text({event("a", 1, R"(, "args": {"Input Dims": )" + dims + "]}")}));
  EXPECT_EQ(listed.names.at(listed.details.at(0).shapes).size(), 65536u);
  EXPECT_EQ(listed.warnings.size(), 1u);
  // An item that never ends, and openings that each could go on to the end of the file.
  std::string endless = "{\"ph\": \"";
  endless.resize(70'000'000, 'x');
  EXPECT_EQ(names_of(read_text(trace_text({event("a", 1), endless, event("z", 2)}))), "a z");
  std::string openings;
  while (openings.size() < 4'000'000) openings += "{\"ph\":[";
  EXPECT_EQ(names_of(read_text(trace_text({event("a", 1), openings}))), "a");
}

TEST(KinetoTolerance, WhatIsNoTraceIsRefused) {
  for (const char* text : {"",
                           " \n",
                           "hello",
                           "{",
                           "[",
                           "{}",
                           "{\"traceEvents\": 3}",
                           "{\"a\": [1, 2]}",
                           "{\"traceEvents\": [{\"ph\": \"X\"",
                           "<html>"})
    EXPECT_NE(test::user_error([&] { read_text(text); }), "no error") << text;
  EXPECT_NE(test::user_error([] { read_kineto("tests/data/no such file"); }), "no error");
  EXPECT_NE(test::user_error([] { read_kineto("tests/data"); }), "no error");
  EXPECT_EQ(read_text("{\"traceEvents\": []}").size(), 0u);
  EXPECT_EQ(read_text("[]").size(), 0u);
  EXPECT_EQ(read_text("\xef\xbb\xbf[]").size(), 0u);
}

}  // namespace
}  // namespace ridge::doctor
