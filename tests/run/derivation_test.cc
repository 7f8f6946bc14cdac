// Buffers that are made from others: whatever wrote a source, and in which order, a reader sees
// what the sources hold now.
#include "ridge/run/derivation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"
#include "ridge/run/program.h"
#include "tests/support/errors.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/scale.h"
#include "tests/support/short_of_memory.h"

namespace ridge::test {
namespace {

constexpr int64_t kSize = 24;
const TensorType kSquare{DType::kF32, {kSize, kSize}};

using Make = Value (*)(Value, Value);

// An entry made from two others; where `make` needs but the first, the second is left out.
StateEntry derived(const char* name, const char* a, const char* b, Make make) {
  Graph graph(std::string("make ") + name);
  const Value first = input(graph, a, kSquare);
  const Value second = b == nullptr ? first : input(graph, b, kSquare);
  const Value made = make(first, second);
  input(graph, name, made.type());
  graph.add_output("made", made, name);
  return {
      name, made.type(), StateRole::kPacked, {}, std::make_shared<const Graph>(std::move(graph))};
}

Value turned(Value w, Value /*none*/) { return pad(transpose(w * 2.0, {1, 0}), {0, 1}, {0, 0}); }
// From what is derived itself, without the column that it was padded by.
Value mixed(Value turned, Value v) { return exp(slice(turned, 1, 1, kSize + 1) * 0.01) + v; }

Value uses(Value w, Value mixed, Value x) { return matmul(x, mixed) + w; }

enum class Way { kDerived, kPlain };

// "use" reads w and what is made from w and v: in buffers, or in the entry itself.
ProgramGraphs use_graphs(Way way) {
  ProgramGraphs graphs;
  for (const char* name : {"w", "v"}) graphs.state.push_back({name, kSquare});
  Graph& graph = graphs.entries.emplace_back("use");
  const Value w = input(graph, "w", kSquare), x = input(graph, "x", kSquare);
  if (way == Way::kPlain) {
    const Value all = mixed(turned(w, w), input(graph, "v", kSquare));
    graph.add_output("y", uses(w, all, x));
    return graphs;
  }
  graphs.state.push_back(derived("turned", "w", nullptr, turned));
  Graph second("make mixed");
  const TensorType wide = graphs.state.back().type;
  const Value made = mixed(input(second, "turned", wide), input(second, "v", kSquare));
  input(second, "mixed", kSquare);
  second.add_output("made", made, "mixed");
  graphs.state.push_back(
      {"mixed", kSquare, StateRole::kPacked, {}, std::make_shared<const Graph>(std::move(second))});
  graph.add_output("y", uses(w, input(graph, "mixed", kSquare), x));
  return graphs;
}

// "w" and "v" each update one; "both" reads what is derived, too, and updates its source.
ProgramGraphs train_graphs() {
  ProgramGraphs graphs = use_graphs(Way::kDerived);
  graphs.entries.clear();
  for (const char* name : {"w", "v"}) {
    Graph& graph = graphs.entries.emplace_back(name);
    const Value old = input(graph, name, kSquare);
    graph.add_output("new", old * 0.5 + 0.25, name);
  }
  Graph& graph = graphs.entries.emplace_back("both");
  const Value w = input(graph, "w", kSquare), made = input(graph, "mixed", kSquare);
  graph.add_output("seen", made * 1.0);
  graph.add_output("new", w * 0.75 + made * 0.125, "w");
  return graphs;
}

void fill(Tensor& tensor, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(random() >> 11) * 0x1p-52 - 1);
}

Tensor run_use(Program& program, const Tensor& x) {
  program.write(program.input(0, "x"), x.data());
  program.run(0);
  Tensor y(kSquare);
  program.read(program.output(0, "y"), y.data());
  program.synchronize();
  return y;
}

// Two programs that share what is derived, a third without it, and a fourth that writes.
void expect_never_stale(Backend& backend, uint64_t seed, int runs) {
  State state(backend);
  Program first(use_graphs(Way::kDerived), state), second(use_graphs(Way::kDerived), state);
  Program plain(use_graphs(Way::kPlain), state), trains(train_graphs(), state);
  std::mt19937_64 random(seed);
  Tensor x(kSquare), value(kSquare);
  fill(x, seed);
  for (const char* name : {"w", "v"}) {
    fill(value, random());
    state.write(name, value);
  }
  int changes = 0;
  Tensor last = run_use(first, x);
  for (int i = 0; i < runs; ++i) {
    switch (random() % 6) {
      case 0:
        trains.run(trains.entry("w"));
        break;
      case 1:
        trains.run(trains.entry("v"));
        break;
      case 2:
        trains.run(trains.entry("both"));
        break;
      case 3:
        fill(value, random());
        state.write(random() % 2 == 0 ? "w" : "v", value);
        break;
      default:
        Tensor y = run_use(random() % 2 == 0 ? first : second, x);
        ASSERT_TRUE(y.same_bits(run_use(plain, x))) << "seed " << seed << ", run " << i;
        changes += !y.same_bits(last);
        last = std::move(y);
    }
  }
  trains.synchronize();
  EXPECT_GT(changes, 2);
}

TEST(Derivation, AReaderNeverSeesAStaleOne) {
  for (int i = 0; i < cases(20); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    expect_never_stale(*make_cpu_backend(), seed, 40);
    expect_never_stale(*make_cpu_backend(StreamMode::kThread), seed, 40);
    for (size_t stream = 0; stream < 8; ++stream) {
      LazyBackend device({.schedule = LazyOptions::Schedule::kFavored, .favored = stream});
      expect_never_stale(device, seed, 40);
    }
    LazyBackend device({.schedule = LazyOptions::Schedule::kRandom, .seed = seed});
    expect_never_stale(device, seed, 40);
    if (HasFatalFailure()) return;
  }
}

// An entry that reads what is derived from what it updates sees it as it was before the run.
TEST(Derivation, AnEntryThatUpdatesASourceReadsTheOldOne) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  Program trains(train_graphs(), state);
  Tensor w(kSquare);
  fill(w, 1);
  state.write("w", w);
  const size_t both = trains.entry("both");
  for (int i = 0; i < 3; ++i) {
    const Tensor before = state.read("w");
    trains.run(both);
    Tensor seen(kSquare);
    trains.read(trains.output(both, "seen"), seen.data());
    Graph graph;
    graph.add_output("made",
                     mixed(turned(input(graph, "w", kSquare), {}), input(graph, "v", kSquare)));
    const NamedTensors wanted = evaluate(graph, *cpu, {{"w", before}, {"v", state.read("v")}});
    EXPECT_TRUE(seen.same_bits(wanted.at("made"))) << i;
    EXPECT_FALSE(state.read("w").same_bits(before));
  }
}

