// Kernels that sessions take: the picks that are kept of them, and those that are timed when it is
// asked for. No time plays a part: picks are counted, and kept ones are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ridge/base/machine/machine.h"
#include "ridge/base/settings.h"
#include "ridge/graph/model_source.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/source.h"
#include "ridge/infer/model_session.h"
#include "ridge/infer/weights.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/run/tuner.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

// A convolution by windows of one pixel, which two kernels compute with the same bits.
class Pointwise final : public ModelSource {
 public:
  std::vector<DataSpec> inputs() const override { return {{"x", DType::kF32, {"N", 6, 5, 16}}}; }
  std::vector<DataSpec> outputs() const override { return {{"y", DType::kF32, {"N", 6, 5, 8}}}; }
  std::vector<StateEntry> state() const override {
    return {{"w", {DType::kF32, {1, 1, 16, 8}}, StateRole::kParameter, Initializer::normal(0.5)}};
  }

 private:
  ProgramGraphs build(const Binding& binding) const override {
    Graph g("y");
    const Value x = input(g, "x", {DType::kF32, {binding.at("N"), 6, 5, 16}}, 0);
    g.add_output("y", conv2d(x, input(g, "w", state()[0].type)));
    return only_entry(std::move(g));
  }
};

const Binding kThree = {{"N", 3}};

class SessionPicks : public testing::Test {
 protected:
  SessionPicks() {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    settings().set("tune", "true", Source::kFlag);
    model_.state->declare(model_.source->state());
    model_.state->initialize(3);
    Tensor x({DType::kF32, {3, 6, 5, 16}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i % 7) - 3);
    data_.emplace("x", std::move(x));
  }
  ~SessionPicks() override {
    settings().set("tune", "false", Source::kFlag);
    ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }

  // The names of the kernels of a session's program.
  static std::vector<std::string> kernels(ModelSession& session) {
    std::vector<std::string> names;
    const std::shared_ptr<const Plan> plan = session.bind(kThree);
    for (const PlanStep& step : plan->entries.at(0).steps) names.push_back(step.choice_name);
    return names;
  }

  TempFolder folder_;
  std::string before_ = std::getenv("XDG_CACHE_HOME");
  LoadedModel model_{.source = std::make_shared<const Pointwise>(),
                     .state = make_state(make_backend("cpu")),
                     .weights = "first values"};
  NamedTensors data_;
};

TEST_F(SessionPicks, AreTimedWhereItIsAskedForAndKeptForAllOthers) {
  ModelSession cold(model_);
  const NamedTensors wanted = cold.run(data_);
  EXPECT_EQ(cold.picks().timed, 0u);
  EXPECT_EQ(cold.picks().kept, 0u);
  EXPECT_TRUE(folder_.names().empty());  // it has not even made a file
  ModelSession tuned(model_, {.tune = true});
  const std::vector<std::string> picked = kernels(tuned);
  const size_t timed = tuned.picks().timed;
  EXPECT_GE(timed, 1u);
  EXPECT_EQ(tuned.picks().kept, 0u);
  EXPECT_EQ(tuned.picks().note, "");
  for (const bool tune : {true, false}) {
    ModelSession later(model_, {.tune = tune});
    EXPECT_EQ(bit_difference(later.run(data_), wanted), "");
    EXPECT_EQ(kernels(later), picked);
    EXPECT_EQ(later.picks().timed, 0u);
    EXPECT_EQ(later.picks().kept, timed);
  }
  // Another size has other nodes.
  cold.bind({{"N", 4}});
  EXPECT_EQ(cold.picks().timed, 0u);
  EXPECT_EQ(cold.picks().kept, 0u);
}

TEST_F(SessionPicks, AreTakenWhateverTheyAre) {
  ModelSession(model_, {.tune = true}).bind(kThree);
  const NamedTensors wanted = ModelSession(model_).run(data_);
  Backend& backend = model_.state->backend();
  const CompiledProgram compiled =
      compile_program(model_.source->bind(kThree), backend, inference_options());
  ChoiceCache cache(cache_folder(), device_fingerprint("cpu", backend));
  size_t tried = 0;
  for (const auto& node : compiled.graphs.entries.at(0).nodes()) {
    NodeTimes times;
    if (!cache.find(tuning_key(*node), times)) continue;
    for (times.pick = 0; times.pick < times.candidates.size(); ++times.pick) {
      const CandidateTime& candidate = times.candidates[times.pick];
      if (!candidate.note.empty()) continue;
      cache.keep(tuning_key(*node), times);
      ModelSession session(model_);
      EXPECT_THAT(kernels(session), testing::Contains(candidate.name));
      EXPECT_EQ(bit_difference(session.run(data_), wanted), "");
      ++tried;
    }
  }
  EXPECT_GE(tried, 2u);
}

TEST_F(SessionPicks, AreLeftAloneWhereTheSettingIsOff) {
  ModelSession(model_, {.tune = true}).bind(kThree);
  settings().set("tune", "false", Source::kFlag);
  for (const bool tune : {true, false}) {
    ModelSession session(model_, {.tune = tune});
    session.bind(kThree);
    EXPECT_EQ(session.picks().timed, 0u);
    EXPECT_EQ(session.picks().kept, 0u);
  }
}

}  // namespace
}  // namespace ridge::test
