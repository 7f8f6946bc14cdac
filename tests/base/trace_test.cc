#include "ridge/base/trace/trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/trace/chrome_trace.h"

namespace ridge {
namespace {

using Json = nlohmann::json;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() { drain_trace(); }
  ~TraceTest() override {
    stop_tracing();
    drain_trace();
  }
};

TraceEvent event(std::string name, int64_t start, int64_t end, int64_t thread = 1) {
  TraceEvent made;
  made.name = std::move(name);
  made.category = "test";
  made.start_ns = start;
  made.duration_ns = end - start;
  made.thread = thread;
  return made;
}

TEST_F(TraceTest, NothingIsRecordedWhileOff) {
  {
    TraceScope scope("off", "test");
    scope.set_arg("bytes", 1);
    scope.set_correlation(2);
    start_tracing();  // a scope that began before does not count
  }
  stop_tracing();
  record_event({.name = "off", .category = "test"});
  EXPECT_TRUE(drain_trace().events.empty());
}

// A source that notes what it is asked for; sources live as long as the process.
class NotingSource final : public TraceSource {
 public:
  void start(size_t events) noexcept override {
    if (is_looked_at) asked.push_back(events);
  }
  void stop() noexcept override { ++stops; }
  void drain(TraceLog& log) override {
    if (asked.empty()) return;
    log.events.push_back(event("of the device", next_ns, next_ns + 5, 0));
    log.notes.emplace_back("half of it");
    log.dropped += 3;
    log.devices.push_back({.number = 1, .name = "device"});
  }
  bool is_looked_at = true;  // by the test that it is of
  std::vector<size_t> asked;
  int stops = 0;
  int64_t next_ns = 1;  // before all that this process records
};

TEST_F(TraceTest, SourcesRunAlongAndAreInTheLog) {
  static NotingSource source;
  add_trace_source(source);
  start_tracing(500);
  {
    const TraceScope scope("own", "test");
  }
  stop_tracing();
  EXPECT_EQ(source.asked, std::vector<size_t>{500});
  EXPECT_EQ(source.stops, 1);
  const TraceLog log = drain_trace();
  ASSERT_EQ(log.events.size(), 2u);
  EXPECT_EQ(log.events[0].name, "of the device");  // sorted with the rest
  EXPECT_EQ(log.events[1].name, "own");
  EXPECT_EQ(log.dropped, 3);
  EXPECT_EQ(log.notes, std::vector<std::string>{"half of it"});
  std::ostringstream text;
  write_chrome_trace(log, text);
  const Json json = Json::parse(text.str());
  EXPECT_EQ(json["deviceProperties"][0]["name"], "device");
  EXPECT_EQ(json["deviceProperties"][0]["id"], 1);
  source.asked.clear();
  source.is_looked_at = false;
}

std::vector<std::string> heard;
constexpr ScopeHooks kNoting = {[](const char* name) { heard.emplace_back(name); },
                                [] { heard.emplace_back("end"); }};

TEST_F(TraceTest, ListenersHearScopesWhetherOrNotTheyAreRecorded) {
  heard.clear();
  {
    const TraceScope before("before", "test");
  }
  std::optional<TraceScope> over, begun;
  over.emplace("too early", "test");
  hear_scopes(ScopeListener::kProfiler, kNoting);
  {
    TraceScope scope("not recorded", "test");
    scope.set_arg("bytes", 1);
    start_tracing();
    const TraceScope inner("recorded", "test");
  }
  begun.emplace("begun", "test");
  over.reset();
  stop_hearing_scopes(ScopeListener::kProfiler);
  {
    const TraceScope after("after", "test");
  }
  begun.reset();  // its begin was heard
  EXPECT_EQ(heard,
            (std::vector<std::string>{"not recorded", "recorded", "end", "end", "begun", "end"}));
  stop_tracing();
  const TraceLog log = drain_trace();
  std::vector<std::string> names;
  for (const TraceEvent& each : log.events) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"recorded", "begun", "after"}));
}

