// Tests which kernels the tuner picks, refuses and keeps; kernels have known times on a clock of
// the test.
#include "ridge/run/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

int64_t clock_ns = 0;
int64_t fake_now() { return clock_ns; }

// A candidate that takes `ns` and adds `error` to each f32 result.
struct FakeChoice {
  std::string name;
  int bits = 0;
  int64_t ns = 0;
  float error = 0;
  bool refuses = false;  ///< To be launched.
  bool other_bits = false;
};

// The times of the launches that are being recorded, if any are; and how often kernels have read a
// first operand, by place.
std::vector<int64_t>* recorded_ns = nullptr;
std::map<const void*, int> reads;

class FakeKernel final : public NodeKernel {
 public:
  FakeKernel(std::unique_ptr<NodeKernel> inner,
             FakeChoice choice,
             int64_t elements,
             int64_t least_ns,
             int& launches)
      : inner_(std::move(inner)),
        choice_(std::move(choice)),
        elements_(elements),
        least_ns_(least_ns),
        launches_(launches) {}
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  void launch(Stream& stream, const KernelArgs& args) const override {
    if (choice_.refuses) throw UserError("not this\ntime");
    ++reads[args.inputs[0]];
    if (recorded_ns != nullptr) return recorded_ns->push_back(choice_.ns);
    inner_->launch(stream, args);
    clock_ns += std::max(choice_.ns, least_ns_);
    ++launches_;
    if (choice_.error == 0) return;
    auto* y = static_cast<float*>(args.outputs[0]);
    for (int64_t i = 0; i < elements_; ++i) y[i] += choice_.error;
  }

 private:
  std::unique_ptr<NodeKernel> inner_;
  FakeChoice choice_;
  int64_t elements_, least_ns_;
  int& launches_;
};

class FakeRecording final : public Recording {
 public:
  explicit FakeRecording(std::vector<int64_t> ns) : ns_(std::move(ns)) {}
  void launch(Stream&) const override {
    for (const int64_t each : ns_) clock_ns += each;
  }

 private:
  std::vector<int64_t> ns_;
};

// The reference backend under several names and speeds.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(std::vector<FakeChoice> choices) : choices_(std::move(choices)) {}
  std::string_view name() const override { return "fake"; }
  bool is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::vector<Choice> candidates(const Node&) const override {
    std::vector<Choice> all;
    for (const FakeChoice& each : choices_) all.push_back({each.name, each.bits, each.other_bits});
    return all;
  }
  std::unique_ptr<NodeKernel> instantiate(const Node& node, size_t choice) const override {
    return std::make_unique<FakeKernel>(inner_->instantiate(node, 0),
                                        choices_.at(choice),
                                        node.outputs[0].elements(),
                                        launch_ns,
                                        launches_);
  }
  bool can_record() const override { return launch_ns > 0; }
  RecordingResult record(Stream&, FunctionRef<void()> queue) override {
    std::vector<int64_t> ns;
    recorded_ns = &ns;
    queue();
    recorded_ns = nullptr;
    return {std::make_unique<FakeRecording>(std::move(ns)), {}};
  }
  int64_t cache_bytes() const override { return cache; }
  void* allocate(size_t bytes) override {
    free_bytes -= static_cast<int64_t>(bytes);
    if (free_bytes < 0) throw OutOfMemory("no memory");
    return inner_->allocate(bytes);
  }
  void deallocate(void* memory) noexcept override { inner_->deallocate(memory); }
  void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) override {
    inner_->copy_to_device(stream, device, host, bytes);
  }
  void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) override {
    inner_->copy_to_host(stream, host, device, bytes);
  }
  void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) override {
    inner_->copy_on_device(stream, to, from, bytes);
  }
  std::unique_ptr<Stream> make_stream() override { return inner_->make_stream(); }
  Calibration calibrate() override { return inner_->calibrate(); }

  int launches() const { return launches_; }

  int64_t launch_ns = 0;  ///< A launch takes at least so many ns; recorded ones do not.
  int64_t cache = 0;
  int64_t free_bytes = int64_t{1} << 40;  ///< Bytes that may still be allocated; none come back.

 private:
  std::unique_ptr<Backend> inner_ = make_backend("ref");
  std::vector<FakeChoice> choices_;
  mutable int launches_ = 0;
};

