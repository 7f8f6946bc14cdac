// The training graphs: micro-batches against the whole batch, the guard, and what is refused.
#include "ridge/nn/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/graph/batch_flow.h"
#include "ridge/graph/text.h"
#include "tests/nn/program_run.h"
#include "tests/support/case_builder.h"
#include "tests/support/compare.h"

namespace ridge::test {
namespace {

using nn::CnnOptions;
using nn::GptOptions;
using nn::MlpOptions;
using nn::ModelOptions;
using nn::OptimizerOptions;
using nn::SampleTypes;
using nn::Training;

struct Sample {
  ModelOptions model;
  SampleTypes types;
};

Sample mlp(DType dtype = DType::kF64) {
  Sample sample;
  sample.model.kind = nn::ModelKind::kMlp;
  sample.model.dtype = dtype;
  sample.model.mlp = MlpOptions{{9, 7}, 5, 0.3};
  sample.types = {{dtype, {6}}, {DType::kI64, {}}};
  return sample;
}

Sample gpt() {
  Sample sample;
  sample.model.kind = nn::ModelKind::kGpt;
  sample.model.dtype = DType::kF64;
  sample.model.gpt = GptOptions{11, 8, 2, 2, 8, 0.3};
  sample.types = {{DType::kI32, {6}}, {DType::kI32, {6}}};
  return sample;
}

Sample cnn(bool batch_norm) {
  Sample sample;
  sample.model.kind = nn::ModelKind::kCnn;
  sample.model.dtype = DType::kF64;
  sample.model.cnn = CnnOptions{{3, 4}, 1, 5, 0.3, batch_norm, 0.1, 1};
  sample.types = {{DType::kF64, {5, 6, 2}}, {DType::kI64, {}}};
  return sample;
}

Sample regression() {
  Sample sample = mlp();
  sample.types.y = {DType::kF32, {5}};
  return sample;
}

Training make_training(const Sample& sample, const OptimizerOptions& optimizer = {}) {
  return {nn::make_model(sample.model, sample.types), optimizer};
}

// A batch with random x, and labels below `classes` of which every third is ignored.
NamedTensors batch_of(const Sample& sample, int64_t size, int64_t classes) {
  Random random(7);
  const auto fill = [&](TensorType type, bool labels) {
    type.shape.insert(type.shape.begin(), size);
    Tensor tensor(type);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (is_float(type.dtype))
        tensor.set(i, random.uniform(-1.0, 1.0));
      else if (labels && i % 3 == 1)
        tensor.set(i, -100.0);
      else
        tensor.set(i, static_cast<double>(random.integer(0, classes - 1)));
    }
    return tensor;
  };
  NamedTensors data;
  data.emplace("x", fill(sample.types.x, false));
  data.emplace("y", fill(sample.types.y, true));
  return data;
}

NamedTensors part_of(const NamedTensors& data, int64_t first, int64_t count, int64_t step) {
  NamedTensors part;
  for (const auto& [name, tensor] : data) part.emplace(name, rows(tensor, first, count));
  part.emplace("rng", rng_tensor(3, step, first));
  return part;
}

Tensor hyper(const Training& training, int64_t step) {
  return nn::hyper_tensor(nn::step_scalars(training.optimizer(), {}, step, 10),
                          training.accumulate());
}

OptimizerOptions adamw_with_clip() {
  OptimizerOptions optimizer;
  optimizer.lr = 0.01;
  optimizer.clip = 0.5;
  return optimizer;
}

// Compares everything that both states hold.
void expect_same_state(const NamedTensors& got, const NamedTensors& want, double relative) {
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(difference(got.at(name), tensor, relative), "") << name;
  }
}

class MicroBatches : public ::testing::TestWithParam<Sample> {};

// Two steps of 13 samples as 5 + 5 + 3 against the joined step, with dropout and ignored labels.
TEST_P(MicroBatches, AddUpToTheWholeBatch) {
  const Training training = make_training(GetParam(), adamw_with_clip());
  const NamedTensors data = batch_of(GetParam(), 13, 5);
  ProgramRun whole("ref", training.initial_state(false, 1));
  ProgramRun parts("ref", training.initial_state(true, 1));
  for (int64_t step = 0; step < 2; ++step) {
    NamedTensors all = part_of(data, 0, 13, step);
    all.emplace("hyper", hyper(training, step));
    const NamedTensors want = whole.run(training.step(13), all);
    for (int64_t first = 0; first < 13; first += 5) {
      const int64_t size = std::min<int64_t>(5, 13 - first);
      EXPECT_TRUE(parts.run(training.micro(size), part_of(data, first, size, step)).empty());
    }
    const NamedTensors got = parts.run(training.apply(), all);
    expect_same_state(got, want, 1e-10);
    expect_same_state(parts.state(), whole.state(), 1e-10);
    EXPECT_TRUE(std::isfinite(want.at("loss").at(0)));
    EXPECT_GT(want.at("grad_norm").at(0), 1e-3);
  }
  const nn::ParameterSpec& first = training.parameters()[0];
  EXPECT_NE(difference(whole.state().at(first.name), nn::initial_value(first, 1), 1e-3), "");
  for (const StateEntry& entry : training.state(true)) {
    if (entry.role != StateRole::kGradient) continue;
    EXPECT_TRUE(parts.state().at(entry.name).same_bits(Tensor(entry.type))) << entry.name;
  }
}