TEST_F(TraceTest, ScopesNestAndCarryWhatTheyAreGiven) {
  start_tracing();
  const int64_t before = now_ns();
  {
    TraceScope outer("outer", "test");
    TraceScope inner("inner", "other", 3);
    inner.set_arg("bytes", 4096);
    inner.set_correlation(77);
  }
  const int64_t after = now_ns();
  const TraceLog log = drain_trace();
  ASSERT_EQ(log.events.size(), 2u);
  const TraceEvent &outer = log.events[0], &inner = log.events[1];
  EXPECT_EQ(outer.name, "outer");
  EXPECT_EQ(outer.category, "test");
  EXPECT_EQ(outer.stream, -1);
  EXPECT_FALSE(outer.correlation);
  EXPECT_TRUE(outer.args.empty());
  EXPECT_EQ(inner.name, "inner");
  EXPECT_EQ(inner.stream, 3);
  EXPECT_EQ(inner.correlation, 77u);
  ASSERT_EQ(inner.args.size(), 1u);
  EXPECT_EQ(inner.args[0].first, "bytes");
  EXPECT_EQ(std::get<int64_t>(inner.args[0].second), 4096);
  EXPECT_EQ(outer.thread, this_thread_id());
  EXPECT_LE(before, outer.start_ns);
  EXPECT_LE(outer.start_ns, inner.start_ns);
  EXPECT_LE(inner.end_ns(), outer.end_ns());
  EXPECT_LE(outer.end_ns(), after);
  EXPECT_NEAR(static_cast<double>(log.wall_minus_steady_ns),
              static_cast<double>(wall_ns() - now_ns()),
              1e9);
  EXPECT_TRUE(drain_trace().events.empty());  // each event is handed out once
}

TEST_F(TraceTest, ScopesOpenAtTheStopAreRecorded) {
  start_tracing();
  {
    TraceScope scope("open", "test");
    stop_tracing();
  }
  EXPECT_EQ(drain_trace().events.size(), 1u);
}

TEST_F(TraceTest, FullBuffersCountWhatTheyDrop) {
  start_tracing(8);
  for (int i = 0; i < 20; ++i) TraceScope scope("scope", "test");
  TraceLog log = drain_trace();
  EXPECT_EQ(log.events.size(), 8u);
  EXPECT_EQ(log.dropped, 12);
  for (int i = 0; i < 5; ++i) TraceScope scope("scope", "test");  // the buffer is free again
  log = drain_trace();
  EXPECT_EQ(log.events.size(), 5u);
  EXPECT_EQ(log.dropped, 0);
  EXPECT_THROW(start_tracing(0), InternalError);
}

TEST_F(TraceTest, EventsOfThreadsThatEndedAreKept) {
  start_tracing();
  std::set<int64_t> ids;
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      name_this_thread("short-lived");
      TraceScope scope("short", "test");
      ids.insert(this_thread_id());
    }).join();
  }
  const TraceLog log = drain_trace();
  EXPECT_EQ(log.events.size(), 3u);
  for (const TraceEvent& e : log.events) {
    EXPECT_TRUE(ids.count(e.thread));
    EXPECT_EQ(log.thread_names.at(e.thread), "short-lived");
  }
}