// exp(x) and a tuner over candidates.
class Tuned {
 public:
  explicit Tuned(std::vector<FakeChoice> choices,
                 const std::filesystem::path& folder = {},
                 bool time_all = false,
                 std::vector<int64_t> shape = {5, 7},
                 int64_t most_host_bytes = int64_t{1} << 30)
      : x_(input(graph_, "x", {DType::kF32, std::move(shape)})),
        backend_(std::move(choices)),
        cache_(folder, "a machine"),
        options_{.time_all = time_all, .now = fake_now, .most_host_bytes = most_host_bytes} {}

  size_t pick(KernelRange range = KernelRange::kSameBits) {
    const Value y = exp(x_);
    return tuner_.choose(*y.node, backend_.candidates(*y.node), range);
  }
  std::string picked(KernelRange range = KernelRange::kSameBits) {
    const size_t choice = pick(range);
    return backend_.candidates(*graph_.nodes().back())[choice].name;
  }
  const NodeTimes* times(KernelRange range = KernelRange::kSameBits) const {
    return tuner_.times(*graph_.nodes().back(), range);
  }
  Tuner& tuner() { return tuner_; }
  FakeBackend& backend() { return backend_; }
  ChoiceCache& cache() { return cache_; }

 private:
  Graph graph_{"test"};
  Value x_;
  FakeBackend backend_;
  std::unique_ptr<Backend> reference_ = make_backend("ref");
  ChoiceCache cache_;
  TunerOptions options_;
  Tuner tuner_{backend_, *reference_, cache_, options_};
};

TEST(Tuner, TakesTheFastestOfThoseWithTheSameBits) {
  EXPECT_EQ(Tuned({{"a", 0, 3000}, {"b", 0, 2000}, {"c", 0, 2500}}).picked(), "b");
}

// Launched one by one, all of these take as long as a launch does.
TEST(Tuner, ShortKernelsAreRecorded) {
  Tuned tuned({{"a", 0, 3000}, {"b", 0, 2000}, {"c", 0, 2500}});
  tuned.backend().launch_ns = 8000;
  EXPECT_EQ(tuned.picked(), "b");
  EXPECT_DOUBLE_EQ(tuned.times()->candidates[1].seconds, 2e-6);
  EXPECT_LT(tuned.backend().launches(), 20);
}

// An input and a result of 5 x 7 numbers take 280 bytes.
TEST(Tuner, OperandsThatTheCacheWouldLoseComeInTurn) {
  struct Case {
    int64_t cache, copies;
  };
  for (const auto& [cache, copies] :
       {Case{0, 1}, Case{140, 1}, Case{280, 2}, Case{1000, 8}, Case{1120, 1}}) {
    Tuned tuned({{"a", 0, 3000}, {"b", 0, 2000}});
    tuned.backend().cache = cache;
    reads.clear();
    EXPECT_EQ(tuned.picked(), "b");
    // Operands of the comparison with the reference may lie elsewhere, and are read once or twice.
    const auto timed =
        std::ranges::count_if(reads, [](const auto& each) { return each.second > 20; });
    EXPECT_EQ(timed, copies) << cache;
  }
}

TEST(Tuner, NeverTakesOtherBits) {
  Tuned tuned({{"a", 0, 3000}, {"b", 1, 10}, {"c", 0, 2000}});
  EXPECT_EQ(tuned.picked(), "c");
  EXPECT_EQ(tuned.times()->candidates[1].note, "other bits");
  EXPECT_EQ(tuned.times()->candidates[1].seconds, 0);
}

