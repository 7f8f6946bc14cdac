// Small models of each kind, with values that no layer leaves out, and how they run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/model_session.h"
#include "ridge/io/safetensors.h"
#include "ridge/nn/logits_source.h"
#include "ridge/run/state.h"

namespace ridge::test {

/// A model and its values by name.
struct SmallModel {
  nn::ModelKind kind{};
  std::shared_ptr<const ModelSource> source = {};
  std::map<std::string, Tensor> values = {};

  std::vector<TensorView> views() const {
    std::vector<TensorView> views;
    for (const auto& [name, value] : values) views.push_back({name, value.type(), value.data()});
    return views;
  }
  SafetensorsView weights() const { return {views(), TextMap(), "weights"}; }
  /// The outputs as Ridge has them.
  NamedTensors run(const NamedTensors& inputs) const {
    LoadedModel model{
        .source = source, .state = make_state(make_cpu_backend()), .weights = "small values"};
    model.state->declare(source->state());
    for (const auto& [name, value] : values) model.state->write(name, value);
    return ModelSession(std::move(model)).run(inputs);
  }
};

inline nn::ModelOptions small_options(const std::string& name) {
  nn::ModelOptions options;
  options.mlp = {.hidden = {16, 12}, .outputs = 4, .dropout = 0.1};
  options.cnn = {.widths = {4, 8}, .blocks = 1, .outputs = 4, .batch_norm = name == "cnn"};
  options.resnet18 = {
      .outputs = 4,
      .width = 8,
      .stem = name == "resnet18 of imagenet" ? nn::Stem::kImageNet : nn::Stem::kCifar};
  options.mobilenetv2 = {.outputs = 4, .multiplier = 0.25};
  options.gpt = {.vocab = 11, .context = 12, .layers = 2, .heads = 2, .width = 16, .dropout = 0.1};
  options.kind = parse_name<nn::ModelKind>(name.substr(0, name.find(' '))).value();
  return options;
}

/// The names that small_model() knows.
inline const std::vector<std::string> kSmallModels = {
    "mlp", "cnn", "cnn without norm", "resnet18", "resnet18 of imagenet", "mobilenetv2", "gpt"};

inline SmallModel small_model(const std::string& name, const nn::ModelOptions& options) {
  nn::SampleTypes sample{{DType::kF32, {16, 16, 3}}, {DType::kI64, {}}};
  if (options.kind == nn::ModelKind::kMlp) sample.x = {DType::kU8, {5, 4}};
  if (name == "cnn") sample.x = {DType::kF32, {8, 8}};  // of one channel
  if (options.kind == nn::ModelKind::kGpt) sample = {{DType::kI64, {8}}, {DType::kI64, {8}}};
  const nn::Training training(nn::make_model(options, sample), {});
  SmallModel model{.kind = options.kind,
                   .source = std::make_shared<const nn::LogitsSource>(training)};
  std::mt19937_64 random(7);
  for (const StateEntry& entry : model.source->state()) {
    Tensor value = nn::initial_value({entry.name, entry.type, entry.init}, 3);
    const auto fill = [&](double low, double high) {
      std::uniform_real_distribution<double> numbers(low, high);
      for (int64_t i = 0; i < value.elements(); ++i) value.set(i, numbers(random));
    };
    if (entry.name.ends_with("variance") || entry.name.ends_with("scale")) fill(0.5, 1.5);
    if (entry.name.ends_with("mean") || entry.name.ends_with("shift") ||
        entry.name.ends_with("bias"))
      fill(-0.3, 0.3);
    model.values.emplace(entry.name, std::move(value));
  }
  return model;
}

inline SmallModel small_model(const std::string& name) {
  return small_model(name, small_options(name));
}

/// Data for a model's inputs at those sizes.
inline NamedTensors data_for(const std::vector<DataSpec>& inputs,
                             const Binding& binding,
                             int64_t below = 11) {
  std::mt19937_64 random(5);
  NamedTensors data;
  for (const DataSpec& spec : inputs) {
    Tensor tensor(bound_type(spec, binding));
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double share = static_cast<double>(random() >> 11) * 0x1p-53;
      tensor.set(
          i,
          is_float(spec.dtype)
              ? 4 * share - 2
              : static_cast<double>(static_cast<int64_t>(share * static_cast<double>(below))));
    }
    data.emplace(spec.name, std::move(tensor));
  }
  return data;
}

/// A model without state: a graph by hand.
class BuiltSource final : public ModelSource {
 public:
  using Build = std::function<Value(Graph&, const Binding&)>;
  BuiltSource(std::vector<DataSpec> inputs, DataSpec output, Build build)
      : inputs_(std::move(inputs)), output_(std::move(output)), build_(std::move(build)) {}

  std::vector<DataSpec> inputs() const override { return inputs_; }
  std::vector<DataSpec> outputs() const override { return {output_}; }
  std::vector<StateEntry> state() const override { return {}; }

 private:
  ProgramGraphs build(const Binding& binding) const override {
    Graph graph;
    const Value y = build_(graph, binding);
    graph.add_output(output_.name, y);
    return only_entry(std::move(graph));
  }

  std::vector<DataSpec> inputs_;
  DataSpec output_;
  Build build_;
};

}  // namespace ridge::test
