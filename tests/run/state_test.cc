// State that several programs share: what is declared, in which order runs come, what a failure
// leaves.
#include "ridge/run/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "ridge/run/program.h"
#include "tests/support/errors.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/random_graph.h"
#include "tests/support/scale.h"
#include "tests/support/short_of_memory.h"
#include "tests/support/small_training.h"

namespace ridge::test {
namespace {

const TensorType kFour{DType::kF32, {4}};

TEST(State, DeclaringAgainComparesTypeAndRole) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const StateEntry w{"w", kFour, StateRole::kParameter};
  state.declare(std::vector{w, {"m", kFour, StateRole::kOptimizer}});
  const void* const address = state.data("w");
  const int64_t bytes = state.bytes();
  state.declare(std::vector{w});
  EXPECT_EQ(state.bytes(), bytes);
  const auto declares = [&](StateEntry entry) {
    return [&state, entry] { state.declare(std::vector{StateEntry{"fresh", kFour}, entry}); };
  };
  EXPECT_EQ(user_error(declares({"w", {DType::kF32, {5}}})),
            "state 'w' is there as something else; got f32[5] (parameter), expected f32[4] "
            "(parameter); give the buffer another name, or the program a state of its own");
  EXPECT_THAT(user_error(declares({"w", {DType::kF64, {4}}})), testing::HasSubstr("got f64[4]"));
  EXPECT_THAT(user_error(declares({"w", kFour, StateRole::kStatistic})),
              testing::HasSubstr("got f32[4] (statistic), expected f32[4] (parameter)"));
  EXPECT_FALSE(state.has("fresh"));
  state.declare(std::vector{StateEntry{"fresh", kFour}, StateEntry{"fresh", kFour}});
  EXPECT_EQ(state.data("w"), address);
  EXPECT_EQ(state.entries().size(), 3u);
  EXPECT_THAT(user_error([&] { state.read("wm"); }), testing::HasSubstr("did you mean"));
  EXPECT_THAT(user_error([&] { state.write("w", Tensor({DType::kF32, {3}})); }),
              testing::HasSubstr("got f32[3], expected f32[4]"));
}

TEST(State, FirstValuesAreForWhatNobodyWrote) {
  const auto cpu = make_cpu_backend();
  State state(*cpu), other(*cpu);
  const std::vector<StateEntry> entries{
      {"a", {DType::kF32, {300000}}, StateRole::kParameter, Initializer::normal(0.5)},
      {"b", kFour, StateRole::kParameter, Initializer::ones()},
      {"c", kFour}};
  state.declare(entries);
  other.declare(std::span(entries).first(1));
  Tensor mine(kFour);
  mine.set(2, 7);
  state.write("b", mine);
  state.initialize(5);
  other.initialize(5);
  EXPECT_TRUE(state.read("b").same_bits(mine));
  EXPECT_TRUE(state.read("a").same_bits(other.read("a")));
  EXPECT_NE(state.read("a").at(299999), 0.0);
  EXPECT_EQ(state.version("c"), 0u);
  const uint64_t version = state.version("a");
  state.initialize(6);
  EXPECT_EQ(state.version("a"), version);
}

TEST(State, WithoutMemoryItStaysAsItWas) {
  bool is_done = false;
  for (int call = 0; !is_done; ++call) {
    ShortOfMemory device;
    {
      State state(device);
      state.declare(std::vector{StateEntry{"p", kRow}});
      Tensor first(kRow);
      fill(first, 3);
      state.write("p", first);
      device.left = call;
      try {
        const Program program(small_training(), state);
        is_done = true;
        EXPECT_GE(call, 2);  // the rest of the state, the arena
      } catch (const OutOfMemory&) {
        EXPECT_EQ(state.entries().size(), 1u);
        EXPECT_EQ(state.bytes(), 64);
      }
      device.left = -1;
      EXPECT_TRUE(state.read("p").same_bits(first));
      Program program(small_training(), state);
      program.run(program.entry("tick"));
      program.synchronize();
      EXPECT_EQ(state.read("ticks").at(0), 1.0);
    }
    EXPECT_EQ(device.bytes(), 0);
  }
}

// Tensors one after the other, as a file has them: aligned to their elements and no more.
class Packed {
 public:
  explicit Packed(size_t bytes) : memory_(bytes + 64) {}
  const void* add(const Tensor& tensor) {
    const size_t element = size_of(tensor.type().dtype);
    at_ = (at_ + element - 1) / element * element;
    if ((reinterpret_cast<uintptr_t>(memory_.data()) + at_) % 64 == 0) at_ += element;
    std::byte* const to = memory_.data() + at_;
    std::memcpy(to, tensor.data(), tensor.bytes());
    at_ += tensor.bytes();
    return to;
  }