TEST(Tuner, OfAnyBitsTheFastestThatIsRight) {
  Tuned tuned({{"a", 0, 3000}, {"b", 1, 10, 0.1F}, {"c", 2, 1000, 1e-7F}, {"d", 0, 2000}});
  EXPECT_EQ(tuned.picked(KernelRange::kAnyBits), "c");
  const auto& candidates = tuned.times(KernelRange::kAnyBits)->candidates;
  EXPECT_THAT(candidates[1].note, testing::StartsWith("wrong: element "));
  EXPECT_EQ(candidates[1].seconds, 0);
  EXPECT_DOUBLE_EQ(candidates[2].seconds, 1e-6);
  // The bits of the first are asked for elsewhere.
  EXPECT_EQ(tuned.times(), nullptr);
  EXPECT_EQ(tuned.picked(), "d");
  EXPECT_EQ(tuned.tuner().timed(), 2u);
}

// A GPU's library comes first, and is not what the CPU computes.
TEST(Tuner, OfTheSameBitsThoseOfTheCpu) {
  const FakeChoice library{.name = "library", .bits = 16, .ns = 10, .other_bits = true};
  const FakeChoice exact{.name = "exact", .bits = 0, .ns = 3000};
  const FakeChoice rival{.name = "rival", .bits = 0, .ns = 2000};
  const FakeChoice approximate{.name = "approximate", .bits = 4, .ns = 20, .other_bits = true};
  Tuned tuned({library, exact, approximate, rival});
  EXPECT_EQ(tuned.picked(), "rival");
  EXPECT_EQ(tuned.times()->candidates[0].note, "other bits");
  EXPECT_EQ(tuned.times()->candidates[2].note, "other bits");
  EXPECT_EQ(tuned.picked(KernelRange::kAnyBits), "library");
  // With one of them there is nothing to time, and with none it is the first as ever.
  Tuned one({library, exact, approximate});
  EXPECT_EQ(one.picked(), "exact");
  EXPECT_EQ(one.backend().launches(), 0);
  EXPECT_EQ(Tuned({library, approximate}).picked(), "library");
  // A kernel that shares the CPU's bits is held to them.
  EXPECT_THROW(Tuned({library, exact, {.name = "off", .bits = 0, .ns = 10, .error = 1e-7F}}).pick(),
               InternalError);
}

TEST(Tuner, AKeptPickThatIsNoLongerAllowedIsPickedAgain) {
  const TempFolder folder;
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path()).picked(), "b");
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"b", 1, 200}, {"c", 0, 400}}, folder.path()).picked(), "a");
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"b", 1, 200}}, folder.path(), true).picked(), "a");
}

TEST(Choices, BitsAreTheCpusOrOthers) {
  const std::vector<Choice> of_cpu = {{"direct", 0}, {"depthwise", 1}, {"other", 0}};
  EXPECT_EQ(same_bits_choice(of_cpu), 0u);
  EXPECT_FALSE(has_other_bits(of_cpu, 2));
  EXPECT_TRUE(has_other_bits(of_cpu, 1));
  const std::vector<Choice> of_gpu = {{"library", 16, true}, {"printed", 0}, {"approx", 4, true}};
  EXPECT_EQ(same_bits_choice(of_gpu), 1u);
  EXPECT_FALSE(has_other_bits(of_gpu, 1));
  EXPECT_TRUE(has_other_bits(of_gpu, 0));
  EXPECT_TRUE(has_other_bits(of_gpu, 2));
  const std::vector<Choice> of_neither = {{"library", 16, true}};
  EXPECT_EQ(same_bits_choice(of_neither), 0u);
  EXPECT_TRUE(has_other_bits(of_neither, 0));
}

