// Pointwise convolutions and the depthwise ones behind them as one node: which join, and that the
// bits are those of two nodes, with weights packed or as they lie.
#include <gtest/gtest.h>

#include <random>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "ridge/run/program.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

struct Block {
  Shape x;
  int64_t channels;  // of the image between the convolutions
  std::array<int64_t, 2> kernel{3, 3};
  WindowFields window{.padding = {1, 1, 1, 1}};
  bool reads_twice = false;  // somebody else reads the image between
};

// relu(conv(relu(conv(x, w) + a), v) + b), and the image between where it is read twice.
ProgramGraphs graphs_of(const Block& block) {
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  const int64_t c = block.channels;
  ProgramGraphs graphs;
  graphs.state = {{"w", f32({1, 1, block.x[3], c})},
                  {"a", f32({c})},
                  {"v", f32({block.kernel[0], block.kernel[1], 1, c})},
                  {"b", f32({c})}};
  Graph& graph = graphs.entries.emplace_back("use");
  std::map<std::string, Value> state;
  for (const StateEntry& entry : graphs.state)
    state[entry.name] = input(graph, entry.name, entry.type);
  const auto finish = [&](Value y, const std::string& shift) {
    return maximum(y + broadcast(state[shift], y.shape()), constant_like(y, 0.0));
  };
  const Value y = finish(conv2d(input(graph, "x", f32(block.x)), state["w"], {}, 1), "a");
  graph.add_output("z", finish(conv2d(y, state["v"], block.window, c), "b"));
  if (block.reads_twice) graph.add_output("y", y);
  return graphs;
}

ProgramOptions options_of(bool joins, bool packs) {
  ProgramOptions options;
  if (!joins) options.passes.off = {"fuse_depthwise"};
  options.plan.packs = packs;
  return options;
}

Tensor random_tensor(const TensorType& type, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  return tensor;
}

bool is_joined(const Program& program) {
  for (const PlanStep& step : program.plan().entries[0].steps)
    if (step.choice_name == "bands") return true;
  return false;
}

NamedTensors run(Program& program, const Tensor& x) {
  program.write(program.input(0, "x"), x.data());
  program.run(0);
  NamedTensors results;
  Tensor z(program.plan().entries[0].outputs[0].type);
  program.read(program.output(0, "z"), z.data());
  program.synchronize();
  results.emplace("z", std::move(z));
  return results;
}

// One whose image between is larger than the backend leaves to two nodes.
Block random_block(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  Block block{.x = {size(1, 3), size(3, 40), size(3, 40), size(1, 40)}, .channels = size(8, 100)};
  block.kernel = {std::min(size(1, 5), block.x[1]), std::min(size(1, 5), block.x[2])};
  block.window.stride = {size(1, 2), size(1, 2)};
  for (size_t i = 0; i < 4; ++i) block.window.padding[i] = size(0, block.kernel[i % 2] - 1);
  while (block.x[0] * block.x[1] * block.x[2] * block.channels * 4 < (1 << 20))
    ++(block.x[1] < 60 ? block.x[1] : block.x[0]);
  return block;
}

TEST(PointwiseDepthwise, TheBitsAreThoseOfTwoNodes) {
  const int threads = num_threads();
  const int all = cases(40);
  int joined = 0;
  for (int i = 0; i < all; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const Block block = random_block(seed);
    const auto cpu = make_cpu_backend();
    State state(*cpu);
    const ProgramGraphs graphs = graphs_of(block);
    state.declare(graphs.state);
    for (size_t j = 0; j < graphs.state.size(); ++j)
      state.write(graphs.state[j].name, random_tensor(graphs.state[j].type, 4 * seed + j));
    Program apart(graphs_of(block), state, options_of(false, false));
    Program plain(graphs_of(block), state, options_of(true, false));
    Program packs(graphs_of(block), state, options_of(true, true));
    EXPECT_FALSE(is_joined(apart));
    joined += is_joined(plain) && is_joined(packs);
    const Tensor x = random_tensor({DType::kF32, block.x}, seed + 1000);
    set_num_threads(1);
    const NamedTensors wanted = run(apart, x);
    for (const int count : {1, 2, 7}) {
      set_num_threads(count);
      for (Program* program : {&plain, &packs})
        EXPECT_EQ(bit_difference(run(*program, x), wanted), "")
            << "seed " << seed << " by " << count << " threads\n"
            << print(program->plan());
    }
    set_num_threads(threads);
    if (HasFailure()) return;
  }
  EXPECT_GT(joined, all * 3 / 4);
}

bool joins(const Block& block) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  state.declare(graphs_of(block).state);
  return is_joined(Program(graphs_of(block), state, options_of(true, true)));
}

TEST(PointwiseDepthwise, JoinsWhereNobodyElseReadsALargeImage) {
  const Block large{.x = {1, 56, 56, 24}, .channels = 144};
  EXPECT_TRUE(joins(large));
  Block read = large;
  read.reads_twice = true;
  EXPECT_FALSE(joins(read));
  EXPECT_FALSE(joins({.x = {1, 7, 7, 160}, .channels = 960}));
}

}  // namespace
}  // namespace ridge::test