 private:
  std::vector<std::byte> memory_;
  size_t at_ = 0;
};

TEST(State, OperandsNeedNoMoreThanTheAlignmentOfElements) {
  const auto cpu = make_cpu_backend();
  for (int seed = 0; seed < cases(100); ++seed) {
    constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
    CaseBuilder b = random_graph(static_cast<uint64_t>(seed),
                                 {.dtype = kDTypes[seed % 4], .gradients = seed % 8 < 4});
    ProgramGraphs graphs;
    graphs.entries.push_back(b.graph().clone());
    for (const Node* node : b.graph().inputs())
      graphs.state.push_back({node->op_as<Input>().input_name, node->outputs[0]});
    State own(*cpu), lent(*cpu);
    size_t bytes = 0;
    for (const auto& [name, tensor] : b.tensors()) bytes += tensor.bytes() + 64;
    const auto memory = std::make_shared<Packed>(bytes);
    own.declare(graphs.state);
    for (const StateEntry& entry : graphs.state) {
      own.write(entry.name, b.tensors().at(entry.name));
      const void* const data = memory->add(b.tensors().at(entry.name));
      ASSERT_TRUE(lent.can_adopt(entry.type, data));
      lent.adopt(entry, data, memory);
    }
    NamedTensors results[2];
    for (State* const state : {&own, &lent}) {
      ProgramGraphs copy{.state = graphs.state, .entries = {}};
      copy.entries.push_back(graphs.entries[0].clone());
      Program program(std::move(copy), *state);
      program.run(0);
      for (const PlanSlot& slot : program.plan().entries[0].outputs) {
        Tensor tensor(slot.type);
        program.read(program.output(0, slot.name), tensor.data());
        results[state == &lent].emplace(slot.name, std::move(tensor));
      }
    }
    ASSERT_EQ(bit_difference(results[0], results[1]), "") << "seed " << seed;
    EXPECT_EQ(lent.bytes(), 0);
  }
}

TEST(State, LentMemoryIsNeverWritten) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const auto tensor = std::make_shared<const Tensor>(kRow);
  const StateEntry p{"p", kRow, StateRole::kParameter};
  state.adopt(p, tensor->data(), tensor);
  EXPECT_EQ(tensor.use_count(), 2);
  constexpr std::string_view kRefusal =
      "state 'p' lies in a file that is mapped, and cannot be updated; copy the weights into the "
      "state";
  EXPECT_EQ(user_error([&] { state.write("p", *tensor); }), kRefusal);
  EXPECT_EQ(user_error([&] { state.write_part("p", 0, tensor->data(), 4); }), kRefusal);
  EXPECT_EQ(user_error([&] { const Program program(small_training(), state); }), kRefusal);
  EXPECT_EQ(state.entries().size(), 1u);  // nor does a program that is refused leave anything
  EXPECT_THAT(user_error([&] { state.adopt(p, tensor->data(), tensor); }),
              testing::HasSubstr("state 'p' is there already"));
  state.initialize(3);
  EXPECT_TRUE(state.read("p").same_bits(*tensor));
  EXPECT_FALSE(state.can_adopt(kRow, static_cast<const std::byte*>(tensor->data()) + 2));
  LazyBackend device;
  EXPECT_FALSE(State(device).can_adopt(kRow, tensor->data()));
}