TEST(Tuner, RangesAreKeptApart) {
  const TempFolder folder;
  const std::vector<FakeChoice> choices = {{"a", 0, 300}, {"b", 0, 200}, {"c", 1, 100}};
  Tuned first(choices, folder.path());
  EXPECT_EQ(first.picked(), "b");
  EXPECT_EQ(first.picked(KernelRange::kAnyBits), "c");
  Tuned again(choices, folder.path());
  EXPECT_EQ(again.picked(), "b");
  EXPECT_EQ(again.picked(KernelRange::kAnyBits), "c");
  EXPECT_EQ(again.tuner().cached(), 2u);
}

TEST(Tuner, WhatHasTheBitsOfTheFirstIsHeldToThemInAnyRange) {
  EXPECT_THROW(Tuned({{"a", 0, 100}, {"b", 0, 10, 1e-7F}}).picked(KernelRange::kAnyBits),
               InternalError);
  EXPECT_THROW(Tuned({{"a", 0, 100, 0.1F}, {"b", 1, 10}}).picked(KernelRange::kAnyBits),
               InternalError);
}

TEST(Tuner, LargeNodesAreComparedWithTheFirst) {
  const std::vector<int64_t> shape = {2100, 2000};  // 16.8 MB: its results are read in pieces
  Tuned tuned({{"a", 0, 900'000'000}, {"b", 1, 1000, 0.1F}, {"c", 2, 800'000'000, 1e-7F}},
              {},
              false,
              shape);
  EXPECT_EQ(tuned.picked(KernelRange::kAnyBits), "c");
  EXPECT_THAT(tuned.times(KernelRange::kAnyBits)->candidates[1].note,
              testing::StartsWith("wrong: element "));
}

// exp(x) + x as one loop, by candidates: small, so that it is held against the reference, and
// large.
class TunedLoop {
 public:
  TunedLoop(std::vector<FakeChoice> choices, std::vector<int64_t> shape)
      : backend_(std::move(choices)) {
    Graph body("fused");
    const Value x = input(body, "0", {DType::kF32, shape});
    body.add_output("0", exp(x) + x);
    node_ = &fused(graph_, body, {input(graph_, "x", {DType::kF32, shape})}, Site{"loop"});
  }
  std::string picked(KernelRange range) {
    const auto choices = backend_.candidates(*node_);
    return choices[tuner_.choose(*node_, choices, range)].name;
  }
  std::string note(size_t choice, KernelRange range) const {
    return tuner_.times(*node_, range)->candidates.at(choice).note;
  }
  int launches() const { return backend_.launches(); }

 private:
  Graph graph_{"test"};
  const Node* node_;
  FakeBackend backend_;
  std::unique_ptr<Backend> reference_ = make_backend("ref");
  ChoiceCache cache_{{}, "a machine"};
  Tuner tuner_{backend_, *reference_, cache_, {.now = fake_now}};
};

// A loop by other functions: faster, and as near as roundings add up to; or wrong.
TEST(Tuner, LoopsOfOtherBitsAreHeldAgainstTheReference) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{50, 70}, {2100, 2000}}) {
    TunedLoop loop({{"a", 0, 900'000'000}, {"b", 1, 1000, 1e-3F}, {"c", 2, 800'000'000, 2e-7F}},
                   shape);
    EXPECT_EQ(loop.picked(KernelRange::kAnyBits), "c");
    EXPECT_THAT(loop.note(1, KernelRange::kAnyBits), testing::StartsWith("wrong: element "));
    EXPECT_EQ(loop.note(2, KernelRange::kAnyBits), "");
    const int launches = loop.launches();
    EXPECT_EQ(loop.picked(KernelRange::kSameBits), "a");
    EXPECT_EQ(loop.launches(), launches);  // there is nothing to choose
  }
}

