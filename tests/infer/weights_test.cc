// Weights from files: mapped on the host, copied to a device, refused whole.
#include "ridge/infer/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/io/safetensors.h"
#include "ridge/nn/logits_source.h"
#include "tests/support/errors.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

nn::Training small_model() {
  nn::ModelOptions options;
  options.kind = nn::ModelKind::kMlp;
  options.mlp.hidden = {7, 5};
  options.mlp.outputs = 3;
  const nn::SampleTypes sample{{DType::kF32, {9}}, {DType::kI64, {}}};
  return {nn::make_model(options, sample), {}};
}

ProgramGraphs logits_of(const nn::Training& training) {
  return nn::LogitsSource(training).bind({{"B", 4}});
}

Tensor run(Program& program) {
  Tensor x(program.plan().entries[0].inputs[0].type);
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, 0.1 * static_cast<double>(i % 7));
  Tensor logits(program.plan().entries[0].outputs[0].type);
  program.write(program.input(0, "x"), x.data());
  program.run(0);
  program.read(program.output(0, "logits"), logits.data());
  program.synchronize();
  return logits;
}

nn::Training small_gpt() {
  nn::ModelOptions options;
  options.kind = nn::ModelKind::kGpt;
  options.gpt = {.vocab = 45, .context = 32, .layers = 1, .heads = 2, .width = 24};
  const nn::SampleTypes sample{{DType::kI64, {32}}, {DType::kI64, {32}}};
  return {nn::make_model(options, sample), {}};
}

class Weights : public testing::Test {
 protected:
  // A file of first values, without the tensor `missing`, and with one more.
  std::string save(const std::string& missing = "", DType dtype = DType::kF32) {
    return save(training_, missing, dtype);
  }
  std::string save(const nn::Training& training,
                   const std::string& missing = "",
                   DType dtype = DType::kF32) {
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
    const auto& parameters = training.parameters();
    tensors.reserve(parameters.size() + 1);
    for (const nn::ParameterSpec& spec : parameters) {
      if (spec.name == missing) continue;
      const Tensor& value = tensors.emplace_back(nn::initial_value(
          {spec.name, {spec.name == "head.bias" ? dtype : DType::kF32, spec.type.shape}, spec.init},
          3));
      views.push_back({spec.name, value.type(), value.data()});
    }
    const Tensor& more = tensors.emplace_back(TensorType{DType::kU8, {3}});
    views.push_back({"another", more.type(), more.data()});
    const std::string path = (folder_.path() / "weights.safetensors").string();
    save_safetensors(path, views);
    return path;
  }

  TempFolder folder_;
  nn::Training training_ = small_model();
  TrainConfig config_;
  TrainObserver observer_;
};

TEST_F(Weights, AreMappedOnTheHostAndCopiedToADevice) {
  const std::string path = save();
  const auto cpu = make_cpu_backend(), threaded = make_cpu_backend(StreamMode::kThread);
  State first(*cpu);
  first.declare(logits_of(training_).state);
  first.initialize(3);
  Program fresh(logits_of(training_), first);
  const Tensor wanted = run(fresh);
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), threaded.get(), static_cast<Backend*>(&device)}) {
    ProgramGraphs graphs = logits_of(training_);
    State state(*backend);
    const OpenWeights opened = open_weights(config_, path, observer_);
    EXPECT_EQ(opened.path, path);
    load_weights(state, graphs.state, opened);
    EXPECT_EQ(state.bytes() > 0, backend == &device);
    Program program(std::move(graphs), state);
    EXPECT_EQ(state.bytes() > 0, backend == &device);
    EXPECT_TRUE(run(program).same_bits(wanted));
  }
}

// The token embedding is the head's weight, too: its rows are read where they are mapped, and its
// panels from the packed copy.
TEST_F(Weights, ThatAreMappedArePackedForTheHead) {
  const nn::Training training = small_gpt();
  const std::string path = save(training);
  const auto graphs = [&] {
    ProgramGraphs made{.state = training.model_state(), .entries = {}};
    made.entries.push_back(training.logits(3));
    return made;
  };
  const auto cpu = make_cpu_backend();
  State first(*cpu), mapped(*cpu);
  first.declare(graphs().state);
  first.initialize(3);
  Program plain(graphs(), first);
  load_weights(mapped, graphs().state, open_weights(config_, path, observer_));
  Program packs(graphs(), mapped, inference_options());
  EXPECT_EQ(std::count(packs.plan().roles.begin(), packs.plan().roles.end(), StateRole::kPacked),
            1);
  Tensor x(plain.plan().entries[0].inputs[0].type);
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * 7 % 45));
  const auto logits = [&](Program& program) {
    Tensor result(program.plan().entries[0].outputs[0].type);
    program.write(program.input(0, "x"), x.data());
    program.run(0);
    program.read(program.output(0, "logits"), result.data());
    return result;
  };
  const Tensor wanted = logits(plain);
  for (int run = 0; run < 2; ++run) EXPECT_TRUE(logits(packs).same_bits(wanted)) << run;
}

TEST_F(Weights, OfAnotherModelLeaveTheStateAsItWas) {
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const ProgramGraphs graphs = logits_of(training_);
  const auto load = [&](const std::string& path) {
    return user_error(
        [&] { load_weights(state, graphs.state, open_weights(config_, path, observer_)); });
  };
  EXPECT_THAT(load(save("layers.1.bias")), testing::HasSubstr("no tensor 'layers.1.bias'"));
  EXPECT_THAT(load(save("", DType::kF64)),
              testing::HasSubstr("tensor 'head.bias' is f64[3], expected f32[3]"));
  EXPECT_TRUE(state.entries().empty());
  EXPECT_EQ(load(save()), "no error");
  EXPECT_EQ(state.entries().size(), graphs.state.size());
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&device)}) {
    State used(*backend);
    used.declare(std::span(graphs.state).last(1));
    EXPECT_THAT(user_error([&] {
                  const std::string path = (folder_.path() / "weights.safetensors").string();
                  load_weights(used, graphs.state, open_weights(config_, path, observer_));
                }),
                testing::HasSubstr("has a value, and takes none from a file"));
    EXPECT_EQ(used.entries().size(), 1u);
  }
}

}  // namespace
}  // namespace ridge::test
