// Planned execution against plain evaluation, and the plan against a replay that knows only bytes.
#include "ridge/run/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ridge/base/trace/trace.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/support/compare.h"
#include "tests/support/own_program.h"
#include "tests/support/random_graph.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Whether a slice has the first elements of its operand in their order.
bool is_beginning(const Node& node) {
  if (!node.is<Slice>()) return false;
  Graph graph("slice");
  const TensorType& from = node.inputs[0].type();
  const Value numbers = reshape(iota(graph, {DType::kI64, {from.elements()}}, 0), from.shape);
  graph.add_output("y", add_node(Slice(node.op_as<Slice>()), {numbers}));
  const Tensor y = evaluate(graph, *make_backend("ref"), {}).at("y");
  for (int64_t i = 0; i < y.elements(); ++i)
    if (y.at(i) != static_cast<double>(i)) return false;
  return true;
}

std::string input_name(const Node& node) { return node.op_as<Input>().input_name; }

// Runs an entry of the program on tensors and returns its outputs.
NamedTensors run_entry(Program& program, size_t entry, const NamedTensors& inputs) {
  for (const PlanSlot& slot : program.plan().entries[entry].inputs)
    program.write(program.input(entry, slot.name), inputs.at(slot.name).data());
  program.run(entry);
  NamedTensors outputs;
  for (const PlanSlot& slot : program.plan().entries[entry].outputs) {
    Tensor tensor(slot.type);
    program.read(program.output(entry, slot.name), tensor.data());
    outputs.emplace(slot.name, std::move(tensor));
  }
  program.synchronize();
  return outputs;
}

// Replays the plan over bytes that remember which value was written there last, and expects that
// every read finds what it was planned to find.
class Replay {
 public:
  Replay(const Plan& plan, const EntryPlan& entry, const Graph& graph)
      : entry_(entry),
        graph_(graph),
        state_(static_cast<size_t>(plan.state_bytes / 64), -1),
        arena_(static_cast<size_t>(plan.arena_bytes / 64), -1) {
    for (const PlanSlot& slot : plan.state) write(slot.place, state_owner(slot.name));
    for (const PlanSlot& slot : entry.inputs)
      write(slot.place, owner({graph.find_input(slot.name), 0}));
  }

  void run(bool shares_reshapes) {
    shares_ = shares_reshapes;
    for (const PlanStep& step : entry_.steps) {
      const Node& node = *graph_.nodes()[static_cast<size_t>(step.node)];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        expect(step.inputs[i], owner(node.inputs[i]), step.site);
      if (step.workspace.bytes > 0) {
        for (const Place& place : step.inputs) expect_apart(place, step.workspace);
        write(step.workspace, -2);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i)
        write(step.outputs[i], owner({const_cast<Node*>(&node), static_cast<int>(i)}));
      for (const Place& place : step.outputs) expect_apart(place, step.workspace);
    }
    for (const PlanSlot& slot : entry_.outputs)
      for (const Output& output : graph_.outputs())
        if (output.name == slot.name) expect(slot.place, owner(output.value), slot.name);
  }

  void expect_updates(const Plan& plan) {
    for (const Output& output : graph_.outputs())
      for (const PlanSlot& slot : plan.state)
        if (slot.name == output.updates) expect(slot.place, owner(output.value), slot.name);
  }

 private:
  int state_owner(const std::string& name) {
    const Node* node = graph_.find_input(name);
    return node == nullptr ? -3 : owner({const_cast<Node*>(node), 0});
  }
  int owner(Value value) const {
    while (shares_ && (value.node->is<Reshape>() || is_beginning(*value.node)))
      value = value.node->inputs[0];
    return value.node->id * 8 + value.index;
  }
  std::vector<int>& bytes_of(const Place& place) {
    return place.region == Region::kState ? state_ : arena_;
  }
  void write(const Place& place, int owner) {
    for (int64_t line = place.offset / 64; line * 64 < place.offset + place.bytes; ++line)
      bytes_of(place).at(static_cast<size_t>(line)) = owner;
  }
  void expect(const Place& place, int owner, const std::string& where) {
    for (int64_t line = place.offset / 64; line * 64 < place.offset + place.bytes; ++line)
      ASSERT_EQ(bytes_of(place).at(static_cast<size_t>(line)), owner) << where;
  }
  void expect_apart(const Place& a, const Place& b) {
    if (a.region != b.region || a.bytes == 0 || b.bytes == 0) return;
    EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
  }