// A library may offer a kernel and then refuse it; all choices of a small node run before any is
// timed. One node is compared with the reference, the other is too large for that.
TEST(Tuner, WhatCannotRunIsNotTimedAndNothingIsKept) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 7}, {1100, 1000}}) {
    const TempFolder folder;
    const FakeChoice refuses{"b", 1, 700'000'000, 0, true};
    Tuned tuned(
        {{"a", 0, 900'000'000}, refuses, {"c", 1, 800'000'000}}, folder.path(), false, shape);
    EXPECT_EQ(tuned.picked(KernelRange::kAnyBits), "c");
    EXPECT_EQ(tuned.times(KernelRange::kAnyBits)->candidates[1].note, "cannot run: not this?time");
    Tuned again({{"a", 0, 900'000'000}, {"b", 1, 700'000'000}, {"c", 1, 800'000'000}},
                folder.path(),
                false,
                shape);
    EXPECT_EQ(again.picked(KernelRange::kAnyBits), "b");
  }
}

// The first that is offered need not be the one that serves, but for the bits of the CPU.
TEST(Tuner, OfAnyBitsTheFirstMayFail) {
  const FakeChoice refuses{"a", 0, 10, 0, true}, is_wrong{"a", 0, 10, 0.1F, false, true},
      right{"b", 1, 900'000'000};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 7}, {1100, 1000}}) {
    EXPECT_EQ(Tuned({refuses, right}, {}, false, shape).picked(KernelRange::kAnyBits), "b");
    EXPECT_THROW(Tuned({refuses, refuses}, {}, false, shape).pick(KernelRange::kAnyBits),
                 UserError);
    EXPECT_THROW(Tuned({refuses, {"b", 0, 3000}}, {}, false, shape).pick(), UserError);
  }
  Tuned tuned({is_wrong, right});
  EXPECT_EQ(tuned.picked(KernelRange::kAnyBits), "b");
  EXPECT_TRUE(tuned.times(KernelRange::kAnyBits)->candidates[0].note.starts_with("wrong: "));
  EXPECT_THROW(Tuned({is_wrong, is_wrong}).pick(KernelRange::kAnyBits), InternalError);
}

TEST(Tuner, NeverRunsOpByOpWhatHasAKernel) {
  EXPECT_EQ(Tuned({{"a", 0, 3000}, {std::string(kExpandedChoice), 0, 10}, {"c", 0, 2900}}).picked(),
            "c");
}

// An input and a result of 5 x 7 numbers take 280 bytes.
TEST(Tuner, WhatIsTooLargeIsNotTimedAndNotKept) {
  const TempFolder folder;
  const std::vector<FakeChoice> choices = {{"a", 0, 3000}, {"b", 0, 2000}};
  Tuned large(choices, folder.path(), true, {5, 7}, 279);
  EXPECT_EQ(large.picked(), "a");
  EXPECT_EQ(large.backend().launches(), 0);
  for (const CandidateTime& candidate : large.times()->candidates) {
    EXPECT_EQ(candidate.note, "not timed: operands and results take 0.0 GB");
    EXPECT_EQ(candidate.seconds, 0);
  }
  EXPECT_EQ(Tuned(choices, folder.path(), false, {5, 7}, 280).picked(), "b");
  EXPECT_EQ(Tuned(choices, folder.path(), false, {5, 7}, 279).picked(), "b");  // kept from there
}

TEST(Tuner, WithoutMemoryForItNothingIsTimedAndNothingIsKept) {
  const TempFolder folder;
  const std::vector<FakeChoice> choices = {{"a", 0, 3000}, {"b", 0, 2000}};
  Tuned crowded(choices, folder.path());
  crowded.backend().free_bytes = 279;
  EXPECT_EQ(crowded.picked(), "a");
  EXPECT_EQ(crowded.backend().launches(), 0);
  EXPECT_EQ(crowded.times()->candidates[1].note, "not timed: operands and results take 0.0 GB");
  EXPECT_EQ(Tuned(choices, folder.path()).picked(), "b");
}

TEST(Tuner, CloseCandidatesGoToTheEarlier) {
  EXPECT_EQ(Tuned({{"a", 0, 10000}, {"b", 0, 9800}}).picked(), "a");
  EXPECT_EQ(Tuned({{"a", 0, 10000}, {"b", 0, 9600}}).picked(), "b");
}

