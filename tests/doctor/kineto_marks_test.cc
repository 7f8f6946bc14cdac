// Events that a trace has in two halves, many of them at the very same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "ridge/doctor/examination.h"
#include "ridge/doctor/report/json.h"
#include "tests/doctor/kineto_text.h"
#include "tests/doctor/trace_rows.h"

namespace ridge::doctor {
namespace {

using Lines = std::vector<std::string>;

std::string half(char phase, const std::string& name, int64_t ts, int thread = 1) {
  const std::string named = name.empty() ? "" : fmt::format(R"("name": "{}", )", name);
  return fmt::format(
      R"({{"ph": "{}", {}"pid": 1, "tid": {}, "ts": {}}})", phase, named, thread, ts);
}

std::string whole(const std::string& name, int64_t ts, int64_t duration, int thread = 1) {
  return fmt::format(R"({{"ph": "X", "name": "{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}}})",
                     name,
                     thread,
                     ts,
                     duration);
}

/// "name start+duration" of each row in microseconds, and the warnings.
Lines read_halves(const Lines& events) {
  const Trace trace = read_text(trace_text(events));
  Lines lines;
  for (size_t row = 0; row < trace.size(); ++row)
    lines.push_back(fmt::format("{} {}+{}",
                                trace.name_text(row),
                                trace.start_ns[row] / 1000,
                                trace.duration_ns[row] / 1000));
  for (const Warning& warning : trace.warnings) lines.push_back(warning.text);
  return lines;
}

/// Reads the events in each order that they can stand in; all orders give the same lines.
Lines read_permuted(Lines events) {
  std::sort(events.begin(), events.end());
  const Lines first = read_halves(events);
  while (std::next_permutation(events.begin(), events.end()))
    EXPECT_EQ(read_halves(events), first) << trace_text(events);
  return first;
}

TEST(KinetoMarks, AnEndClosesWhatBeganBeforeAndNotWhatBeginsThen) {
  EXPECT_EQ(
      read_permuted(
          {half('B', "step", 0), half('E', "step", 5), half('B', "step", 5), half('E', "step", 9)}),
      (Lines{"step 0+5", "step 5+4"}));
}

TEST(KinetoMarks, BeginningAndEndAtOneTimeAreAnEventOfNoLength) {
  EXPECT_EQ(read_permuted({half('B', "outer", 0),
                           half('B', "mark", 5),
                           half('E', "mark", 5),
                           half('E', "outer", 9)}),
            (Lines{"outer 0+9", "mark 5+0"}));
  EXPECT_EQ(read_permuted({half('B', "alone", 3), half('E', "alone", 3)}), Lines{"alone 0+0"});
}

TEST(KinetoMarks, EventsThatBeginOrEndTogetherNest) {
  EXPECT_EQ(
      read_permuted({half('B', "a", 0), half('B', "b", 0), half('E', "b", 4), half('E', "a", 9)}),
      (Lines{"a 0+9", "b 0+4"}));
  EXPECT_EQ(
      read_permuted({half('B', "a", 0), half('B', "b", 3), half('E', "b", 9), half('E', "a", 9)}),
      (Lines{"a 0+9", "b 3+6"}));
}

TEST(KinetoMarks, EndsWithoutNamesGoByTheOrderOfTheFile) {
  EXPECT_EQ(read_halves(
                {half('B', "outer", 0), half('B', "mark", 5), half('E', "", 5), half('E', "", 9)}),
            (Lines{"outer 0+9", "mark 5+0"}));
  EXPECT_EQ(read_halves({half('B', "a", 0), half('E', "", 5), half('B', "b", 5), half('E', "", 9)}),
            (Lines{"a 0+5", "b 5+4"}));
}

TEST(KinetoMarks, AnEndOfAnotherNameClosesTheInnermost) {
  EXPECT_EQ(
      read_permuted(
          {half('B', "a", 0), half('E', "end of a", 5), half('B', "b", 5), half('E', "b", 6)}),
      (Lines{"a 0+5", "b 5+1"}));
  EXPECT_EQ(read_permuted({half('B', "a", 2), half('E', "end of a", 2)}), Lines{"a 0+0"});
}