  const EntryPlan& entry_;
  const Graph& graph_;
  bool shares_ = true;
  std::vector<int> state_, arena_;  // by cache line
};

// A random graph with some inputs as state that some of its values update.
struct Case {
  ProgramGraphs graphs;
  NamedTensors tensors;
};

Case random_case(uint64_t seed) {
  CaseBuilder b = random_graph(seed, {.dtype = seed % 2 == 0 ? DType::kF64 : DType::kF32});
  Random random(seed + 1000);
  Case c;
  c.tensors = b.tensors();
  Graph graph = b.graph().clone();
  for (const Node* node : graph.inputs()) {
    if (!random.chance(0.7)) continue;
    c.graphs.state.push_back({input_name(*node), node->outputs[0], StateRole::kParameter});
    std::vector<Value> fitting;
    for (const auto& other : graph.nodes())
      for (size_t i = 0; i < other->outputs.size(); ++i)
        if (other->outputs[i] == node->outputs[0])
          fitting.push_back({other.get(), static_cast<int>(i)});
    // Also the input itself, another input, and the same value for two inputs.
    if (random.chance(0.7))
      graph.add_output(
          "new." + input_name(*node),
          fitting[static_cast<size_t>(random.integer(0, static_cast<int64_t>(fitting.size()) - 1))],
          input_name(*node));
  }
  c.graphs.entries.push_back(std::move(graph));
  return c;
}

void expect_same_as_evaluate(uint64_t seed, const ProgramOptions& options) {
  const auto cpu = make_backend("cpu");
  Case c = random_case(seed);
  Graph plain = c.graphs.entries[0].clone();
  run_pipeline(plain, *cpu, {.off = {"all"}});
  const NamedTensors wanted = evaluate(plain, *cpu, c.tensors);
  std::map<std::string, std::string> updates;
  for (const Output& output : c.graphs.entries[0].outputs()) updates[output.name] = output.updates;
  OwnProgram program(std::move(c.graphs), *cpu, options);
  Replay replay(program.plan(), program.plan().entries[0], program.entries()[0]);
  replay.run(options.plan.reuse);
  replay.expect_updates(program.plan());
  for (const PlanSlot& slot : program.plan().state)
    program.state().write(slot.name, c.tensors.at(slot.name));
  NamedTensors got = run_entry(program, 0, c.tensors);
  for (const auto& [name, updated] : updates)
    if (!updated.empty()) got.emplace(name, program.state().read(updated));
  ASSERT_EQ(bit_difference(wanted, got), "") << "seed " << seed;
  // State that was not updated keeps its bytes.
  for (const PlanSlot& slot : program.plan().state) {
    bool is_updated = false;
    for (const auto& [name, updated] : updates) is_updated = is_updated || updated == slot.name;
    if (!is_updated) {
      EXPECT_TRUE(program.state().read(slot.name).same_bits(c.tensors.at(slot.name))) << slot.name;
    }
  }
}

TEST(Program, RandomGraphsGiveTheBitsOfEvaluate) {
  for (int seed = 0; seed < cases(200); ++seed) {
    expect_same_as_evaluate(static_cast<uint64_t>(seed), {});
    if (HasFatalFailure()) return;
  }
}

TEST(Program, ThePlainWayGivesTheSameBits) {
  for (int seed = 0; seed < cases(100); ++seed) {
    expect_same_as_evaluate(static_cast<uint64_t>(seed), plain_options());
    if (HasFatalFailure()) return;
  }
}

Value state_input(ProgramGraphs& graphs, Graph& graph, const std::string& name, Shape shape) {
  const TensorType type{DType::kF32, std::move(shape)};
  graphs.state.push_back({name, type, StateRole::kParameter});
  return input(graph, name, type);
}

Tensor filled(Shape shape, double value) {
  Tensor tensor({DType::kF32, std::move(shape)});
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value + static_cast<double>(i));
  return tensor;
}