TEST(Derivation, IsMadeOnceUntilASourceIsWritten) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  Program first(use_graphs(Way::kDerived), state), second(use_graphs(Way::kDerived), state);
  const Tensor x(kSquare);
  for (Program* const program : {&first, &second, &first}) run_use(*program, x);
  EXPECT_EQ(state.version("turned"), 1u);
  EXPECT_EQ(state.version("mixed"), 1u);
  state.write("v", x);
  for (Program* const program : {&second, &first}) run_use(*program, x);
  EXPECT_EQ(state.version("turned"), 1u);
  EXPECT_EQ(state.version("mixed"), 2u);
  state.write("w", x);
  run_use(first, x);
  EXPECT_EQ(state.version("turned"), 2u);
  EXPECT_EQ(state.version("mixed"), 3u);
}

TEST(Derivation, TakesMemoryAsLongAsAProgramUsesIt) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const Program plain(use_graphs(Way::kPlain), state);
  const int64_t bytes = state.bytes();
  Tensor x(kSquare);
  fill(x, 3);
  {
    auto first = std::make_unique<Program>(use_graphs(Way::kDerived), state);
    const int64_t more = state.bytes();
    EXPECT_EQ(more, first->plan().state_bytes);
    Program second(use_graphs(Way::kDerived), state);
    EXPECT_EQ(state.bytes(), more);
    const Tensor y = run_use(*first, x);
    first = nullptr;
    EXPECT_EQ(state.bytes(), more);
    EXPECT_TRUE(run_use(second, x).same_bits(y));
    EXPECT_TRUE(state.has("turned"));
  }
  EXPECT_EQ(state.bytes(), bytes);
  EXPECT_FALSE(state.has("turned"));
  EXPECT_EQ(state.entries().size(), 2u);
}

TEST(Derivation, NothingElseWritesIt) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  ProgramGraphs writes = use_graphs(Way::kDerived);
  Graph& graph = writes.entries.emplace_back("wrong");
  graph.add_output("new", input(graph, "mixed", kSquare) + 1.0, "mixed");
  EXPECT_EQ(user_error([&] { const Program program(std::move(writes), state); }),
            "entry 'wrong' updates state 'mixed', which is derived from others");
  const Program program(use_graphs(Way::kDerived), state);
  EXPECT_EQ(user_error([&] { state.write("mixed", Tensor(kSquare)); }),
            "state 'mixed' is derived from others, and cannot be written");
  ProgramGraphs other = use_graphs(Way::kDerived);
  other.state[2] =
      derived("turned", "w", nullptr, [](Value w, Value v) { return turned(w, v) + 1.0; });
  EXPECT_EQ(user_error([&] { const Program second(std::move(other), state); }),
            "state 'turned' is there already, and derived in another way");
  ProgramGraphs plain = use_graphs(Way::kDerived);
  plain.state[2].derivation = nullptr;
  EXPECT_THAT(user_error([&] { const Program second(std::move(plain), state); }),
              testing::HasSubstr("expected f32[24,25] (packed, derived)"));
}

