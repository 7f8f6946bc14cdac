#include "ridge/infer/model_session.h"

#include <algorithm>

#include "ridge/base/cpu/parallel.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/infer/program_cache.h"

namespace ridge {
namespace {

Binding binding_of(const std::vector<DataSpec>& specs, const NamedInputs& tensors) {
  for (const auto& [name, tensor] : tensors) find_input(specs, name);
  for (const DataSpec& spec : specs) {
    const auto given = tensors.find(spec.name);
    if (given == tensors.end() || given->second.data == nullptr) refuse_missing(specs, spec.name);
  }
  Binding binding;
  for (const DataSpec& spec : specs) bind_input(spec, tensors.at(spec.name).type, binding);
  return binding;
}

// On the host inputs and outputs lie where the caller has them; also after an error they must be
// there as long as the program is.
void run_program(Program& program, const NamedInputs& inputs, NamedTensors& outputs, bool is_host) {
  const EntryPlan& entry = program.plan().entries.at(0);
  for (const PlanSlot& slot : entry.inputs) {
    const DataSlot to = program.input(0, slot.name);
    if (is_host)
      program.bind_input(to, inputs.at(slot.name).data);
    else
      program.write(to, inputs.at(slot.name).data);
  }
  for (const PlanSlot& slot : entry.outputs) {
    Tensor& output = outputs.emplace(slot.name, Tensor(slot.type)).first->second;
    if (is_host) program.bind_output(program.output(0, slot.name), output.data());
  }
  program.run(0);
  if (!is_host)
    for (auto& [name, output] : outputs) program.read(program.output(0, name), output.data());
  program.synchronize();
}

}  // namespace

ModelSession::ModelSession(LoadedModel model, const ProgramLimits& limits)
    : model_(std::move(model)),
      inputs_(model_.source->inputs()),
      outputs_(model_.source->outputs()) {
  for (const StateEntry& entry : model_.source->state()) model_.state->buffer(entry.name);
  const size_t programs =
      limits.programs > 0 ? limits.programs : static_cast<size_t>(num_threads());
  programs_ = std::make_unique<ProgramCache>(
      *model_.source,
      *model_.state,
      ProgramCache::Limits{.bindings = std::max<size_t>(limits.bindings, 1), .programs = programs},
      limits.tune,
      limits.choices);
}

ModelSession::~ModelSession() = default;
ModelSession::ModelSession(ModelSession&&) noexcept = default;

PickCounts ModelSession::picks() const { return programs_->picks(); }

NamedTensors ModelSession::run(const NamedInputs& inputs) {
  const bool is_host = model_.state->backend().is_host();
  NamedTensors outputs;
  programs_->use(binding_of(inputs_, inputs),
                 [&](Program& program) { run_program(program, inputs, outputs, is_host); });
  return outputs;
}

NamedTensors ModelSession::run(const NamedTensors& inputs) {
  NamedInputs views;
  for (const auto& [name, tensor] : inputs) views[name] = {tensor.type(), tensor.data()};
  return run(views);
}

std::shared_ptr<const Plan> ModelSession::bind(const Binding& binding) {
  std::shared_ptr<const Plan> plan;
  programs_->use(binding,
                 [&](Program& program) { plan = std::make_shared<const Plan>(program.plan()); });
  return plan;
}

void ModelSession::inspect(const Binding& binding, FunctionRef<void(const Program&)> body) {
  programs_->use(binding, [&](Program& program) { body(program); });
}

}  // namespace ridge