// Threads start, record and end while another drains, starts and stops: every event comes out
// once or is counted as dropped.
TEST_F(TraceTest, NothingGetsLostUnderConcurrency) {
  constexpr int kThreads = 4, kRounds = 25, kEvents = 200;
  start_tracing(64);
  std::atomic<bool> done{false};
  int64_t seen = 0, dropped = 0;
  std::map<int64_t, int64_t> last_start;
  const auto drain = [&] {
    const TraceLog log = drain_trace();
    dropped += log.dropped;
    for (const TraceEvent& e : log.events) {
      ++seen;
      ASSERT_EQ(e.name, "work");
      ASSERT_EQ(std::get<int64_t>(e.args.at(0).second) % kEvents, e.stream);  // not torn
    }
  };
  std::thread drainer([&] {
    while (!done) drain();
  });
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < kEvents; ++i) {
          TraceScope scope("work", "test", i);
          scope.set_arg("value", int64_t{t} * kEvents + i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  done = true;
  drainer.join();
  drain();
  EXPECT_EQ(seen + dropped, int64_t{kThreads} * kRounds * kEvents);
  EXPECT_GT(seen, 0);
}

TEST_F(TraceTest, StartingAndStoppingWhileOthersRecord) {
  std::atomic<bool> done{false};
  std::thread worker([&] {
    while (!done) TraceScope scope("work", "test");
  });
  for (int i = 0; i < 200; ++i) {
    start_tracing(i % 2 ? 16 : 32);  // another size: the thread takes a new buffer
    drain_trace();
    stop_tracing();
  }
  done = true;
  worker.join();
}

TEST_F(TraceTest, PoolWorkersAreNamed) {
  const int before = num_threads();
  set_num_threads(3);
  start_tracing();
  std::atomic<int> begun{0};
  parallel_for(3, 1, [&](int64_t, int64_t) {
    TraceScope scope("chunk", "test");
    ++begun;
    while (begun < 3) std::this_thread::yield();
  });
  const TraceLog log = drain_trace();
  set_num_threads(before);
  std::set<std::string> names;
  for (const TraceEvent& e : log.events)
    if (e.thread != this_thread_id()) names.insert(log.thread_names.at(e.thread));
  EXPECT_EQ(names, (std::set<std::string>{"ridge-0", "ridge-1"}));
}

TEST_F(TraceTest, InternedNamesAreStable) {
  std::string name = "encoder.conv1";
  const char* interned = intern_trace_name(name);
  EXPECT_EQ(intern_trace_name("encoder.conv1"), interned);
  EXPECT_NE(intern_trace_name("encoder.conv2"), interned);
  name = "overwritten__";
  EXPECT_STREQ(interned, "encoder.conv1");
}

TEST(TraceEvents, ThoseThatStartTogetherAreSortedByLength) {
  std::vector<TraceEvent> events = {event("child", 0, 5), event("parent", 0, 20)};
  sort_events(events);
  EXPECT_EQ(events[0].name, "parent");
}

TEST(ChromeTrace, HasTheFormOfKineto) {
  TraceLog log;
  log.wall_minus_steady_ns = 1'700'000'000'000'000'000;
  log.dropped = 3;
  log.thread_names[41] = "loader \"1\"";
  log.events = {event("mat\"mul\xff", 5'000'000'123, 5'000'004'123, 41),
                event("kernel", 5'000'001'200, 5'000'003'207, 0)};
  log.events[0].correlation = 18446744073709551615u;
  log.events[0].args = {{"bytes", int64_t{4096}}, {"share", 0.5}, {"shape", std::string("(2, 3)")}};
  log.events[1].stream = 7;
  std::ostringstream out;
  write_chrome_trace(log, out);
  const std::string text = out.str();
  const Json json = Json::parse(text);
  EXPECT_EQ(json["droppedEvents"], 3);
  EXPECT_EQ(json["baseTimeNanoseconds"].get<int64_t>(), 1'700'000'005'000'000'123);
  Json host, device, thread_name;
  for (const Json& e : json["traceEvents"]) {
    if (e["name"] == "mat\"mul\ufffd") host = e;
    if (e["name"] == "kernel") device = e;
    if (e["name"] == "thread_name" && e["tid"] == 41) thread_name = e;
  }
  EXPECT_EQ(host["ph"], "X");
  EXPECT_EQ(host["cat"], "test");
  EXPECT_EQ(host["ts"].get<double>(), 0.0);
  EXPECT_EQ(host["dur"].get<double>(), 4.0);
  EXPECT_EQ(host["tid"], 41);
  EXPECT_EQ(host["pid"].get<int64_t>(), getpid());
  EXPECT_EQ(host["args"]["correlation"].get<uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(host["args"]["bytes"], 4096);
  EXPECT_EQ(host["args"]["share"], 0.5);
  EXPECT_EQ(host["args"]["shape"], "(2, 3)");
  EXPECT_EQ(device["pid"], 0);
  EXPECT_EQ(device["tid"], 7);
  EXPECT_EQ(device["args"]["stream"], 7);
  EXPECT_NE(text.find(R"("ts":1.077,"dur":2.007)"), std::string::npos) << text;
  EXPECT_EQ(thread_name["ph"], "M");
  EXPECT_EQ(thread_name["args"]["name"], "loader \"1\"");
}

TEST(ChromeTrace, EmptyLogIsValid) {
  std::ostringstream out;
  write_chrome_trace({}, out);
  EXPECT_TRUE(Json::parse(out.str())["traceEvents"].is_array());
}

}  // namespace
}  // namespace ridge
