#include "ridge/graph/model_source.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

void check_datum(const std::vector<DataSpec>& known,
                 const std::string& name,
                 const TensorType& type,
                 const Binding& binding) {
  const auto spec = std::find_if(
      known.begin(), known.end(), [&](const DataSpec& each) { return each.name == name; });
  check_internal(spec != known.end(), "a model source does not say that its graph has '{}'", name);
  check_internal(has_type(*spec, type, binding),
                 "a model source says {}, but its graph has {}",
                 to_string(*spec),
                 to_string(type));
}

// Callers rely on what a source says of its graphs.
void check_graph(const Graph& graph, const ModelSource& source, const ProgramGraphs& program) {
  std::set<std::string_view> state;
  for (const StateEntry& entry : program.state) state.insert(entry.name);
  for (const Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    if (!state.contains(name))
      check_datum(source.inputs(), name, node->outputs[0], graph.binding());
  }
  for (const Output& output : graph.outputs())
    if (output.updates.empty())
      check_datum(source.outputs(), output.name, output.value.type(), graph.binding());
}

}  // namespace

bool has_type(const DataSpec& spec, const TensorType& type, const Binding& binding) {
  if (type.shape.size() != spec.dims.size()) return false;
  Binding sizes = binding;
  for (size_t i = 0; i < spec.dims.size(); ++i) sizes.emplace(spec.dims[i].name, type.shape[i]);
  return type == bound_type(spec, sizes);
}

std::vector<std::string> ModelSource::dims() const {
  std::vector<std::string> names;
  for (const Dim& dim : named_dims(inputs())) names.push_back(dim.name);
  return names;
}

ProgramGraphs ModelSource::bind(const Binding& binding) const {
  const std::vector<std::string> known = dims();
  for (const auto& [name, size] : binding)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(fmt::format("the model has no dimension '{}'", name),
                      did_you_mean(name, known));
  for (const Dim& dim : named_dims(inputs())) {
    const auto given = binding.find(dim.name);
    check(given != binding.end(), "the model needs a size for dimension '{}'", dim.name);
    check(given->second >= 1, "dimension '{}' must be at least 1; got {}", dim.name, given->second);
    check(dim.size == 0 || given->second <= dim.size,
          "dimension '{}' must be at most {}; got {}",
          dim.name,
          dim.size,
          given->second);
  }
  ProgramGraphs graphs = build(binding);
  const std::vector<StateEntry> shared = state();
  graphs.state.insert(graphs.state.begin(), shared.begin(), shared.end());
  graphs.entries.at(0).set_binding(binding);
  check_graph(graphs.entries[0], *this, graphs);
  return graphs;
}

}  // namespace ridge