TEST(Program, AnAccumulationTakesNoMemory) {
  ProgramGraphs graphs;
  Graph graph("micro");
  const Value sum = state_input(graphs, graph, "sum", {1024});
  const Value x = input(graph, "x", {DType::kF32, {1024}});
  graph.add_output("new", sum + x, "sum");
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  EXPECT_EQ(program.plan().arena_bytes, 4096);  // x alone
  const Tensor ones = filled({1024}, 1);
  for (int i = 0; i < 3; ++i) run_entry(program, 0, {{"x", ones}});
  EXPECT_EQ(program.state().read("sum").at(5), 18);
}

TEST(Program, AChainRunsInTwoBuffers) {
  Graph graph("chain");
  Value x = input(graph, "x", {DType::kF32, {64, 64}});
  for (int i = 0; i < 6; ++i) x = matmul(exp(x), x);
  graph.add_output("y", x);
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  const Plan plan = make_plan(graphs, *cpu, {});
  int64_t workspace = 0;
  for (const PlanStep& step : plan.entries[0].steps)
    workspace = std::max(workspace, step.workspace.bytes);
  EXPECT_LE(plan.arena_bytes, 3 * 64 * 64 * 4 + workspace + 63);
}

TEST(Program, StatesThatSwapAreSwapped) {
  ProgramGraphs graphs;
  Graph graph("swap");
  const Value a = state_input(graphs, graph, "a", {8});
  const Value b = state_input(graphs, graph, "b", {8});
  graph.add_output("a.new", b, "a");
  graph.add_output("b.new", a, "b");
  graph.add_output("old", reshape(a, {2, 4}));
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  program.state().write("a", filled({8}, 0));
  program.state().write("b", filled({8}, 100));
  const NamedTensors outputs = run_entry(program, 0, {});
  EXPECT_EQ(program.state().read("a").at(3), 103);
  EXPECT_EQ(program.state().read("b").at(3), 3);
  EXPECT_EQ(outputs.at("old").at(3), 3);
}

// A slice that cuts off only the end is read in place and takes no bytes; a state that such a value
// becomes gets a copy, since the slice's source is larger.
TEST(Program, ASliceFromTheFirstByteOnIsReadWhereItLies) {
  ProgramGraphs graphs;
  Graph graph("cut");
  const Value s = state_input(graphs, graph, "s", {24, 64});
  const Value x = input(graph, "x", {DType::kF32, {32, 64}});
  const Value whole = x + x;
  const Value first = slice(whole, 0, 0, 24);
  graph.add_output("y", matmul(first, first, false, true));
  graph.add_output("column", slice(whole, 1, 0, 1));
  graph.add_output("s.new", first, "s");
  graph.add_output("s.old", slice(s, 0, 0, 20));
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  std::map<std::string, int> launches;
  for (const PlanStep& step : program.plan().entries[0].steps) ++launches[step.op];
  EXPECT_EQ(launches["slice"], 1);  // the slice of the column
  program.state().write("s", filled({24, 64}, 5));
  const NamedTensors outputs = run_entry(program, 0, {{"x", filled({32, 64}, -2000)}});
  EXPECT_EQ(outputs.at("s.old").at(70), 75);
  EXPECT_EQ(program.state().read("s").at(1500), -1000);
  EXPECT_EQ(outputs.at("column").at(31), -32);
}

TEST(Program, EntriesShareOneArena) {
  ProgramGraphs graphs;
  for (const char* name : {"small", "large"}) {
    Graph graph(name);
    const Value x = input(graph, "x", {DType::kF32, {name[0] == 's' ? 16 : 4096}});
    graph.add_output("y", exp(x));
    graphs.entries.push_back(std::move(graph));
  }
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  EXPECT_EQ(program.plan().arena_bytes, program.plan().entries[1].peak_bytes);
  EXPECT_EQ(program.entry("large"), 1u);
  try {
    program.entry("lrge");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'large'"));
  }
}

TEST(Program, WrongDataIsNamedByItsSite) {
  Graph graph("lookup");
  const Value ids = input(graph, "ids", {DType::kI64, {2}});
  const Value table = input(graph, "table", {DType::kF32, {4, 2}});
  graph.add_output("y", embedding(table, ids));
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  Tensor bad({DType::kI64, {2}});
  bad.set(1, 4);
  try {
    run_entry(program, 0, {{"ids", bad}, {"table", filled({4, 2}, 0)}});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("at site ':gather.0'"));
  }
}

