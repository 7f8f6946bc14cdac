#include "ridge/import/onnx/onnx_model.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>

#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/import_context.h"
#include "ridge/import/onnx/op_table.h"

namespace ridge {
namespace {

void check_versions(const onnx::ModelProto& model, const std::string& name) {
  const auto own = model.opsets.find("");
  check(own != model.opsets.end() || !model.opsets.empty(),
        "{}: the model does not say which operators it uses",
        name);
  if (own == model.opsets.end()) return;
  check(own->second >= onnx::kOldestOpset && own->second <= onnx::kNewestOpset,
        "{}: its operators are of version {}; {} to {} are read",
        name,
        own->second,
        onnx::kOldestOpset,
        onnx::kNewestOpset);
}

}  // namespace

struct OnnxModel::Parsed {
  Parsed(std::string source, Bytes bytes, onnx::ElementFiles files)
      : name(std::move(source)), model(onnx::parse_model(bytes, name)), elements(std::move(files)) {
    check_versions(model, name);
    try {
      elements.check_files(onnx::external_tensors(model));
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", name, error.message()), error.fix());
    }
  }

  std::string name;  ///< Messages name the model by it.
  onnx::ModelProto model;
  onnx::ModelElements elements;
};

OnnxModel::OnnxModel(const std::filesystem::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  parsed_ = std::make_unique<Parsed>(path.string(), file->bytes(), onnx::ElementFiles(path, file));
  read_inputs();
}

OnnxModel::OnnxModel(Bytes bytes,
                     std::shared_ptr<const void> owner,
                     std::string name,
                     const std::filesystem::path& beside)
    : parsed_(std::make_unique<Parsed>(
          std::move(name), bytes, onnx::ElementFiles(beside, std::move(owner)))) {
  read_inputs();
}

OnnxModel::~OnnxModel() = default;
OnnxModel::OnnxModel(OnnxModel&&) noexcept = default;

const std::string& OnnxModel::name() const { return parsed_->name; }

namespace {

// The declaration of an input or output, but for its sizes.
DataSpec spec_of(const onnx::ValueInfo& info, const std::string& who) {
  check(!info.name.empty(), "{} has no name", who);
  const auto dtype = onnx::dtype_of_onnx(info.element_type);
  check(dtype.has_value(),
        "{}: {} is not supported",
        who,
        info.element_type == 0 ? "what is no tensor"
                               : "dtype " + onnx::onnx_type_name(info.element_type));
  check(info.has_shape, "{}: the model does not say how many dimensions it has", who);
  check(info.dims.size() <= kMaxRank,
        "{}: it has {} dimensions; at most {} are supported",
        who,
        info.dims.size(),
        kMaxRank);
  DataSpec spec{info.name, *dtype, {}};
  for (size_t axis = 0; axis < info.dims.size(); ++axis)
    spec.dims.emplace_back(fmt::format("{}.{}", info.name, axis));
  return spec;
}

}  // namespace

void OnnxModel::read_inputs() {
  const onnx::GraphProto& graph = parsed_->model.graph;
  std::set<std::string> names;
  for (const onnx::TensorProto& tensor : graph.initializers) names.insert(tensor.name);
  const std::set<std::string> initialized = names;
  for (const onnx::ValueInfo& info : graph.inputs) {
    if (initialized.contains(info.name)) continue;
    check(
        names.insert(info.name).second, "{}: two inputs are named '{}'", parsed_->name, info.name);
    DataSpec input = spec_of(info, fmt::format("{}: input '{}'", parsed_->name, info.name));
    for (size_t axis = 0; axis < info.dims.size(); ++axis) {
      const onnx::DimProto& dim = info.dims[axis];
      if (!dim.name.empty())
        input.dims[axis] = dim.name;
      else if (dim.value > 0)
        input.dims[axis] = dim.value;
    }
    inputs_.push_back(std::move(input));
  }
  read_batch_dim();
}

void OnnxModel::read_batch_dim() {
  std::set<std::string> elsewhere;
  for (const DataSpec& input : inputs_)
    for (size_t axis = 1; axis < input.dims.size(); ++axis) elsewhere.insert(input.dims[axis].name);
  for (const DataSpec& input : inputs_) {
    if (input.dims.empty() || input.dims[0].name.empty()) continue;
    if (!elsewhere.contains(input.dims[0].name)) batch_dim_ = input.dims[0].name;
    return;
  }
}

std::vector<std::string> OnnxModel::outputs() const {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& output : parsed_->model.graph.outputs) names.push_back(output.name);
  return names;
}

