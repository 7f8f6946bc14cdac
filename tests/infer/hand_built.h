// A model that no configuration describes: inputs and outputs of several names and dtypes, which
// share dimensions.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include "ridge/graph/model_source.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/weights.h"

namespace ridge::test {

class HandBuilt final : public ModelSource {
 public:
  static constexpr int64_t kWords = 20, kLongest = 12, kFew = 100;
  /// A size for which there is no graph.
  static constexpr int64_t kBadSize = 13;

  std::vector<DataSpec> inputs() const override {
    return {{"image", DType::kU8, {"N", 6, 5}},
            {"words", DType::kI32, {"N", {"L", kLongest}}},
            {"keep", DType::kBool, {"N"}},
            {"scale", DType::kF64, {}}};
  }
  std::vector<DataSpec> outputs() const override {
    return {{"score", DType::kF32, {"N", 4}},
            {"best", DType::kI64, {"N"}},
            {"dropped", DType::kBool, {"N"}}};
  }
  std::vector<StateEntry> state() const override {
    const Initializer normal = Initializer::normal(0.5);
    return {{"image.w", {DType::kF32, {40, 30}}, StateRole::kParameter, normal},
            {"words.table", {DType::kF32, {kWords, 40}}, StateRole::kParameter, normal},
            {"head.w", {DType::kF32, {40, 4}}, StateRole::kParameter, normal},
            {"head.shift", {DType::kF32, {4}}, StateRole::kStatistic, Initializer::ones()}};
  }

  mutable std::atomic<int> built = 0;  ///< Graphs so far.

 private:
  ProgramGraphs build(const Binding& binding) const override {
    ++built;
    const int64_t n = binding.at("N");
    check(n != kBadSize, "nobody knows a graph for {} samples", n);
    Graph g("score");
    const Value image = input(g, "image", {DType::kU8, {n, 6, 5}}, 0);
    const Value words = input(g, "words", {DType::kI32, {n, binding.at("L")}}, 0);
    const Value keep = input(g, "keep", {DType::kBool, {n}}, 0);
    const Value scale = input(g, "scale", {DType::kF64, {}});
    std::vector<Value> state_values;
    for (const StateEntry& entry : state())
      state_values.push_back(input(g, entry.name, entry.type));
    const Value x = reshape(cast(image, DType::kF32) / 255.0, {n, 30});
    const Value w = state_values[0];
    // Products have packed weights, and are for many samples.
    const Value seen =
        n > kFew ? matmul(x, w, false, true) : reduce_sum(reshape(x, {n, 1, 30}) * w, {2});
    const Value read = reduce_mean(embedding(state_values[1], words), {1});
    const Value all = matmul(tanh(seen + read), state_values[2]) + state_values[3];
    const Value kept = where(reshape(keep, {n, 1}), all, constant_like(all, 0.0));
    const Value score = kept * cast(scale, DType::kF32);
    g.add_output("score", score);
    g.add_output("best", argmax(score, 1));
    g.add_output("dropped", logical_not(keep));
    return only_entry(std::move(g));
  }
};

/// The model with first values on `backend`.
inline LoadedModel hand_built(std::unique_ptr<Backend> backend) {
  LoadedModel model{.source = std::make_shared<const HandBuilt>(),
                    .state = make_state(std::move(backend)),
                    .weights = "first values"};
  model.state->declare(model.source->state());
  model.state->initialize(3);
  return model;
}

/// Data for it.
inline NamedTensors hand_built_data(int64_t n, int64_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  NamedTensors data;
  const auto add = [&](const char* name, TensorType type, uint64_t below) {
    Tensor& tensor = data[name] = Tensor(std::move(type));
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, static_cast<double>(random() % below));
  };
  add("image", {DType::kU8, {n, 6, 5}}, 256);
  add("words", {DType::kI32, {n, length}}, HandBuilt::kWords);
  add("keep", {DType::kBool, {n}}, 2);
  add("scale", {DType::kF64, {}}, 5);
  return data;
}

/// The results of a program made for it alone, from data that are copied, and without packed
/// weights.
inline NamedTensors run_alone(const LoadedModel& model,
                              const Binding& binding,
                              const NamedTensors& data) {
  Program program(model.source->bind(binding), *model.state);
  for (const auto& [name, tensor] : data) program.write(program.input(0, name), tensor.data());
  program.run(0);
  NamedTensors results;
  for (const PlanSlot& slot : program.plan().entries[0].outputs) {
    Tensor& result = results[slot.name] = Tensor(slot.type);
    program.read(program.output(0, slot.name), result.data());
  }
  program.synchronize();
  return results;
}

}  // namespace ridge::test
