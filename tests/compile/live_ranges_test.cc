// Compares the arena as the plan alone shows it with the planner's count from the graph.
#include "ridge/compile/live_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/nn/training.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"

namespace ridge {
namespace {

constexpr Place place(int64_t offset, int64_t bytes) { return {Region::kArena, offset, bytes}; }

// x -> a -> b (in a's bytes), with a workspace beside a; b is the output.
TEST(LiveRanges, OfASmallPlanByHand) {
  EntryPlan entry;
  entry.inputs = {{"x", {}, place(0, 100)}};
  PlanStep first, second;
  first.inputs = {place(0, 100)};
  first.outputs = {place(128, 100)};
  first.workspace = place(256, 64);
  second.inputs = {place(128, 100), {Region::kState, 0, 640}};
  second.outputs = {place(128, 100)};
  entry.steps = {first, second};
  entry.outputs = {{"b", {}, place(128, 100)}};
  const std::vector<LiveRange> ranges = live_ranges(entry);
  ASSERT_EQ(ranges.size(), 4u);
  const auto expect = [&](size_t i, LiveRange::Kind kind, int begin, int end) {
    EXPECT_EQ(ranges[i].kind, kind) << i;
    EXPECT_EQ(ranges[i].begin, begin) << i;
    EXPECT_EQ(ranges[i].end, end) << i;
  };
  expect(0, LiveRange::Kind::kInput, 0, 1);
  expect(1, LiveRange::Kind::kWorkspace, 1, 1);
  expect(2, LiveRange::Kind::kResult, 1, 2);
  expect(3, LiveRange::Kind::kResult, 2, 3);
  EXPECT_EQ(live_bytes(entry, ranges), (std::vector<int64_t>{128, 128 + 128 + 64, 128, 128}));
}

// The planner's lower bound comes from lifetimes in the graph, this one from bytes in the plan.
TEST(LiveRanges, LargestLiveSetIsThePlannersLowerBound) {
  for (const std::string kind : {"mlp", "cnn", "gpt"}) {
    nn::ModelOptions options;
    options.kind = parse_name<nn::ModelKind>(kind).value();
    options.mlp.outputs = options.cnn.outputs = 10;
    options.cnn.widths = {4, 8};
    options.gpt = {.vocab = 11, .context = 8, .layers = 2, .heads = 2, .width = 8, .dropout = 0.1};
    const bool text = kind == "gpt";
    const nn::SampleTypes sample =
        text ? nn::SampleTypes{{DType::kI64, {8}}, {DType::kI64, {8}}}
             : nn::SampleTypes{{DType::kF32, {8, 8, 2}}, {DType::kI64, {}}};
    const nn::Training training(nn::make_model(options, sample), {});
    const auto backend = make_backend("cpu");
    const CompiledProgram program =
        compile_program(training.program({.micro = {4, 3}, .eval = {5}}), *backend);
    for (const EntryPlan& entry : program.plan.entries) {
      const std::vector<int64_t> live = live_bytes(entry, live_ranges(entry));
      EXPECT_EQ(live.size(), entry.steps.size() + 2);
      EXPECT_EQ(*std::max_element(live.begin(), live.end()), entry.lower_bound_bytes)
          << kind << " " << entry.name;
    }
  }
}

}  // namespace
}  // namespace ridge