TEST_P(MicroBatches, AreProvenSeparable) {
  const BatchReport report = make_training(GetParam()).batch_report(5);
  EXPECT_TRUE(report.separable) << report.reason;
}

INSTANTIATE_TEST_SUITE_P(Models,
                         MicroBatches,
                         ::testing::Values(mlp(), gpt(), cnn(false), regression()),
                         [](const auto& tested) {
                           return std::string(name_of(tested.param.model.kind)) +
                                  (tested.param.types.regression() ? "_regression" : "");
                         });

TEST(Training, BatchNormIsNotSeparable) {
  const BatchReport report = make_training(cnn(true)).batch_report(5);
  EXPECT_FALSE(report.separable);
  EXPECT_NE(report.reason.find("the statistics run over the batch"), std::string::npos)
      << report.reason;
}

// Dropout must depend on the place in the batch: the same samples elsewhere give another loss.
TEST(Training, DropoutFollowsTheFirstSample) {
  const Training training = make_training(mlp());
  const NamedTensors data = batch_of(mlp(), 4, 5);
  double losses[2];
  for (int64_t i = 0; i < 2; ++i) {
    ProgramRun run("ref", training.initial_state(true, 1));
    NamedTensors part = part_of(data, 0, 4, 0);
    part.at("rng") = rng_tensor(3, 0, i);
    run.run(training.micro(4), part);
    losses[i] = run.state().at("sum.loss").at(0);
  }
  EXPECT_NE(losses[0], losses[1]);
}

struct Poison {
  std::string name;
  double x;
  double halted;
};

class Guard : public ::testing::TestWithParam<Poison> {};

