#include "ridge/doctor/trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/doctor/trace_rows.h"

namespace ridge::doctor {
namespace {

// A row as a reader has it.
struct Given {
  EventKind kind;
  std::string name;
  Lane lane;
  int64_t start, duration, correlation, number;
};

/// Few different values, so that many rows are alike in some of their fields and some in all.
std::vector<Given> random_rows(std::mt19937& random, size_t count) {
  const auto pick = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
  std::vector<Given> rows;
  for (size_t i = 0; i < count; ++i) {
    const auto kind = static_cast<EventKind>(pick(12));
    const bool on_device = kind >= EventKind::kKernel && kind <= EventKind::kDeviceRange;
    const Lane lane{.process = on_device ? 0 : 100 + pick(2),
                    .thread = pick(3),
                    .device = static_cast<int32_t>(on_device ? pick(2) : -1),
                    .name = pick(2) == 0 ? "" : "named"};
    rows.push_back({kind,
                    std::string(1, static_cast<char>('a' + pick(4))),
                    lane,
                    pick(8) * 10,
                    pick(3) * 10,
                    pick(3) - 1,
                    pick(3)});
  }
  return rows;
}

void add_details(TraceBuilder& builder, size_t row, const Given& given) {
  if (given.number == 0) return;
  if (given.kind == EventKind::kKernel)
    builder.set(row, Launch{.registers = static_cast<int32_t>(given.number)});
  else if (given.kind == EventKind::kCopy || given.kind == EventKind::kSet)
    builder.set(row, Transfer{.bytes = given.number});
  else if (given.kind == EventKind::kSynchronization)
    builder.set(row, Sync{.event = given.number});
  else if (given.kind == EventKind::kOperator)
    builder.set(row, Details{.shapes = builder.text(std::string(given.number, 'z'))});
}

Trace trace_of(const std::vector<Given>& rows) {
  Trace trace;
  TraceBuilder builder(trace);
  for (const Given& given : rows) {
    const size_t row = builder.add(given.kind,
                                   builder.text(given.name),
                                   builder.lane(given.lane),
                                   given.start,
                                   given.duration);
    builder.set_correlation(row, given.correlation);
    add_details(builder, row, given);
    if (given.number == 2) builder.warn(given.name);
  }
  return trace;
}

TEST(TraceTable, ShuffledRowsSortToEqualTables) {
  std::mt19937 random(7);
  for (size_t count : {0, 1, 2, 30, 500}) {
    std::vector<Given> rows = random_rows(random, count);
    Trace first = trace_of(rows);
    first.sort();
    for (int i = 0; i < 10; ++i) {
      std::shuffle(rows.begin(), rows.end(), random);
      Trace other = trace_of(rows);
      other.sort();
      ASSERT_EQ(lines_of(other), lines_of(first));
      ASSERT_EQ(other.names, first.names);
      ASSERT_EQ(other.lanes, first.lanes);
      ASSERT_EQ(other.detail, first.detail);
    }
  }
}

TEST(TraceTable, SortingKeepsEveryRow) {
  std::mt19937 random(11);
  Trace trace = trace_of(random_rows(random, 400));
  const auto texts_of = [](const Trace& t) {
    std::vector<std::string> lines = lines_of(t);
    for (std::string& line : lines) {  // lanes are numbered anew: leave their number out
      const size_t at = line.find("' ");
      if (at != std::string::npos) line.erase(at, line.find(' ', at + 2) - at);
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const std::vector<std::string> before = texts_of(trace);
  trace.sort();
  EXPECT_EQ(texts_of(trace), before);
}

TEST(TraceTable, RowsGoByStartThenTheLongestFirst) {
  std::mt19937 random(3);
  Trace trace = trace_of(random_rows(random, 300));
  trace.sort();
  for (size_t row = 1; row < trace.size(); ++row) {
    ASSERT_LE(trace.start_ns[row - 1], trace.start_ns[row]);
    if (trace.start_ns[row - 1] == trace.start_ns[row]) {
      ASSERT_GE(trace.duration_ns[row - 1], trace.duration_ns[row]);
    }
  }
  EXPECT_TRUE(std::is_sorted(trace.names.begin(), trace.names.end()));
  EXPECT_EQ(trace.names[0], "");
}

TEST(TraceTable, BuilderGivesEqualTextsAndLanesOneNumber) {
  Trace trace;
  TraceBuilder builder(trace);
  EXPECT_EQ(builder.text(""), 0u);
  const uint32_t name = builder.text("mm");
  EXPECT_NE(name, 0u);
  EXPECT_EQ(builder.text("mm"), name);
  EXPECT_EQ(builder.lane({.thread = 1}), builder.lane({.thread = 1}));
  EXPECT_NE(builder.lane({.thread = 1}), builder.lane({.thread = 1, .device = 0}));
}

TEST(TraceTable, NegativeDurationIsAWarning) {
  Trace trace;
  TraceBuilder builder(trace);
  for (int i = 0; i < 2; ++i) builder.add(EventKind::kOther, 0, builder.lane({}), 5, -1);
  EXPECT_EQ(trace.duration_ns, (std::vector<int64_t>{0, 0}));
  ASSERT_EQ(trace.warnings.size(), 1u);
  EXPECT_EQ(trace.warnings[0].count, 2);
}

TEST(TraceTable, DeviceWorkIsKernelsCopiesAndSets) {
  for (int i = 0; i < 12; ++i) {
    Trace trace;
    TraceBuilder builder(trace);
    const auto kind = static_cast<EventKind>(i);
    builder.add(kind, 0, builder.lane({}), 0, 1);
    const bool is_work =
        kind == EventKind::kKernel || kind == EventKind::kCopy || kind == EventKind::kSet;
    EXPECT_EQ(trace.has_device_work(), is_work) << name_of(kind);
  }
}

}  // namespace
}  // namespace ridge::doctor