TEST(KinetoMarks, WhatOverlapsKeepsItsOwnEnd) {
  EXPECT_EQ(
      read_permuted({half('B', "a", 0), half('B', "b", 2), half('E', "a", 5), half('E', "b", 7)}),
      (Lines{"a 0+5", "b 2+5"}));
  // One whose end was lost does not take that of what it is in.
  EXPECT_EQ(read_permuted({half('B', "a", 0), half('B', "lost", 2), half('E', "a", 5)}),
            (Lines{"a 0+5", "events that begin and do not end were left out"}));
}

TEST(KinetoMarks, EndsInVainAreTold) {
  EXPECT_EQ(read_permuted({half('E', "a", 0), half('B', "b", 1), half('E', "b", 2)}),
            (Lines{"b 0+1", "events that end and did not begin were left out"}));
}

struct Nest {
  Lines halves, wholes;
  std::map<std::string, int64_t> time;  // by name
};

/// Events within events on two threads; half of the time no time goes by.
Nest some_nest(std::mt19937& random, int names) {
  Nest nest;
  for (int thread = 1; thread <= 2; ++thread) {
    std::vector<std::pair<int64_t, std::string>> open;
    int64_t now = 0;
    for (int i = 0; i < 60 || !open.empty(); ++i) {
      now += random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % 3);
      if (i < 60 && (open.empty() || random() % 2 == 0)) {
        const int number = names == 0 ? 100 * thread + i
                                      : static_cast<int>(random() % static_cast<uint32_t>(names));
        open.emplace_back(now, fmt::format("n{}", number));
        nest.halves.push_back(half('B', open.back().second, now, thread));
      } else {
        const auto [start, name] = open.back();
        open.pop_back();
        nest.halves.push_back(half('E', name, now, thread));
        nest.wholes.push_back(whole(name, start, now - start, thread));
        nest.time[name] += now - start;
      }
    }
  }
  return nest;
}

TEST(KinetoMarks, NamesThatComeOnceTellAllInAnyOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    Nest nest = some_nest(random, 0);
    const Lines expected = lines_of(read_text(trace_text(nest.wholes)));
    for (int order = 0; order < 3; ++order) {
      ASSERT_EQ(lines_of(read_text(trace_text(nest.halves))), expected) << round;
      std::shuffle(nest.halves.begin(), nest.halves.end(), random);
    }
  }
}

// Which beginning of a name an end belongs to may be a choice, and no order of the file makes it;
// how many there are and how long they take together is none.
TEST(KinetoMarks, NamesThatComeAgainGiveEqualTablesInAnyOrder) {
  std::mt19937 random(17);
  for (int round = 0; round < 100; ++round) {
    Nest nest = some_nest(random, 4);
    const Trace first = read_text(trace_text(nest.halves));
    ASSERT_EQ(first.size(), nest.wholes.size());
    EXPECT_TRUE(first.warnings.empty());
    std::map<std::string, int64_t> time;
    for (size_t row = 0; row < first.size(); ++row)
      time[std::string(first.name_text(row))] += first.duration_ns[row] / 1000;
    EXPECT_EQ(time, nest.time);
    for (int order = 0; order < 3; ++order) {
      std::shuffle(nest.halves.begin(), nest.halves.end(), random);
      const Trace other = read_text(trace_text(nest.halves));
      ASSERT_EQ(lines_of(other), lines_of(first)) << round;
      ASSERT_EQ(doctor_json(examine(other)), doctor_json(examine(first))) << round;
    }
  }
}

// 100,000 deep, and ends that nothing has the name of: each is found without a search.
TEST(KinetoMarks, DepthCostsNothing) {
  Lines events;
  for (int i = 0; i < 100'000; ++i) events.push_back(half('B', i % 2 == 0 ? "x" : "y", i));
  for (int i = 0; i < 100'000; ++i)
    events.push_back(half('E', i % 2 == 0 ? "x" : "z", 100'000 + i));
  const Trace trace = read_text(trace_text(events));
  EXPECT_EQ(trace.size(), 100'000u);
  EXPECT_TRUE(trace.warnings.empty());
}

}  // namespace
}  // namespace ridge::doctor
