// Sessions: the bits of a program alone, whatever runs beside, was forgotten or failed before; and
// what they say of data that do not fit.
#include "ridge/infer/model_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/run/compare.h"
#include "tests/infer/hand_built.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/scale.h"
#include "tests/support/short_of_memory.h"

namespace ridge::test {
namespace {

// The first has packed weights.
constexpr int64_t kSizes[][2] = {{120, 3}, {1, 1}, {7, 12}, {2, 5}};

Binding binding_of(const int64_t (&size)[2]) { return {{"N", size[0]}, {"L", size[1]}}; }

const HandBuilt& source_of(const LoadedModel& model) {
  return static_cast<const HandBuilt&>(*model.source);
}

TEST(ModelSession, HasTheBitsOfAProgram) {
  std::unique_ptr<Backend> backends[] = {
      make_cpu_backend(), make_cpu_backend(StreamMode::kThread), std::make_unique<LazyBackend>()};
  for (std::unique_ptr<Backend>& backend : backends) {
    const LoadedModel model = hand_built(std::move(backend));
    ModelSession session(model);
    for (uint64_t seed = 0; seed < 3; ++seed)
      for (const auto& size : kSizes) {
        const NamedTensors data = hand_built_data(size[0], size[1], seed);
        EXPECT_EQ(bit_difference(session.run(data), run_alone(model, binding_of(size), data)), "");
      }
    EXPECT_EQ(source_of(model).built, 4 * 4);  // once in the session
  }
}

TEST(ModelSession, SaysWhatItTakesAndGives) {
  const ModelSession session(hand_built(make_cpu_backend()));
  std::vector<std::string> texts;
  for (const auto* specs : {&session.inputs(), &session.outputs()})
    for (const DataSpec& spec : *specs) texts.push_back(to_string(spec));
  EXPECT_THAT(texts,
              testing::ElementsAre("image u8[N,6,5]",
                                   "words i32[N,L<=12]",
                                   "keep bool[N]",
                                   "scale f64[]",
                                   "score f32[N,4]",
                                   "best i64[N]",
                                   "dropped bool[N]"));
}

TEST(ModelSession, SaysOnceWhatDoesNotFit) {
  ModelSession session(hand_built(make_cpu_backend()));
  const auto error_of = [&](auto change) {
    NamedTensors data = hand_built_data(3, 5, 0);
    change(data);
    return user_error([&] { session.run(data); });
  };
  const auto with = [&](const char* name, TensorType type) {
    return error_of([&](NamedTensors& data) { data[name] = Tensor(type); });
  };
  EXPECT_EQ(with("imgae", {DType::kU8, {1}}),
            "the model has no input 'imgae', only image u8[N,6,5], words i32[N,L<=12], keep "
            "bool[N] and scale f64[]; did you mean 'image'?");
  EXPECT_EQ(error_of([](NamedTensors& data) { data.erase("keep"); }),
            "input 'keep' is missing; give image u8[N,6,5], words i32[N,L<=12], keep bool[N] and "
            "scale f64[]");
  EXPECT_THAT(error_of([](NamedTensors& data) { data["scale"] = Tensor(); }),
              has("input 'scale' is missing"));
  EXPECT_EQ(with("image", {DType::kF32, {3, 6, 5}}),
            "input 'image' has another dtype; got f32[3,6,5], expected u8[N,6,5]");
  EXPECT_EQ(with("image", {DType::kU8, {6, 5}}),
            "input 'image' has another number of dimensions; got u8[6,5], expected u8[N,6,5]");
  EXPECT_EQ(with("image", {DType::kU8, {3, 6, 4}}),
            "input 'image' has another size in dimension 2; got u8[3,6,4], expected u8[N,6,5]");
  EXPECT_EQ(with("words", {DType::kI32, {3, 13}}),
            "input 'words' is too large in 'L'; got i32[3,13], expected i32[N,L<=12]");
  EXPECT_EQ(
      with("keep", {DType::kBool, {2}}),
      "input 'keep' has another 'N' than 3, which came before; got bool[2], expected bool[N]");
  EXPECT_EQ(user_error([&] { session.bind({{"N", 3}}); }),
            "the model needs a size for dimension 'L'");
  LoadedModel empty = hand_built(make_cpu_backend());
  empty.state = make_state(make_cpu_backend());
  EXPECT_THAT(user_error([&] { const ModelSession none(empty); }),
              has("the state has no buffer 'image.w'"));
}

TEST(ModelSession, TwoShareTheStateAndNoArena) {
  auto backend = std::make_unique<ShortOfMemory>();
  const ShortOfMemory& device = *backend;
  const LoadedModel model = hand_built(std::move(backend));
  const int64_t weights = model.state->bytes();
  EXPECT_EQ(device.bytes(), weights);
  {
    ModelSession first(model), second(model);
    const NamedTensors data = hand_built_data(120, 3, 4);
    int64_t planned = 0, state = 0;
    for (ModelSession* const session : {&first, &second}) {
      const std::shared_ptr<const Plan> plan = session->bind(binding_of(kSizes[0]));
      EXPECT_GT(plan->arena_bytes, 0);
      planned += plan->arena_bytes;
      session->run(data);
      session->run(data);
      EXPECT_EQ(device.bytes(), model.state->bytes() + planned);
      if (state == 0) state = model.state->bytes();
    }
    EXPECT_GT(state, weights);  // what is packed they share
    EXPECT_EQ(model.state->bytes(), state);
  }
  EXPECT_EQ(device.bytes(), weights);
}

TEST(ModelSession, ForgetsWhatWasNotUsedForLongest) {
  auto backend = std::make_unique<ShortOfMemory>();
  const ShortOfMemory& device = *backend;
  const LoadedModel model = hand_built(std::move(backend));
  const int64_t weights = model.state->bytes();
  ModelSession session(model, {.bindings = 2});
  const auto run = [&](int64_t n) { session.run(hand_built_data(n, 3, 0)); };
  const auto& built = source_of(model).built;
  run(120);
  EXPECT_GT(model.state->bytes(), weights);  // packed weights
  run(1);
  run(120);
  EXPECT_EQ(built, 2);
  run(2);
  run(120);
  EXPECT_EQ(built, 3);
  run(1);
  EXPECT_EQ(built, 4);
  EXPECT_GT(model.state->bytes(), weights);
  run(2);
  EXPECT_EQ(model.state->bytes(), weights);
  int64_t most = 0;
  for (int64_t n = 14; n < 14 + 30; ++n) {
    run(n);
    most = std::max(most, session.bind({{"N", n}, {"L", 3}})->arena_bytes);
    EXPECT_LE(device.bytes(), model.state->bytes() + 2 * most);
  }
}

TEST(ModelSession, SeesWeightsThatWereWritten) {
  const LoadedModel model = hand_built(make_cpu_backend());
  ModelSession session(model);
  const NamedTensors data = hand_built_data(120, 3, 1);
  const NamedTensors before = session.run(data);
  Tensor w = model.state->read("image.w");
  for (int64_t i = 0; i < w.elements(); ++i) w.set(i, -w.at(i));
  model.state->write("image.w", w);
  const NamedTensors after = session.run(data);
  EXPECT_NE(bit_difference(before, after), "");
  EXPECT_EQ(bit_difference(after, run_alone(model, binding_of(kSizes[0]), data)), "");
}

// ---- failures ----

TEST(ModelSession, GoesOnWhereMemoryRanOut) {
  bool is_done = false;
  for (int call = 0; !is_done; ++call) {
    auto backend = std::make_unique<ShortOfMemory>();
    ShortOfMemory& device = *backend;
    const LoadedModel model = hand_built(std::move(backend));
    const int64_t weights = device.bytes();
    {
      ModelSession session(model);
      const NamedTensors data = hand_built_data(120, 3, 0), small = hand_built_data(1, 1, 0);
      const NamedTensors wanted = session.run(small);
      const int64_t bytes = device.bytes();
      device.left = call;
      try {
        session.run(data);
        is_done = true;
        EXPECT_GE(call, 2);  // the arena, the packed weights
      } catch (const OutOfMemory&) {
        EXPECT_EQ(device.bytes(), bytes) << call;
      }
      device.left = -1;
      EXPECT_EQ(bit_difference(session.run(small), wanted), "");
      EXPECT_EQ(bit_difference(session.run(data), run_alone(model, binding_of(kSizes[0]), data)),
                "");
    }
    EXPECT_EQ(device.bytes(), weights);
  }
}

TEST(ModelSession, GoesOnWhereABindingHasNoGraph) {
  const LoadedModel model = hand_built(make_cpu_backend());
  ModelSession session(model, {.bindings = 1});
  session.run(hand_built_data(2, 3, 0));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(user_error([&] { session.run(hand_built_data(HandBuilt::kBadSize, 3, 0)); }),
              "nobody knows a graph for 13 samples");
  session.run(hand_built_data(2, 3, 0));
  EXPECT_EQ(source_of(model).built, 1 + 3);
}

TEST(ModelSession, GoesOnAfterWrongData) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    const LoadedModel model = hand_built(make_cpu_backend(mode));
    ModelSession session(model);
    NamedTensors data = hand_built_data(7, 12, 0);
    const NamedTensors wanted = session.run(data);
    const double word = data["words"].at(5);
    data["words"].set(5, HandBuilt::kWords);
    EXPECT_THAT(user_error([&] { session.run(data); }), has("20", "expected 0 to 19"));
    data["words"].set(5, word);
    EXPECT_EQ(bit_difference(session.run(data), wanted), "");
    EXPECT_EQ(source_of(model).built, 1);
  }
}