// On the host they lie where they came from, on a device in memory of their own.
TEST(State, ConstantsAreThereWhileTheyAreHeld) {
  const auto entry_of = [](const std::shared_ptr<const Tensor>& tensor) {
    const std::span<const std::byte> bytes{static_cast<const std::byte*>(tensor->data()),
                                           tensor->bytes()};
    return StateEntry{.name = "c",
                      .type = kRow,
                      .constant = std::make_shared<const StateConstant>(bytes, tensor)};
  };
  Tensor row(kRow);
  fill(row, 5);
  const auto tensor = std::make_shared<const Tensor>(row);
  const auto same = std::make_shared<const Tensor>(row);
  fill(row, 6);
  const auto other = std::make_shared<const Tensor>(row);
  const auto cpu = make_cpu_backend();
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&device)}) {
    State state(*backend);
    auto held = state.declare(std::vector{entry_of(tensor)});
    EXPECT_EQ(held[0]->data, nullptr);
    EXPECT_EQ(state.bytes(), 0);
    {
      const ConstantUse use(state, held[0]);
      EXPECT_EQ(held[0]->data == tensor->data(), backend->is_host());
      EXPECT_EQ(state.bytes() == 0, backend->is_host());
      const ConstantUse second(state, held[0]);
      EXPECT_TRUE(state.read("c").same_bits(*tensor));
      EXPECT_NE(held[0]->data, nullptr);
    }
    EXPECT_EQ(held[0]->data, nullptr);
    EXPECT_EQ(state.bytes(), 0);
    EXPECT_EQ(state.declare(std::vector{entry_of(same)}), held);
    EXPECT_TRUE(state.read("c").same_bits(*tensor));
    EXPECT_TRUE(state.entries().empty());
    EXPECT_EQ(user_error([&] { state.write("c", *other); }),
              "state 'c' is a constant, and cannot be written");
    EXPECT_EQ(
        user_error([&] { state.declare(std::vector{entry_of(other)}); }),
        "state 'c' is there already, with other elements; give each model a state of its own");
    EXPECT_THAT(user_error([&] { state.declare(std::vector{StateEntry{"c", kRow}}); }),
                testing::HasSubstr("expected f32"));
    held.clear();
    EXPECT_FALSE(state.has("c"));
    EXPECT_EQ(state.bytes(), 0);
    state.declare(std::vector{entry_of(other)});
  }
}

// A constant whose elements lie in another order of axes is never the memory that it came from.
TEST(State, ConstantsAreMovedToTheirOrder) {
  const auto lying = std::make_shared<const Tensor>([] {
    Tensor tensor({DType::kF32, {2, 3}});
    for (int64_t i = 0; i < 6; ++i) tensor.set(i, static_cast<double>(i));
    return tensor;
  }());
  const std::span<const std::byte> bytes{static_cast<const std::byte*>(lying->data()),
                                         lying->bytes()};
  const StateEntry moved{.name = "c",
                         .type = {DType::kF32, {3, 2}},
                         .constant = std::make_shared<const StateConstant>(
                             bytes, lying, std::vector<int64_t>{1, 0}, Shape{2, 3})};
  StateEntry plain = moved;
  plain.constant = std::make_shared<const StateConstant>(bytes, lying);
  const auto cpu = make_cpu_backend();
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&device)}) {
    State state(*backend);
    const auto held = state.declare(std::vector{moved});
    EXPECT_EQ(state.declare(std::vector{moved}), held);
    EXPECT_THAT(user_error([&] { state.declare(std::vector{plain}); }),
                testing::HasSubstr("with other elements"));
    const Tensor read = state.read("c");
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(read.at(i), static_cast<double>(i % 2 * 3 + i / 2));
    const ConstantUse use(state, held[0]);
    EXPECT_NE(held[0]->data, lying->data());
  }
}

TEST(State, ConstantsAreScaledByTheirLastAxis) {
  const auto lying = std::make_shared<const Tensor>([] {
    Tensor tensor({DType::kF32, {2, 3}});
    for (int64_t i = 0; i < 6; ++i) tensor.set(i, static_cast<double>(i));
    return tensor;
  }());
  const std::span<const std::byte> bytes{static_cast<const std::byte*>(lying->data()),
                                         lying->bytes()};
  const auto entry_of = [&](std::vector<double> scale) {
    return StateEntry{
        .name = "c",
        .type = {DType::kF32, {3, 2}},
        .constant = std::make_shared<const StateConstant>(StateConstant{
            bytes, lying, std::vector<int64_t>{1, 0}, Shape{2, 3}, std::move(scale)})};
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto cpu = make_cpu_backend();
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&device)}) {
    State state(*backend);
    const auto held = state.declare(std::vector{entry_of({0.1, nan})});
    EXPECT_EQ(state.declare(std::vector{entry_of({0.1, nan})}), held);
    EXPECT_THAT(user_error([&] { state.declare(std::vector{entry_of({0.1, 2.0})}); }),
                testing::HasSubstr("with other elements"));
    const Tensor read = state.read("c");
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(read.at(2 * i),
                static_cast<double>(static_cast<float>(0.1 * static_cast<double>(i))));
      EXPECT_TRUE(std::isnan(read.at(2 * i + 1)));
    }
  }
}