TEST(Program, AnUpdateOfWhatIsNotStateIsRefused) {
  Graph graph("g");
  const Value x = input(graph, "x", {DType::kF32, {2}});
  graph.add_output("y", exp(x), "x");
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  EXPECT_THROW(OwnProgram(std::move(graphs), *cpu), UserError);
}

TEST(Program, FirstNotFiniteNamesTheNode) {
  Graph graph("g");
  const Value x = input(graph, "x", {DType::kF32, {4}});
  Value masked = where(gt(x, constant_like(x, 100.0)), x, constant_like(x, -INFINITY));
  SiteScope scope(graph, "layer.1");
  graph.add_output("y", exp(masked) + log(x));
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  Tensor bad = filled({4}, 1);
  program.write(program.input(0, "x"), bad.data());
  EXPECT_EQ(program.first_not_finite(0), "");
  bad.set(2, -1);
  program.write(program.input(0, "x"), bad.data());
  EXPECT_THAT(program.first_not_finite(0), testing::StartsWith("layer.1:log.0 (nan at element 2"));
}

// In a loop behind a product, too, the report names the op in the loop, not the node.
TEST(Program, FirstNotFiniteLooksIntoALoopBehindAProduct) {
  Graph graph("g"), body("fused"), alone("alone");
  const TensorType two{DType::kF32, {2, 2}};
  {
    const Value product = input(body, "0", two), other = input(body, "1", two);
    SiteScope scope(body, "layer.2");
    body.add_output("0", exp(product) + log(other));
  }
  const auto& loop =
      fused(alone, body, {input(alone, "0", two), input(alone, "1", two)}, Site{"loop"});
  const Value x = input(graph, "x", two);
  graph.add_output(
      "y",
      {&fused_matmul(graph, MatMul(), loop.op_as<Fused>(), x, x, {x}, Site{"layer.3:joint"}), 0});
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  Tensor bad = filled({2, 2}, 1);
  program.write(program.input(0, "x"), bad.data());
  EXPECT_EQ(program.first_not_finite(0), "");
  bad.set(2, -1);
  program.write(program.input(0, "x"), bad.data());
  EXPECT_THAT(program.first_not_finite(0), testing::StartsWith("layer.2:log.0 (nan at element 2"));
}

TEST(Program, ARunWithoutKernelsChangesNothing) {
  ProgramGraphs graphs;
  Graph graph("micro");
  const Value sum = state_input(graphs, graph, "sum", {64});
  graph.add_output("new", sum + input(graph, "x", {DType::kF32, {64}}), "sum");
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(graphs), *cpu);
  const Tensor ones = filled({64}, 1);
  program.write(program.input(0, "x"), ones.data());
  program.run(0, RunMode::kNoKernel);
  EXPECT_EQ(program.state().read("sum").at(5), 0);
  program.run(0);
  EXPECT_EQ(program.state().read("sum").at(5), 6);
}

TEST(Program, ATraceHoldsEveryLaunch) {
  Case c = random_case(3);
  const auto cpu = make_backend("cpu");
  OwnProgram program(std::move(c.graphs), *cpu);
  for (const PlanSlot& slot : program.plan().state)
    program.state().write(slot.name, c.tensors.at(slot.name));
  start_tracing();
  run_entry(program, 0, c.tensors);
  stop_tracing();
  const TraceLog log = drain_trace();
  std::multiset<std::string> traced, planned;
  for (const TraceEvent& event : log.events)
    if (event.category == "cpu_op") traced.insert(event.name);
  for (const PlanStep& step : program.plan().entries[0].steps) planned.insert(step.site);
  EXPECT_EQ(traced, planned);
}

TEST(Plan, TextAndHashAreStableAndTellPlansApart) {
  const auto cpu = make_backend("cpu");
  Case c = random_case(5), same = random_case(5), other = random_case(6);
  const Plan plan = make_plan(c.graphs, *cpu, {});
  EXPECT_EQ(print(plan), print(make_plan(same.graphs, *cpu, {})));
  EXPECT_NE(plan_hash(plan), plan_hash(make_plan(other.graphs, *cpu, {})));
  EXPECT_EQ(plan_hash(plan).size(), 16u);
}

}  // namespace
}  // namespace ridge::test