// ---- threads ----

constexpr int kThreads = 8;

// Calls `body` with the number of its thread, on all at once.
template <typename Body>
void on_threads(Body body) {
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(SessionThreads, CompileABindingOnce) {
  for (const size_t programs : {size_t{1}, size_t{3}, size_t{kThreads}}) {
    const LoadedModel model = hand_built(make_cpu_backend());
    ModelSession session(model, {.bindings = 2, .programs = programs});
    const NamedTensors data = hand_built_data(120, 3, 0);
    NamedTensors results[kThreads];
    on_threads([&](int i) { results[i] = session.run(data); });
    EXPECT_EQ(source_of(model).built, 1);
    const NamedTensors wanted = run_alone(model, binding_of(kSizes[0]), data);
    for (const NamedTensors& result : results) EXPECT_EQ(bit_difference(result, wanted), "");
  }
}

// Two sessions, in which bindings are forgotten and made all the time; with `fails_every` memory
// runs out now and then.
void expect_right_results(std::unique_ptr<Backend> backend, int runs) {
  const LoadedModel model = hand_built(std::move(backend));
  NamedTensors data[std::size(kSizes)], wanted[std::size(kSizes)];
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    data[i] = hand_built_data(kSizes[i][0], kSizes[i][1], i);
    wanted[i] = run_alone(model, binding_of(kSizes[i]), data[i]);
  }
  auto* const device = dynamic_cast<ShortOfMemory*>(&model.state->backend());
  if (device != nullptr) device->fails_every = 3;
  ModelSession first(model, {.bindings = 2, .programs = 2}), second(model, {.bindings = 3});
  std::atomic<int> right = 0, wrong = 0, failed = 0;
  on_threads([&](int thread) {
    std::mt19937_64 random(static_cast<uint64_t>(thread));
    for (int i = 0; i < runs; ++i) {
      const size_t which = random() % std::size(kSizes);
      try {
        const NamedTensors results = (random() % 2 == 0 ? first : second).run(data[which]);
        ++(bit_difference(results, wanted[which]).empty() ? right : wrong);
      } catch (const OutOfMemory&) {
        ++failed;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  EXPECT_EQ(failed > 0, device != nullptr);
}

TEST(SessionThreads, HaveTheBitsOfOne) {
  expect_right_results(make_cpu_backend(), cases(10));
  expect_right_results(make_cpu_backend(StreamMode::kThread), cases(10));
  expect_right_results(std::make_unique<ShortOfMemory>(), cases(10));
}

// "d" is zero wherever a and b are of one write.
class Difference final : public ModelSource {
 public:
  std::vector<DataSpec> inputs() const override { return {{"scale", DType::kF32, {}}}; }
  std::vector<DataSpec> outputs() const override { return {{"d", DType::kF32, {kLong}}}; }
  std::vector<StateEntry> state() const override {
    return {{"a", {DType::kF32, {kLong}}}, {"b", {DType::kF32, {kLong}}}};
  }
  // Adds 1 to both.
  ProgramGraphs writer() const {
    ProgramGraphs graphs{.state = state(), .entries = {}};
    Graph& graph = graphs.entries.emplace_back("write");
    const Value a = input(graph, "a", state()[0].type), b = input(graph, "b", state()[1].type);
    graph.add_output("a.new", a + 1.0, "a");
    graph.add_output("b.new", exp(log(exp(b * 0.0))) + b, "b");
    return graphs;
  }

 private:
  static constexpr int64_t kLong = 2000;
  ProgramGraphs build(const Binding&) const override {
    Graph graph("difference");
    const Value a = input(graph, "a", state()[0].type), b = input(graph, "b", state()[1].type);
    graph.add_output("d", (a - b) * input(graph, "scale", {DType::kF32, {}}));
    return only_entry(std::move(graph));
  }
};

TEST(SessionThreads, ReadNothingThatIsHalfWritten) {
  for (const StreamMode mode : {StreamMode::kInline, StreamMode::kThread}) {
    const auto source = std::make_shared<const Difference>();
    const LoadedModel model{
        .source = source, .state = make_state(make_cpu_backend(mode)), .weights = {}};
    model.state->declare(source->state());
    ModelSession session(model, {.programs = kThreads});
    NamedTensors data;
    data["scale"] = Tensor({DType::kF32, {}});
    data["scale"].set(0, 1);
    std::atomic<bool> is_over = false;
    std::atomic<int> torn = 0, reads = 0;
    on_threads([&](int thread) {
      if (thread == 0) {
        Program program(source->writer(), *model.state);
        for (int i = 0; i < cases(100); ++i) program.run(0);
        program.synchronize();
        while (reads < kThreads) std::this_thread::yield();
        is_over = true;
      }
      while (!is_over) {
        const NamedTensors results = session.run(data);
        const Tensor& d = results.at("d");
        ++reads;
        for (int64_t k = 0; k < d.elements(); ++k) torn += d.at(k) != 0.0;
      }
    });
    EXPECT_EQ(torn, 0);
    EXPECT_EQ(model.state->version("a"), static_cast<uint64_t>(cases(100)));
  }
}

}  // namespace
}  // namespace ridge::test