std::vector<DataSpec> OnnxModel::declared_outputs() const {
  std::vector<DataSpec> specs;
  for (const onnx::ValueInfo& output : parsed_->model.graph.outputs)
    specs.push_back(spec_of(output, fmt::format("{}: output '{}'", parsed_->name, output.name)));
  return specs;
}

namespace {

// Sizes of an input; `binding` may lack names where the input's value is given.
Shape bound_shape(const DataSpec& input, const Binding& binding, const std::string& model) {
  Shape shape;
  for (const Dim& dim : input.dims) {
    if (dim.name.empty()) {
      shape.push_back(dim.size);
      continue;
    }
    const auto found = binding.find(dim.name);
    check(found != binding.end(), "{}: dimension '{}' has no size", model, dim.name);
    check(found->second >= 1,
          "{}: dimension '{}' must be at least 1; got {}",
          model,
          dim.name,
          found->second);
    shape.push_back(found->second);
  }
  return shape;
}

// The inputs as the nodes see them.
std::map<std::string, onnx::DatumPtr> input_data(const OnnxModel& model,
                                                 Graph& graph,
                                                 const Binding& binding,
                                                 const NamedTensors& fixed) {
  std::map<std::string, onnx::DatumPtr> data;
  for (const DataSpec& each : model.inputs()) {
    const auto given = fixed.find(each.name);
    if (given == fixed.end()) {
      const bool has_batch = !each.dims.empty() && !each.dims[0].name.empty() &&
                             each.dims[0].name == model.batch_dim();
      const TensorType type{each.dtype, bound_shape(each, binding, model.name())};
      data[each.name] =
          onnx::make_datum(each.name, input(graph, each.name, type, has_batch ? 0 : -1));
      continue;
    }
    check(given->second.type().dtype == each.dtype &&
              given->second.type().shape.size() == each.dims.size(),
          "{}: the value of input '{}' is {}; expected {}",
          model.name(),
          each.name,
          to_string(given->second.type()),
          type_text(each));
    data[each.name] = onnx::make_datum(each.name, onnx::Known(given->second));
  }
  return data;
}

void check_fixed(const OnnxModel& model, const NamedTensors& fixed) {
  std::vector<std::string> inputs;
  for (const DataSpec& input : model.inputs()) inputs.push_back(input.name);
  for (const auto& [name, value] : fixed)
    if (std::find(inputs.begin(), inputs.end(), name) == inputs.end())
      throw UserError(fmt::format("{}: it has no input '{}'", model.name(), name),
                      did_you_mean(name, inputs));
}

}  // namespace

ProgramGraphs OnnxModel::import(const Binding& binding,
                                const NamedTensors& fixed,
                                ConvNorms norms) const {
  const std::string& name = parsed_->name;
  check_fixed(*this, fixed);
  Graph graph("main");
  graph.set_binding(binding);
  onnx::ImportContext context(parsed_->model, parsed_->elements, graph, norms);
  onnx::Scope scope{.opsets = &parsed_->model.opsets};
  scope.values = input_data(*this, graph, binding, fixed);
  std::vector<onnx::DatumPtr> outputs;
  try {
    outputs = context.import_graph(parsed_->model.graph, scope);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(fmt::format("{}: there is not the memory to import it", name));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", name, error.message()), error.fix());
  }
  context.check_refusals(name);
  check(!outputs.empty(), "{}: the model has no outputs", name);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = parsed_->model.graph.outputs[i].name;
    check(!output.empty(), "{}: an output has no name", name);
    graph.add_output(output, context.value(*outputs[i]));
  }
  ProgramGraphs program = only_entry(std::move(graph));
  program.state = context.state();
  return program;
}

}  // namespace ridge