// The block of the constant before is too small for the next one, and there is no other: then it
// has no address, and gets one when there is memory.
TEST(State, ConstantsWithoutMemoryAreThereLater) {
  const auto entry_of = [](const char* name, int64_t n) {
    auto lying = std::make_shared<Tensor>(TensorType{DType::kF32, {n, 3}});
    for (int64_t i = 0; i < 3 * n; ++i) lying->set(i, static_cast<double>(i));
    const std::span<const std::byte> bytes{static_cast<const std::byte*>(lying->data()),
                                           lying->bytes()};
    return StateEntry{.name = name,
                      .type = {DType::kF32, {3, n}},
                      .constant = std::make_shared<const StateConstant>(
                          bytes, lying, std::vector<int64_t>{1, 0}, Shape{n, 3})};
  };
  ShortOfMemory device;
  State state(device);
  const auto held = state.declare(std::vector{entry_of("small", 8), entry_of("large", 800)});
  {
    const ConstantUse use(state, held[0]);
  }
  device.most = 1000;
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(user_error([&] { const ConstantUse use(state, held[1]); }),
                testing::HasSubstr("no memory"));
  EXPECT_EQ(held[1]->data, nullptr);
  {
    const ConstantUse use(state, held[0]);
    EXPECT_NE(held[0]->data, nullptr);
  }
  device.most = 100000;
  const Tensor read = state.read("large");
  EXPECT_EQ(read.at(1), 3.0);
  EXPECT_EQ(read.at(801), 4.0);
  EXPECT_EQ(device.bytes(), 0);
}

// The entries of a small training in one program, or those that write in one and "eval" in another.
ProgramGraphs entries_of(bool has_training, bool has_evaluation) {
  ProgramGraphs graphs = small_training();
  std::erase_if(graphs.entries, [&](const Graph& graph) {
    return graph.name() == "eval" ? !has_evaluation : !has_training;
  });
  return graphs;
}

// Runs of two programs in an order by `seed`; the losses, and the state at the end.
Seen interleave(Program& trains, Program& evaluates, State& state, uint64_t seed, int runs) {
  std::mt19937_64 random(seed);
  Tensor x(kRows), row(kRow);
  Seen seen;
  seen.results.reserve(3 * static_cast<size_t>(runs) + 3);
  for (const char* name : {"p", "sum", "ticks"}) {
    fill(row, name[0]);
    state.write(name, row);
  }
  std::vector<Tensor> batches;
  batches.reserve(static_cast<size_t>(runs));
  const auto put = [&](Program& program, const char* entry, const char* name) {
    fill(row, static_cast<int64_t>(random() % 100));
    program.write_scalars(program.input(program.entry(entry), name), row.data());
  };
  for (int i = 0; i < runs; ++i) {
    const uint64_t kind = random() % 5;
    if (kind == 0) {
      Tensor& batch = batches.emplace_back(kRows);
      fill(batch, i);
      trains.write(trains.input(trains.entry("micro"), "x"), batch.data());
      put(trains, "micro", "part");
      trains.run(trains.entry("micro"));
    } else if (kind == 1) {
      put(trains, "apply", "hyper");
      trains.run(trains.entry("apply"));
    } else if (kind == 2) {
      trains.run(trains.entry("tick"));
    } else {
      put(evaluates, "eval", "x");
      evaluates.run(evaluates.entry("eval"));
      evaluates.read(evaluates.output(evaluates.entry("eval"), "loss"),
                     seen.results.emplace_back(kRow).data());
      if (random() % 4 == 0) evaluates.synchronize();
    }
    if (random() % 4 == 0) {  // beside what is queued from here on
      Program& reads = random() % 2 == 0 ? trains : evaluates;
      const char* const name = random() % 2 == 0 ? "p" : "ticks";
      reads.read(*find_slot(reads.plan().state, name), seen.results.emplace_back(kRow).data());
    }
    if (random() % 8 == 0) seen.results.push_back(state.read("p"));
    if (random() % 8 == 0) {
      fill(row, i);
      state.write("p", row);
    }
  }
  trains.synchronize();
  evaluates.synchronize();
  for (const char* name : {"p", "sum", "ticks"}) seen.results.push_back(state.read(name));
  return seen;
}

Seen run_shared(Backend& backend, uint64_t seed, int runs = 40) {
  State state(backend);
  Program trains(entries_of(true, false), state), evaluates(entries_of(false, true), state);
  return interleave(trains, evaluates, state, seed, runs);
}

Seen run_alone(uint64_t seed, int runs = 40) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  Program all(entries_of(true, true), state);
  return interleave(all, all, state, seed, runs);
}

