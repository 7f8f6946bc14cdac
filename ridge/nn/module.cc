#include "ridge/nn/module.h"

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge::nn {

Tensor initial_value(const ParameterSpec& spec, uint64_t seed) {
  Tensor tensor(spec.type);
  const InitialElements elements(spec.init, seed, spec.name);
  parallel_for(tensor.elements(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) tensor.set(i, elements.at(static_cast<uint64_t>(i)));
  });
  return tensor;
}

std::string pending_name(const std::string& statistic) { return statistic + ".pending"; }

ModuleContext::Scope::Scope(ModuleContext& context, std::string_view name)
    : context_(context), length_(context.path_.size()), sites_(context.graph_, name) {
  if (!context.path_.empty()) context.path_ += '.';
  context.path_ += name;
}

std::string ModuleContext::full_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

Value ModuleContext::parameter(std::string_view name, Shape shape, Initializer init) {
  const bool decay = shape.size() >= 2;
  parameters_.push_back({full_name(name), {dtype_, std::move(shape)}, init, decay});
  const ParameterSpec& spec = parameters_.back();
  parameter_values_.push_back(input(graph_, spec.name, spec.type));
  return parameter_values_.back();
}

Value ModuleContext::statistic(std::string_view name, Shape shape, double initial) {
  statistics_.push_back({full_name(name), {dtype_, std::move(shape)}, initial});
  const auto& [full, type, first] = statistics_.back();
  const Value before = input(graph_, full, type);
  return mode_.pending ? before + input(graph_, pending_name(full), type) : before;
}

void ModuleContext::update_statistic(Value statistic, Value new_value) {
  const Node& node = mode_.pending ? *statistic.node->inputs[0].node : *statistic.node;
  updates_.push_back({node.op_as<Input>().input_name, statistic, new_value});
}

Value ModuleContext::rng() {
  if (!rng_) rng_ = input(graph_, "rng", {DType::kI64, {3}});
  return rng_;
}

}  // namespace ridge::nn