// A step that must not happen leaves every bit of the state but the halt flag.
TEST_P(Guard, KeepsTheState) {
  for (const Sample& sample : {mlp(), cnn(true)}) {
    const Training training = make_training(sample, adamw_with_clip());
    NamedTensors data = part_of(batch_of(sample, 6, 5), 0, 6, 0);
    data.emplace("hyper", hyper(training, 0));
    ProgramRun whole("cpu", training.initial_state(false, 1));
    ProgramRun parts("cpu", training.initial_state(true, 1));
    whole.run(training.step(6), data);  // so that the moments are not zero
    for (const auto& [name, tensor] : whole.state()) parts.state().at(name) = tensor;
    const NamedTensors before = whole.state();

    data.at("x").set(3, GetParam().x);
    for (ProgramRun* run : {&whole, &parts}) run->state().at("halted").set(0, GetParam().halted);
    whole.run(training.step(6), data);
    parts.run(training.micro(6), data);
    parts.run(training.apply(), data);
    for (const auto& [name, tensor] : before) {
      if (name == "halted") continue;
      EXPECT_TRUE(whole.state().at(name).same_bits(tensor)) << name;
      EXPECT_TRUE(parts.state().at(name).same_bits(tensor)) << name;
    }
    const double halted = GetParam().halted + 1;
    EXPECT_EQ(whole.state().at("halted").at(0), halted);
    EXPECT_EQ(parts.state().at("halted").at(0), halted);
    EXPECT_EQ(parts.state().at("sum.loss").at(0), 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         Guard,
                         ::testing::Values(Poison{"Nan", std::nan(""), 0.0},
                                           Poison{"Infinity", HUGE_VAL, 0.0},
                                           Poison{"Halted", 0.5, 1.0}),
                         [](const auto& tested) { return tested.param.name; });

// The loss is finite, but the squares of its gradient are not.
TEST(Training, GuardSeesAnInfiniteNorm) {
  const Sample sample = regression();
  const Training training = make_training(sample, adamw_with_clip());
  NamedTensors data = part_of(batch_of(sample, 6, 5), 0, 6, 0);
  data.emplace("hyper", hyper(training, 0));
  ProgramRun run("ref", training.initial_state(true, 1));
  run.run(training.micro(6), data);
  run.state().at("head.weight.grad").set(2, 1e200);
  const NamedTensors before = run.state();
  const NamedTensors results = run.run(training.apply(), data);
  EXPECT_TRUE(std::isfinite(results.at("loss").at(0)));
  EXPECT_FALSE(std::isfinite(results.at("grad_norm").at(0)));
  EXPECT_EQ(run.state().at("halted").at(0), 1.0);
  EXPECT_TRUE(run.state().at("head.weight").same_bits(before.at("head.weight")));
}

TEST(Training, NoTargetThatCountsIsNoFailure) {
  OptimizerOptions optimizer;
  optimizer.weight_decay = 0.0;
  const Training training = make_training(mlp(), optimizer);
  NamedTensors data = part_of(batch_of(mlp(), 6, 5), 0, 6, 0);
  data.emplace("hyper", hyper(training, 0));
  for (int64_t i = 0; i < 6; ++i) data.at("y").set(i, -100.0);
  ProgramRun run("ref", training.initial_state(false, 1));
  const NamedTensors before = run.state();
  const NamedTensors results = run.run(training.step(6), data);
  EXPECT_EQ(results.at("count").at(0), 0.0);
  EXPECT_EQ(results.at("loss").at(0), 0.0);
  EXPECT_EQ(bit_difference(run.state(), before), "");
}

// Sixteen-bit parameters: sums, gradients and moments are f32, and a step moves the weights.
TEST(Training, SixteenBitModelsAccumulateInF32) {
  const Training training = make_training(mlp(DType::kBF16), adamw_with_clip());
  for (const StateEntry& entry : training.state(true)) {
    const bool parameter = entry.role == StateRole::kParameter;
    EXPECT_EQ(entry.type.dtype, parameter ? DType::kBF16 : DType::kF32) << entry.name;
  }
  NamedTensors data = part_of(batch_of(mlp(DType::kBF16), 6, 5), 0, 6, 0);
  data.emplace("hyper", hyper(training, 0));
  ProgramRun run("cpu", training.initial_state(true, 1));
  const NamedTensors before = run.state();
  run.run(training.micro(6), data);
  EXPECT_NEAR(run.run(training.apply(), data).at("loss").at(0), std::log(5.0), 0.4);
  EXPECT_FALSE(run.state().at("layers.0.weight").same_bits(before.at("layers.0.weight")));
}

TEST(Training, ProgramHoldsWhatItsSizesAskFor) {
  const Training training = make_training(cnn(true));
  const ProgramGraphs program = training.program({{8, 3}, {8}, {16, 5}, {1}});
  std::vector<std::string> names;
  for (const Graph& graph : program.entries) {
    verify(graph);
    names.push_back(graph.name());
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
    for (const Output& output : graph.outputs()) {
      if (output.updates.empty()) continue;
      const auto is_it = [&](const StateEntry& e) { return e.name == output.updates; };
      EXPECT_EQ(std::ranges::count_if(program.state, is_it), 1) << output.updates;
    }
  }
  EXPECT_EQ(
      names,
      (std::vector<std::string>{"micro", "micro.3", "apply", "step", "eval", "eval.5", "logits"}));
  std::map<std::string, Tensor> initial = training.initial_state(true, 5);
  for (const StateEntry& entry : program.state)
    EXPECT_EQ(initial.at(entry.name).type(), entry.type);
  EXPECT_EQ(initial.size(), program.state.size());
  const ProgramGraphs joined = training.program({.step = {8}});
  EXPECT_EQ(joined.entries.size(), 1u);
  for (const StateEntry& entry : joined.state) EXPECT_NE(entry.role, StateRole::kGradient);
  EXPECT_THROW(training.micro(0), UserError);
  EXPECT_THROW(training.micro({8, 4}), UserError);  // an image is no row of items
}

TEST(Training, SamplesCanBeCut) {
  const Training training = make_training(gpt());
  const int64_t whole = gpt().types.x.shape[0];
  std::vector<std::string> names;
  for (const Graph& graph : training.program({.step = {4, {4, whole - 1}, {4, 1}, 3}}).entries) {
    verify(graph);
    names.push_back(graph.name());
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "step", fmt::format("step.4x{}", whole - 1), "step.4x1", "step.3"}));
  EXPECT_THROW(training.step({4, whole + 1}), UserError);
  EXPECT_THROW(training.step({4, -1}), UserError);
}

TEST(Training, ABatchTakesTheShortestProgramWithRoom) {
  const std::vector<nn::BatchSize> sizes = {8, {8, 16}, {8, 4}, 3, {3, 4}};
  EXPECT_EQ(nn::fitting_size(sizes, 8, 0), 0u);  // not known
  EXPECT_EQ(nn::fitting_size(sizes, 8, 1), 2u);
  EXPECT_EQ(nn::fitting_size(sizes, 8, 4), 2u);
  EXPECT_EQ(nn::fitting_size(sizes, 8, 5), 1u);
  EXPECT_EQ(nn::fitting_size(sizes, 8, 17), 0u);
  EXPECT_EQ(nn::fitting_size(sizes, 3, 4), 4u);
  EXPECT_EQ(nn::fitting_size(sizes, 3, 5), 3u);
  EXPECT_THROW(nn::fitting_size(sizes, 4, 1), InternalError);
  EXPECT_THROW(nn::fitting_size({{3, 4}}, 3, 5), InternalError);
}

}  // namespace
}  // namespace ridge::test
