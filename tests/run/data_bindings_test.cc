// Inputs and outputs that lie where the caller has them: the bits of those that are copied.
#include "ridge/run/data_bindings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/own_program.h"
#include "tests/support/random_graph.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Memory of a backend at some alignment, and its tensor on the host.
class BoundMemory {
 public:
  BoundMemory(Backend& backend, const TensorType& type, size_t skipped)
      : backend_(backend),
        stream_(backend.make_stream()),
        type_(type),
        memory_(backend, static_cast<size_t>(type.bytes()) + 128),
        at_(static_cast<std::byte*>(memory_.get()) + skipped) {}
  void* at() { return at_; }
  void put(const Tensor& value) {
    backend_.copy_to_device(*stream_, at_, value.data(), value.bytes());
    stream_->synchronize();
  }
  Tensor get() {
    Tensor value(type_);
    backend_.copy_to_host(*stream_, value.data(), at_, value.bytes());
    stream_->synchronize();
    return value;
  }

 private:
  Backend& backend_;
  std::unique_ptr<Stream> stream_;
  TensorType type_;
  DeviceMemory memory_;
  std::byte* at_;
};

void expect_same_bits(Backend& backend, uint64_t seed) {
  std::mt19937_64 random(seed);
  CaseBuilder b = random_graph(
      seed, {.dtype = seed % 2 == 0 ? DType::kF32 : DType::kF64, .gradients = seed % 4 < 2});
  ProgramGraphs graphs;
  graphs.entries.push_back(b.graph().clone());
  OwnProgram program(std::move(graphs), backend);
  const EntryPlan& plan = program.plan().entries[0];
  for (const PlanSlot& input : plan.inputs)
    program.write(program.input(0, input.name), b.tensors().at(input.name).data());
  program.run(0);
  NamedTensors wanted;
  for (const PlanSlot& output : plan.outputs) {
    Tensor tensor(output.type);
    program.read(program.output(0, output.name), tensor.data());
    program.synchronize();
    wanted.emplace(output.name, std::move(tensor));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<BoundMemory>> inputs, outputs;
    std::vector<std::pair<BoundMemory*, const Tensor*>> bound;
    for (const PlanSlot& slot : plan.inputs) {
      const Tensor& value = b.tensors().at(slot.name);
      const size_t skipped = random() % 3 == 0 ? 64 : random() % 2 == 0 ? 0 : 8;
      BoundMemory& place =
          *inputs.emplace_back(std::make_unique<BoundMemory>(backend, slot.type, skipped));
      if (random() % 4 == 0) {
        EXPECT_EQ(program.bind_input(program.input(0, slot.name), nullptr), "");
        program.write(program.input(0, slot.name), value.data());
        continue;
      }
      place.put(value);
      bound.emplace_back(&place, &value);
      const std::string_view why = program.bind_input(program.input(0, slot.name), place.at());
      std::string_view refusal;
      if (slot.uses.empty())
        refusal = "it has no bytes that are its own";
      else if (skipped == 8 && !backend.is_host())
        refusal = "its address is no multiple of 64";
      EXPECT_EQ(why, refusal);
    }
    for (const PlanSlot& slot : plan.outputs) {
      const size_t skipped = random() % 3 == 0 ? 8 : 64;
      BoundMemory& place =
          *outputs.emplace_back(std::make_unique<BoundMemory>(backend, slot.type, skipped));
      const std::string_view why = program.bind_output(program.output(0, slot.name), place.at());
      EXPECT_EQ(why.empty(), skipped == 64 && !slot.uses.empty()) << why;
    }
    for (int run = 0; run < 2; ++run) {
      for (const PlanSlot& slot : plan.inputs)
        if (run == 1) program.bind_input(program.input(0, slot.name), nullptr);
      if (run == 1)
        for (const PlanSlot& slot : plan.inputs)
          program.write(program.input(0, slot.name), b.tensors().at(slot.name).data());
      program.run(0);
      program.synchronize();
      NamedTensors got;
      for (size_t i = 0; i < outputs.size(); ++i)
        got.emplace(plan.outputs[i].name, outputs[i]->get());
      ASSERT_EQ(bit_difference(wanted, got), "") << "seed " << seed << ", round " << round;
    }
    for (const auto& [place, value] : bound) EXPECT_TRUE(place->get().same_bits(*value));
    for (const PlanSlot& slot : plan.outputs)
      EXPECT_EQ(program.bind_output(program.output(0, slot.name), nullptr), "");
  }
}