TEST(Tuner, MedianTimesAreKept) {
  Tuned tuned({{"a", 0, 3000}, {"b", 0, 2000}});
  tuned.pick();
  EXPECT_DOUBLE_EQ(tuned.times()->candidates[0].seconds, 3e-6);
  EXPECT_DOUBLE_EQ(tuned.times()->candidates[1].seconds, 2e-6);
}

TEST(Tuner, ARefusedKernelIsAnErrorAndNeverAPick) {
  EXPECT_THROW(Tuned({{"a", 0, 100, 0.1F}, {"b", 0, 100}}).pick(), InternalError);
  EXPECT_THROW(Tuned({{"a", 0, 100}, {"b", 0, 10, 1e-7F}}).pick(), InternalError);
}

TEST(Tuner, OneCandidateIsNotTimedUnlessAsked) {
  Tuned quiet({{"a", 0, 100}});
  EXPECT_EQ(quiet.pick(), 0u);
  EXPECT_EQ(quiet.backend().launches(), 0);
  EXPECT_EQ(quiet.times(), nullptr);
  Tuned all({{"a", 0, 100}}, {}, true);
  EXPECT_EQ(all.pick(), 0u);
  ASSERT_NE(all.times(), nullptr);
  EXPECT_DOUBLE_EQ(all.times()->candidates[0].seconds, 1e-7);
}

TEST(Tuner, EqualNodesAreTimedOnce) {
  Tuned tuned({{"a", 0, 300}, {"b", 0, 200}});
  tuned.pick();
  const int launches = tuned.backend().launches();
  EXPECT_EQ(tuned.pick(), 1u);
  EXPECT_EQ(tuned.backend().launches(), launches);
  EXPECT_EQ(tuned.tuner().timed(), 1u);
}

TEST(Tuner, TheCacheServesAnotherProcess) {
  const TempFolder folder;
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path()).picked(), "b");
  // Were it timed again, "a" would win.
  Tuned again({{"a", 0, 100}, {"b", 0, 200}}, folder.path());
  EXPECT_EQ(again.picked(), "b");
  EXPECT_EQ(again.backend().launches(), 0);
  EXPECT_EQ(again.tuner().cached(), 1u);
  EXPECT_EQ(again.cache().note(), "");
}

TEST(Tuner, OtherCandidatesThanTheKeptAreTimed) {
  const TempFolder folder;
  Tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path()).pick();
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"c", 0, 400}}, folder.path()).picked(), "a");
  EXPECT_EQ(Tuned({{"a", 0, 300}, {"b", 0, 400}, {"c", 0, 100}}, folder.path()).picked(), "c");
}

TEST(Tuner, AnotherMachineIsTimed) {
  const TempFolder folder;
  Tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path()).pick();
  ChoiceCache other(folder.path(), "another machine");
  NodeTimes times;
  Graph graph("test");
  const Value y = exp(input(graph, "x", {DType::kF32, {5, 7}}));
  EXPECT_FALSE(other.find(tuning_key(*y.node), times));
  EXPECT_TRUE(ChoiceCache(folder.path(), "a machine").find(tuning_key(*y.node), times));
}

TEST(Tuner, MayTakeWhatIsKeptAndTimeNothing) {
  const TempFolder folder;
  const std::vector<FakeChoice> choices = {{"a", 0, 300}, {"b", 0, 200}};
  FakeBackend backend(choices);
  const auto reference = make_backend("ref");
  Graph graph("test");
  const Value y = exp(input(graph, "x", {DType::kF32, {5, 7}}));
  const auto pick = [&] {
    ChoiceCache cache(folder.path(), "a machine", CacheAccess::kRead);
    Tuner tuner(backend, *reference, cache, {.times = false});
    const size_t choice = tuner.choose(*y.node, backend.candidates(*y.node));
    EXPECT_EQ(tuner.timed(), 0u);
    EXPECT_EQ(tuner.cached(), choice);
    return choice;
  };
  EXPECT_EQ(pick(), 0u);
  EXPECT_TRUE(folder.names().empty());
  EXPECT_EQ(Tuned(choices, folder.path()).picked(), "b");
  EXPECT_EQ(pick(), 1u);
  for (const std::string& name : folder.names())
    std::ofstream(folder / name) << std::string(9000, 'x');
  EXPECT_EQ(pick(), 0u);
  EXPECT_EQ(backend.launches(), 0);
}