// Wrong data in a source: the error is that of each run until the source is right.
TEST(Derivation, OneThatFailsIsNotMade) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    const auto cpu = make_cpu_backend(mode);
    State state(*cpu);
    const TensorType ids{DType::kI64, {5}}, rows{DType::kF32, {5, kSize}};
    ProgramGraphs graphs;
    graphs.state = {{"w", kSquare}, {"ids", ids}};
    Graph picks("pick");
    const Value picked = embedding(input(picks, "w", kSquare), input(picks, "ids", ids));
    input(picks, "rows", rows);
    picks.add_output("made", picked, "rows");
    graphs.state.push_back(
        {"rows", rows, StateRole::kPacked, {}, std::make_shared<const Graph>(std::move(picks))});
    Graph& graph = graphs.entries.emplace_back("use");
    graph.add_output("y", input(graph, "rows", rows) * 3.0);
    Program program(std::move(graphs), state);
    Tensor w(kSquare), wrong(ids), y(rows);
    fill(w, 7);
    wrong.set(4, kSize);
    state.write("w", w);
    state.write("ids", wrong);
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT(user_error([&] { program.run(0); }),
                  testing::HasSubstr("is out of range; expected 0 to 23"));
    state.write("ids", Tensor(ids));
    program.run(0);
    program.read(program.output(0, "y"), y.data());
    program.synchronize();
    EXPECT_EQ(y.at(kSize), static_cast<double>(static_cast<float>(w.at(0)) * 3.0f));
  }
}

// The stream skips what is queued behind work that failed, a derivation too.
TEST(Derivation, OneBehindARunThatFailedIsMadeLater) {
  const auto cpu = make_cpu_backend(StreamMode::kThread);
  State state(*cpu);
  ProgramGraphs graphs = use_graphs(Way::kDerived);
  Graph& fails = graphs.entries.emplace_back("fails");
  const TensorType ids{DType::kI64, {1}};
  fails.add_output("row", embedding(input(fails, "w", kSquare), input(fails, "ids", ids)));
  Program program(std::move(graphs), state), plain(use_graphs(Way::kPlain), state);
  Tensor x(kSquare), w(kSquare), wrong(ids);
  fill(x, 1);
  fill(w, 2);
  wrong.set(0, -5);
  run_use(program, x);
  program.write(program.input(1, "ids"), wrong.data());
  program.run(1);
  state.write("w", w);
  EXPECT_THAT(user_error([&] { run_use(program, x); }),
              testing::HasSubstr("is out of range; expected 0 to 23"));
  EXPECT_TRUE(run_use(program, x).same_bits(run_use(plain, x)));
}

TEST(Derivation, WithoutMemoryItIsMadeLater) {
  for (int call = 0; call < 12; ++call) {
    ShortOfMemory device;
    State state(device);
    Program plain(use_graphs(Way::kPlain), state);
    Tensor x(kSquare), w(kSquare);
    fill(x, 1);
    fill(w, 2);
    state.write("w", w);
    device.left = call;
    try {
      Program program(use_graphs(Way::kDerived), state);
      try {
        run_use(program, x);
      } catch (const OutOfMemory&) {
      }
      device.left = -1;
      EXPECT_TRUE(run_use(program, x).same_bits(run_use(plain, x)));
    } catch (const OutOfMemory&) {
    }
    device.left = -1;
    Program program(use_graphs(Way::kDerived), state);
    EXPECT_TRUE(run_use(program, x).same_bits(run_use(plain, x)));
  }
}

// y is zero wherever what is derived is of the w that the run reads.
ProgramGraphs difference_graphs() {
  ProgramGraphs graphs;
  graphs.state = {{"w", kSquare},
                  derived("twice", "w", nullptr, [](Value w, Value) { return w * 2.0; })};
  Graph& graph = graphs.entries.emplace_back("use");
  graph.add_output("y", input(graph, "twice", kSquare) - input(graph, "w", kSquare) * 2.0);
  return graphs;
}

TEST(Derivation, EightThreadsAndAWriter) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    const auto cpu = make_cpu_backend(mode);
    State state(*cpu);
    state.declare(difference_graphs().state);
    std::atomic<bool> is_over = false;
    std::atomic<int> wrong = 0, reads = 0;
    std::vector<std::thread> readers;
    for (int i = 0; i < 8; ++i)
      readers.emplace_back([&] {
        Program program(difference_graphs(), state);
        Tensor y(kSquare);
        while (!is_over) {
          program.run(0);
          program.read(program.output(0, "y"), y.data());
          program.synchronize();
          for (int64_t k = 0; k < y.elements(); ++k) wrong += y.at(k) != 0.0;
          ++reads;
        }
      });
    Program trains(train_graphs(), state);
    Tensor w(kSquare);
    for (int i = 0; i < cases(100); ++i) {
      if (i % 3 == 0) {
        fill(w, static_cast<uint64_t>(i));
        state.write("w", w);
      }
      trains.run(trains.entry("w"));
    }
    trains.synchronize();
    while (reads < 16) std::this_thread::yield();
    is_over = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace ridge::test