// All memory is the caller's, the arena too, which is another one in each run and full of
// something.
void expect_same_bits_without_memory(Backend& backend, uint64_t seed) {
  CaseBuilder b = random_graph(
      seed, {.dtype = seed % 2 == 0 ? DType::kF32 : DType::kF64, .gradients = seed % 4 < 2});
  ProgramGraphs graphs;
  graphs.entries.push_back(b.graph().clone());
  Graph plain = b.graph().clone();
  run_pipeline(plain, backend, {.off = {"all"}});
  const NamedTensors wanted = evaluate(plain, backend, b.tensors());
  ProgramOptions options;
  options.passes.off = {"all"};
  options.plan.binds = true;
  OwnProgram program(std::move(graphs), backend, options);
  const Plan& plan = program.plan();
  const auto arena_type = TensorType{DType::kU8, {plan.arena_bytes}};
  std::vector<std::unique_ptr<BoundMemory>> memory;
  const auto make = [&](const TensorType& type) -> BoundMemory& {
    return *memory.emplace_back(std::make_unique<BoundMemory>(backend, type, 0));
  };
  for (int run = 0; run < 3; ++run) {
    Tensor noise(arena_type);
    std::memset(noise.data(), 0xff, noise.bytes());
    BoundMemory& arena = make(arena_type);
    arena.put(noise);
    program.bind_arena(arena.at());
    std::vector<BoundMemory*> inputs, outputs;
    for (const PlanSlot& slot : plan.entries[0].inputs) {
      inputs.push_back(&make(slot.type));
      inputs.back()->put(b.tensors().at(slot.name));
      program.bind_input(program.input(0, slot.name), inputs.back()->at());
    }
    for (const PlanSlot& slot : plan.entries[0].outputs) {
      outputs.push_back(&make(slot.type));
      program.bind_output(program.output(0, slot.name), outputs.back()->at());
    }
    program.run(0);
    program.synchronize();
    NamedTensors got;
    for (size_t i = 0; i < outputs.size(); ++i)
      got.emplace(plan.entries[0].outputs[i].name, outputs[i]->get());
    ASSERT_EQ(bit_difference(wanted, got), "") << "seed " << seed << ", run " << run;
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(inputs[i]->get().same_bits(b.tensors().at(plan.entries[0].inputs[i].name)));
  }
}

// Each run reads and writes what is bound then, and nothing else: other values each time, in memory
// that stays and in memory that comes anew.
void expect_binding_is_used(Backend& backend, size_t skipped, std::string_view why) {
  const TensorType type{DType::kF32, {40}};
  Graph graph("main");
  graph.add_output("y", exp(input(graph, "x", type)) + input(graph, "z", type));
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  OwnProgram program(std::move(graphs), backend);
  BoundMemory z(backend, type, 0);
  EXPECT_EQ(program.bind_input(program.input(0, "z"), z.at()), "");
  std::vector<std::unique_ptr<BoundMemory>> xs, ys;
  for (int run = 0; run < 8; ++run) {
    if (run % 2 == 0) {
      xs.push_back(std::make_unique<BoundMemory>(backend, type, skipped));
      ys.push_back(std::make_unique<BoundMemory>(backend, type, 64));
      EXPECT_EQ(program.bind_input(program.input(0, "x"), xs.back()->at()), why);
      EXPECT_EQ(program.bind_output(program.output(0, "y"), ys.back()->at()), "");
    }
    Tensor x(type), more(type);
    for (int64_t i = 0; i < x.elements(); ++i) {
      x.set(i, 0.01 * static_cast<double>(i + 41 * run));
      more.set(i, run);
    }
    xs.back()->put(x);
    z.put(more);
    program.run(0);
    program.synchronize();
    const Tensor y = ys.back()->get();
    for (int64_t i = 0; i < x.elements(); ++i)
      ASSERT_NEAR(y.at(i), std::exp(x.at(i)) + run, 1e-4 * y.at(i)) << "run " << run;
  }
}

TEST(DataBindings, EachRunUsesWhatIsBoundThen) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    const auto cpu = make_cpu_backend(mode);
    expect_binding_is_used(*cpu, 4, "");
    expect_binding_is_used(*cpu, 2, "its address is no multiple of the size of an element");
  }
  for (const bool records : {false, true}) {
    LazyBackend device({.schedule = LazyOptions::Schedule::kRandom, .records = records});
    expect_binding_is_used(device, 0, "");
    expect_binding_is_used(device, 4, "its address is no multiple of 64");
  }
}

TEST(DataBindings, BoundAndCopiedDataGiveTheSameBits) {
  for (int i = 0; i < cases(20); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    expect_same_bits(*make_cpu_backend(), seed);
    expect_same_bits(*make_cpu_backend(StreamMode::kThread), seed);
    LazyBackend device({.schedule = LazyOptions::Schedule::kRandom, .seed = seed, .records = true});
    expect_same_bits(device, seed);
    if (HasFatalFailure()) return;
  }
}

TEST(DataBindings, AProgramNeedsNoMemoryOfItsOwn) {
  for (int i = 0; i < cases(20); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    expect_same_bits_without_memory(*make_cpu_backend(), seed);
    LazyBackend device({.schedule = LazyOptions::Schedule::kRandom, .seed = seed, .records = true});
    expect_same_bits_without_memory(device, seed);
    if (HasFatalFailure()) return;
  }
}

TEST(DataBindings, WhatIsBoundHasNoPlaceInTheArena) {
  const TensorType type{DType::kF32, {1024}};
  Graph graph("main");
  const Value x = input(graph, "x", type);
  const Value y = exp(x);
  graph.add_output("y", y);
  graph.add_output("z", matmul(reshape(y, {32, 32}), reshape(x, {32, 32})));
  graph.add_output("same", x);
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const auto cpu = make_cpu_backend();
  const Plan plan = make_plan(graphs, *cpu, {.binds = true});
  int64_t workspace = 0;
  for (const PlanStep& step : plan.entries[0].steps) workspace += step.workspace.bytes;
  EXPECT_LE(plan.arena_bytes, 4096 + aligned_bytes(workspace));  // x, which is an output as well
}

}  // namespace
}  // namespace ridge::test