TEST(Tuner, ADamagedCacheCostsTimeOnly) {
  const TempFolder folder;
  Tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path()).pick();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    std::ofstream(entry.path()) << std::string(9000, 'x');
  Tuned tuned({{"a", 0, 300}, {"b", 0, 200}}, folder.path());
  EXPECT_EQ(tuned.picked(), "b");
  EXPECT_THAT(tuned.cache().note(), testing::HasSubstr("are not kept"));
}

TEST(Tuner, AFolderThatCannotBeMadeCostsTimeOnly) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  Tuned tuned({{"a", 0, 300}, {"b", 0, 200}}, std::filesystem::path(folder / "file") / "inside");
  EXPECT_EQ(tuned.picked(), "b");
  EXPECT_THAT(tuned.cache().note(), testing::HasSubstr("are not kept"));
}

TEST(TuningKey, DependsOnTypesAndFieldsAndNotOnSites) {
  Graph graph("test");
  const Value x = input(graph, "x", {DType::kF32, {2, 3}});
  const Value a = exp(x);
  const Value b = exp(a);
  const Value c = exp(input(graph, "y", {DType::kF32, {3, 2}}));
  const Value d = exp(input(graph, "z", {DType::kF64, {2, 3}}));
  EXPECT_EQ(tuning_key(*a.node), tuning_key(*b.node));
  EXPECT_NE(tuning_key(*a.node), tuning_key(*c.node));
  EXPECT_NE(tuning_key(*a.node), tuning_key(*d.node));
  EXPECT_NE(tuning_key(*a.node), tuning_key(*log(x).node));
  const Value i = input(graph, "i", {DType::kI64, {2}});
  EXPECT_NE(tuning_key(*gather(x, i, 0).node), tuning_key(*gather(x, i, 1).node));
}

// The body of a loop holds sites too.
TEST(TuningKey, BodiesCountWithoutTheirSites) {
  const auto node_of = [](Graph& graph, const std::string& site, bool swapped) {
    Graph body("fused");
    const Value x = input(body, "0", {DType::kF32, {4}});
    const Value y = input(body, "1", {DType::kF32, {4}});
    const Value difference = swapped ? sub(y, x) : sub(x, y);
    difference.node->site.name = site;
    body.add_output("0", difference);
    const Value p = input(graph, site + "p", {DType::kF32, {4}});
    const Value q = input(graph, site + "q", {DType::kF32, {4}});
    return tuning_key(fused(graph, body, {p, q}, {}));
  };
  Graph graph("test");
  EXPECT_EQ(node_of(graph, "blocks.0:sub.0", false), node_of(graph, "blocks.1:sub.0", false));
  EXPECT_NE(node_of(graph, "blocks.2:sub.0", false), node_of(graph, "blocks.3:sub.0", true));
}

TEST(Tuner, RealKernelsOfEveryKindAgree) {
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  ChoiceCache cache({}, "a machine");
  Tuner tuner(*cpu, *ref, cache, {.time_all = true});
  Graph graph("test");
  const Value table = input(graph, "table", {DType::kF32, {6, 5}});
  const Value index = input(graph, "index", {DType::kI64, {7}});
  for (const Value& value : {gather(table, index, 0), exp(table), ge(table, table)}) {
    const auto choices = cpu->candidates(*value.node);
    EXPECT_LT(tuner.choose(*value.node, choices), choices.size());
    EXPECT_GT(tuner.times(*value.node)->candidates[0].seconds, 0);
  }
}

}  // namespace
}  // namespace ridge::test
