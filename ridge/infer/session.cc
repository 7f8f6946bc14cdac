#include "ridge/infer/session.h"

#include <algorithm>

#include "ridge/base/cpu/parallel.h"
#include "ridge/infer/program_cache.h"

namespace ridge {
namespace {

// "x f32[B,3] and y i64[B]".
std::string listed(const std::vector<DataSpec>& specs) {
  std::string text;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i > 0) text += i + 1 == specs.size() ? " and " : ", ";
    text += to_string(specs[i]);
  }
  return text;
}

void check_names(const std::vector<DataSpec>& specs, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (std::any_of(
            specs.begin(), specs.end(), [&](const DataSpec& spec) { return spec.name == name; }))
      continue;
    std::vector<std::string> names;
    for (const DataSpec& spec : specs) names.push_back(spec.name);
    throw UserError(fmt::format("the model has no input '{}', only {}", name, listed(specs)),
                    did_you_mean(name, names));
  }
  for (const DataSpec& spec : specs) {
    const auto given = tensors.find(spec.name);
    if (given == tensors.end() || given->second.data() == nullptr)
      throw UserError(fmt::format("input '{}' is missing", spec.name), "give " + listed(specs));
  }
}

[[noreturn]] void refuse(const DataSpec& spec, const TensorType& type, const std::string& what) {
  throw UserError(fmt::format(
      "input '{}' {}; got {}, expected {}", spec.name, what, to_string(type), type_text(spec)));
}

// Adds the sizes that the shape gives to named dimensions.
void bind_shape(const DataSpec& spec, const TensorType& type, Binding& binding) {
  if (type.dtype != spec.dtype) refuse(spec, type, "has another dtype");
  if (type.shape.size() != spec.dims.size()) refuse(spec, type, "has another number of dimensions");
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const Dim& dim = spec.dims[i];
    const int64_t size = type.shape[i];
    if (dim.name.empty()) {
      if (size != dim.size) refuse(spec, type, fmt::format("has another size in dimension {}", i));
      continue;
    }
    if (dim.size > 0 && size > dim.size)
      refuse(spec, type, fmt::format("is too large in '{}'", dim.name));
    if (const int64_t known = binding.emplace(dim.name, size).first->second; known != size)
      refuse(
          spec, type, fmt::format("has another '{}' than {}, which came before", dim.name, known));
  }
}

Binding binding_of(const std::vector<DataSpec>& specs, const NamedTensors& tensors) {
  check_names(specs, tensors);
  Binding binding;
  for (const DataSpec& spec : specs) bind_shape(spec, tensors.at(spec.name).type(), binding);
  return binding;
}

// On the host inputs and outputs lie where the caller has them; also after an error they must be
// there as long as the program is.
void run_program(Program& program,
                 const NamedTensors& inputs,
                 NamedTensors& outputs,
                 bool is_host) {
  const EntryPlan& entry = program.plan().entries.at(0);
  for (const PlanSlot& slot : entry.inputs) {
    const DataSlot to = program.input(0, slot.name);
    if (is_host)
      program.bind_input(to, inputs.at(slot.name).data());
    else
      program.write(to, inputs.at(slot.name).data());
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

Session::Session(LoadedModel model, const SessionOptions& options)
    : model_(std::move(model)),
      inputs_(model_.source->inputs()),
      outputs_(model_.source->outputs()) {
  for (const StateEntry& entry : model_.source->state()) model_.state->buffer(entry.name);
  const size_t programs =
      options.programs > 0 ? options.programs : static_cast<size_t>(num_threads());
  programs_ = std::make_unique<ProgramCache>(
      *model_.source,
      *model_.state,
      ProgramCache::Limits{.bindings = std::max<size_t>(options.bindings, 1),
                           .programs = programs});
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

NamedTensors Session::run(const NamedTensors& inputs) {
  const bool is_host = model_.state->backend().is_host();
  NamedTensors outputs;
  programs_->use(binding_of(inputs_, inputs),
                 [&](Program& program) { run_program(program, inputs, outputs, is_host); });
  return outputs;
}

std::shared_ptr<const Plan> Session::bind(const Binding& binding) {
  std::shared_ptr<const Plan> plan;
  programs_->use(binding,
                 [&](Program& program) { plan = std::make_shared<const Plan>(program.plan()); });
  return plan;
}

}  // namespace ridge
