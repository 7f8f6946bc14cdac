// A program that updates many parameters: their gradients (parts of its data), the norm of those,
// clipping and AdamW, as training has them.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/nn/optimizer.h"
#include "ridge/run/program.h"

namespace ridge::test {

/// The shapes of the parameters; the one with a single element is taken by no list.
inline const std::vector<Shape>& parameter_shapes() {
  static const std::vector<Shape> shapes = {
      {64, 33}, {64}, {4097}, {3}, {2}, {1}, {17, 5}, {1, 300}, {2048, 2}, {7, 1, 9}};
  return shapes;
}

inline int64_t parameter_elements() {
  int64_t all = 0;
  for (const Shape& shape : parameter_shapes()) all += numel(shape);
  return all;
}

/// Entry "step" (data, hyper -> norm) over p0, p0.m, p0.v, p1 and so on. Parameters of several axes
/// decay; with `has_copies` each has a copy in bf16, and each second one is bf16 itself. A norm
/// that is not finite leaves all as it is.
inline ProgramGraphs many_parameters(bool has_copies = false) {
  nn::OptimizerOptions options;
  options.kind = nn::OptimizerKind::kAdamW;
  options.weight_decay = 0.1;
  ProgramGraphs graphs;
  Graph step("step");
  const Value data = input(step, "data", {DType::kF32, {parameter_elements()}});
  const Value hyper = input(step, "hyper", {DType::kF32, {nn::kStepScalars}});
  const auto state = [&](const std::string& name, TensorType type, StateRole role) {
    graphs.state.push_back({name, type, role});
    return input(step, name, type);
  };
  std::vector<nn::ParameterUpdate> updates;
  std::vector<Value> gradients;
  int64_t begin = 0;
  for (size_t i = 0; i < parameter_shapes().size(); ++i) {
    const Shape& shape = parameter_shapes()[i];
    const std::string name = fmt::format("p{}", i);
    nn::ParameterUpdate update;
    update.parameter = state(name, {DType::kF32, shape}, StateRole::kParameter);
    for (const std::string& moment : nn::moment_names(options, name))
      update.moments.push_back(state(moment, {DType::kF32, shape}, StateRole::kOptimizer));
    update.decay = shape.size() > 1;
    gradients.push_back(reshape(slice(data, 0, begin, begin + numel(shape)), shape));
    begin += numel(shape);
    updates.push_back(std::move(update));
  }
  const SiteScope scope(step, "optimizer");
  const Value norm = nn::global_norm(gradients);
  const Value is_fine = is_finite(norm), factor = nn::clip_coefficient(norm, 1.0);
  step.add_output("norm", norm);
  for (size_t i = 0; i < updates.size(); ++i) {
    nn::ParameterUpdate& update = updates[i];
    const Shape& shape = parameter_shapes()[i];
    const std::string name = fmt::format("p{}", i);
    const SiteScope own(step, name);
    update.gradient = gradients[i] * broadcast(factor, shape);
    const nn::UpdatedParameter next = nn::update_parameter(options, update, nn::split_hyper(hyper));
    const auto kept = [&](Value made, Value old) {
      return where(broadcast(is_fine, shape), made, old);
    };
    const Value parameter = kept(next.parameter, update.parameter);
    step.add_output(name + ".new", parameter, name);
    const char* const moments[] = {".m", ".v"};
    for (size_t k = 0; k < 2; ++k)
      step.add_output(
          name + moments[k] + ".new", kept(next.moments[k], update.moments[k]), name + moments[k]);
    if (!has_copies) continue;
    state(name + ".copy", {DType::kBF16, shape}, StateRole::kStatistic);
    step.add_output(name + ".copy.new", cast(parameter, DType::kBF16), name + ".copy");
  }
  graphs.entries.push_back(std::move(step));
  return graphs;
}

/// Runs steps on data of their numbers; in step `wrong_step` an element is infinite. Gives the norm
/// of each step and the state at the end.
struct ManyRun {
  std::vector<float> norms;
  NamedTensors state;
};
inline ManyRun run_many(Program& program, int64_t steps, int64_t wrong_step = -1) {
  const auto fill = [](Tensor& tensor, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  };
  uint64_t seed = 100;
  for (const PlanSlot& slot : program.plan().state) {
    Tensor tensor(slot.type);
    if (slot.name.find('.') == std::string::npos) fill(tensor, seed++);
    program.state().write(slot.name, tensor);
  }
  ManyRun run;
  const size_t entry = program.entry("step");
  Tensor data({DType::kF32, {parameter_elements()}});
  for (int64_t step = 0; step < steps; ++step) {
    fill(data, static_cast<uint64_t>(step));
    if (step == wrong_step) data.set(70, HUGE_VAL);
    const Tensor hyper = nn::hyper_tensor(
        nn::step_scalars({.kind = nn::OptimizerKind::kAdamW, .lr = 0.01}, {}, step, steps),
        DType::kF32);
    program.write(program.input(entry, "data"), data.data());
    program.write(program.input(entry, "hyper"), hyper.data());
    program.run(entry);
    float norm = 0;
    program.read(program.output(entry, "norm"), &norm);
    program.synchronize();
    run.norms.push_back(norm);
  }
  for (const PlanSlot& slot : program.plan().state)
    run.state.emplace(slot.name, program.state().read(slot.name));
  return run;
}

}  // namespace ridge::test