TEST(State, TwoProgramsHaveTheBitsOfOne) {
  for (int i = 0; i < cases(20); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const Seen wanted = run_alone(seed);
    const auto cpu = make_cpu_backend(), threaded = make_cpu_backend(StreamMode::kThread);
    EXPECT_TRUE(run_shared(*cpu, seed) == wanted) << seed;
    EXPECT_TRUE(run_shared(*threaded, seed) == wanted) << seed;
    for (size_t stream = 0; stream < 7; ++stream) {
      LazyBackend device({.schedule = LazyOptions::Schedule::kFavored, .favored = stream});
      EXPECT_TRUE(run_shared(device, seed) == wanted) << seed << " favored " << stream;
    }
    LazyBackend device({.schedule = LazyOptions::Schedule::kRandom, .seed = seed});
    EXPECT_TRUE(run_shared(device, seed) == wanted) << seed;
  }
}

// Events 0 to 5 and 6 to 11 are those of each program alone.
TEST(State, EachWaitBetweenProgramsIsNeeded) {
  LazyBackend counts;
  run_shared(counts, 1);
  const size_t events = counts.events();
  ASSERT_GE(events, 15u);
  for (size_t event = 12; event < events; ++event) {
    bool shows = false;
    for (uint64_t seed = 0; seed < 30 && !shows; ++seed) {
      const Seen wanted = run_alone(seed);
      for (size_t stream = 0; stream < 8 && !shows; ++stream) {
        LazyBackend device({.schedule = LazyOptions::Schedule::kFavored,
                            .favored = stream,
                            .ignored_event = event});
        shows = !(run_shared(device, seed) == wanted);
      }
    }
    EXPECT_TRUE(shows) << "event " << event;
  }
}

// "both" adds to a and to b; "difference" is what is between them, never anything else than zeros.
ProgramGraphs pair_graphs(bool writes) {
  constexpr int64_t kLong = 2000;
  const TensorType type{DType::kF32, {kLong}};
  ProgramGraphs graphs;
  for (const char* name : {"a", "b"}) graphs.state.push_back({name, type, StateRole::kParameter});
  Graph& graph = graphs.entries.emplace_back(writes ? "both" : "difference");
  const Value a = input(graph, "a", type), b = input(graph, "b", type);
  if (writes) {
    graph.add_output("a.new", a + 1.0, "a");
    graph.add_output("b.new", exp(log(exp(b * 0.0))) + b, "b");
  } else {
    graph.add_output("d", a - b);
  }
  return graphs;
}

void expect_no_torn_reads(Backend& backend) {
  constexpr int kReaders = 8;
  State state(backend);
  state.declare(pair_graphs(true).state);
  std::atomic<bool> is_over = false;
  std::atomic<int> torn = 0, reads = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i)
    readers.emplace_back([&] {
      Program program(pair_graphs(false), state);
      Tensor d(program.plan().entries[0].outputs[0].type);
      while (!is_over) {
        program.run(0);
        program.read(program.output(0, "d"), d.data());
        program.synchronize();
        ++reads;
        for (int64_t k = 0; k < d.elements(); ++k) torn += d.at(k) != 0.0;
      }
    });
  {
    Program program(pair_graphs(true), state);
    for (int i = 0; i < cases(100); ++i) {
      program.run(0);
      if (i % 16 == 0) state.read("a");
    }
    program.synchronize();
    while (reads < kReaders) std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(state.read("a").at(7), static_cast<double>(cases(100)));
  EXPECT_EQ(state.version("a"), static_cast<uint64_t>(cases(100)));
}

TEST(State, AWriterAmongReadersIsAlone) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    expect_no_torn_reads(*make_cpu_backend(mode));
    expect_no_torn_reads(*make_ref_backend(mode));
  }
}

// Each loop ends only where the one that waits is let in first.
TEST(State, NeitherReadersNorWritersStarve) {
  StateLock lock;
  std::atomic<bool> was_written = false;
  lock.lock_shared();
  std::thread writer([&] {
    lock.lock();
    was_written = true;
    lock.unlock();
  });
  while (lock.try_lock_shared()) lock.unlock_shared();
  EXPECT_FALSE(was_written);
  lock.unlock_shared();
  writer.join();
  EXPECT_TRUE(was_written);

  std::atomic<bool> was_read = false;
  lock.lock();
  std::thread reader([&] {
    lock.lock_shared();
    was_read = true;
    lock.unlock_shared();
  });
  // A writer that never pauses but to take the lock again.
  while (!was_read) {
    lock.unlock();
    lock.lock();
  }
  lock.unlock();
  reader.join();
}

}  // namespace
}  // namespace ridge::test
