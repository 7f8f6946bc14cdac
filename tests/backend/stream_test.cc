// Streams of the host, inline and on threads: the CPU form of asynchronous execution.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "ridge/backend/host.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

class EveryMode : public ::testing::TestWithParam<StreamMode> {};

INSTANTIATE_TEST_SUITE_P(Streams,
                         EveryMode,
                         ::testing::Values(StreamMode::kInline, StreamMode::kThread));

TEST_P(EveryMode, RunsInOrder) {
  const auto stream = make_host_stream(GetParam());
  std::vector<int> order;
  for (int i = 0; i < 10000; ++i) enqueue_host(*stream, [&order, i] { order.push_back(i); });
  stream->synchronize();
  std::vector<int> expected(10000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

// Two streams hand plain, unguarded memory back and forth: only the events order them. Without
// one of the waits ThreadSanitizer reports a race and the sum is wrong.
TEST_P(EveryMode, EventsOrderTwoStreams) {
  const auto a = make_host_stream(GetParam()), b = make_host_stream(GetParam());
  const auto produced = a->make_event(), consumed = b->make_event();
  int64_t cell = 0, sum = 0;
  for (int64_t i = 1; i <= 2000; ++i) {
    enqueue_host(*a, [&cell, i] { cell = i; });
    a->record(*produced);
    b->wait(*produced);
    enqueue_host(*b, [&cell, &sum] { sum += cell; });
    b->record(*consumed);
    a->wait(*consumed);
  }
  a->synchronize();
  b->synchronize();
  EXPECT_EQ(sum, 2000 * 2001 / 2);
}

TEST_P(EveryMode, WaitForAnEventThatWasNeverRecordedReturns) {
  const auto stream = make_host_stream(GetParam());
  const auto event = stream->make_event();
  stream->wait(*event);
  stream->synchronize();
}

TEST(ThreadStream, RunsBesideTheHost) {
  const auto stream = make_host_stream(StreamMode::kThread);
  std::atomic<bool> host_went_on = false;
  bool seen = false;
  enqueue_host(*stream, [&] {
    while (!host_went_on) std::this_thread::yield();
    seen = true;
  });
  host_went_on = true;  // an inline stream would never come here
  stream->synchronize();
  EXPECT_TRUE(seen);
}

TEST(ThreadStream, FirstErrorIsRethrownAtTheWaitAndLaterWorkIsSkipped) {
  const auto stream = make_host_stream(StreamMode::kThread);
  bool ran_after = false;
  enqueue_host(*stream, [] { throw UserError("first"); });
  enqueue_host(*stream, [] { throw UserError("second"); });
  enqueue_host(*stream, [&] { ran_after = true; });
  try {
    stream->synchronize();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_FALSE(ran_after);
  enqueue_host(*stream, [&] { ran_after = true; });  // the stream works again
  stream->synchronize();
  EXPECT_TRUE(ran_after);
}

// A stream that waits for one that failed must not hang.
TEST(ThreadStream, EventsPassEvenAfterAnError) {
  const auto a = make_host_stream(StreamMode::kThread), b = make_host_stream(StreamMode::kThread);
  const auto event = a->make_event();
  enqueue_host(*a, [] { throw UserError("broken"); });
  a->record(*event);
  b->wait(*event);
  b->synchronize();
  EXPECT_THROW(a->synchronize(), UserError);
}

TEST(ThreadStream, TwoStreamsMayUseThePoolAtOnce) {
  const auto a = make_host_stream(StreamMode::kThread), b = make_host_stream(StreamMode::kThread);
  std::vector<int64_t> x(100000), y(100000);
  const auto fill = [](std::vector<int64_t>& v) {
    parallel_for(static_cast<int64_t>(v.size()), 1000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) v[static_cast<size_t>(i)] += i;
    });
  };
  for (int i = 0; i < 20; ++i) {
    enqueue_host(*a, [&] { fill(x); });
    enqueue_host(*b, [&] { fill(y); });
  }
  a->synchronize();
  b->synchronize();
  EXPECT_EQ(x[99999], 20 * 99999);
  EXPECT_EQ(x, y);
}

TEST(KernelTable, ChoicesKeepTheirOrderAndMayRefuse) {
  KernelTable table;
  const auto make = [](const Node&) {
    return std::make_unique<HostKernel>([](const KernelArgs&) {});
  };
  table.add(
      "input", {"fast", 0}, make, [](const Node& node) { return node.outputs[0].rank() == 2; });
  table.add("input", {"general", 1}, make);
  Graph graph;
  const Value matrix = input(graph, "m", {DType::kF32, {2, 3}});
  const Value vector = input(graph, "v", {DType::kF32, {3}});
  ASSERT_EQ(table.candidates(*matrix.node).size(), 2u);
  EXPECT_EQ(table.candidates(*matrix.node)[0].name, "fast");
  ASSERT_EQ(table.candidates(*vector.node).size(), 1u);
  EXPECT_EQ(table.candidates(*vector.node)[0].name, "general");
  EXPECT_THROW(table.instantiate(*vector.node, 1), InternalError);
  EXPECT_TRUE(table.candidates(*(vector + 1.0).node).empty());
}

}  // namespace
}  // namespace ridge
