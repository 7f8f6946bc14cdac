#include "tests/import/run_model.h"

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/graph/verify.h"
#include "ridge/run/program.h"

namespace ridge::test {
namespace {

Binding binding_of(const OnnxModel& model, const NamedTensors& inputs) {
  Binding binding;
  for (const DataSpec& input : model.inputs()) {
    const auto given = inputs.find(input.name);
    if (given == inputs.end()) continue;
    const Shape& shape = given->second.type().shape;
    for (size_t i = 0; i < input.dims.size() && i < shape.size(); ++i)
      if (!input.dims[i].name.empty()) binding[input.dims[i].name] = shape[i];
  }
  return binding;
}

}  // namespace

OnnxModel model_of(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return {as_bytes(*kept), kept, "model"};
}

NamedTensors run_model(const OnnxModel& model,
                       const NamedTensors& inputs,
                       const NamedTensors& fixed,
                       ConvNorms norms) {
  ProgramGraphs graphs = model.import(binding_of(model, inputs), fixed, norms);
  verify(graphs.entries[0]);
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  Program program(std::move(graphs), state);
  for (const auto& [name, tensor] : inputs)
    if (program.entries()[0].find_input(name) != nullptr)
      program.write(program.input(0, name), tensor.data());
  program.run(0);
  NamedTensors outputs;
  for (const PlanSlot& slot : program.plan().entries[0].outputs) {
    Tensor tensor(slot.type);
    program.read(program.output(0, slot.name), tensor.data());
    program.synchronize();
    outputs.emplace(slot.name, std::move(tensor));
  }
  return outputs;
}

Tensor tensor_of(TensorType type, const std::vector<double>& elements) {
  Tensor tensor(std::move(type));
  for (size_t i = 0; i < elements.size(); ++i) tensor.set(static_cast<int64_t>(i), elements[i]);
  return tensor;
}

std::vector<double> elements_of(const Tensor& tensor) {
  std::vector<double> elements;
  for (int64_t i = 0; i < tensor.elements(); ++i) elements.push_back(tensor.at(i));
  return elements;
}

}  // namespace ridge::test
