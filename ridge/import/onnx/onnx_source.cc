#include "ridge/import/onnx/onnx_source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ridge/graph/batch_flow.h"
#include "ridge/import/onnx/import_context.h"

namespace ridge {
namespace {

// Least sizes of dimensions that are tried: few, and multiples of what models divide images by.
constexpr int64_t kLeastSizes[] = {2, 64};
// Each takes an import.
constexpr size_t kMostDims = 8;

// Graphs for one binding, and for each dimension that with twice its size.
struct Samples {
  Graph graph;
  std::map<std::string, Graph> doubled = {};
};

Graph graph_for(const OnnxModel& model, const Binding& binding) {
  return std::move(model.import(binding).entries[0]);
}

Samples samples_of(const OnnxModel& model, const std::set<std::string>& dims, int64_t least) {
  Binding binding;
  for (const std::string& dim : dims)
    binding.emplace(dim, least * (1 + static_cast<int64_t>(binding.size())));
  Samples samples{graph_for(model, binding)};
  for (const std::string& dim : dims) {
    Binding other = binding;
    other[dim] *= 2;
    samples.doubled.emplace(dim, graph_for(model, other));
  }
  return samples;
}

// A size that follows from others otherwise than by being one of them.
Dim own_dim(const std::string& output, size_t axis) { return fmt::format("{}.{}", output, axis); }

Dim dim_of(const Samples& samples, size_t output, size_t axis) {
  const Output& given = samples.graph.outputs()[output];
  const int64_t size = given.value.shape()[axis];
  std::vector<std::string> follows;
  bool is_that_size = true;
  for (const auto& [dim, graph] : samples.doubled) {
    const int64_t other = graph.outputs()[output].value.shape()[axis];
    if (other == size) continue;
    follows.push_back(dim);
    is_that_size = size == samples.graph.binding().at(dim) && other == 2 * size;
  }
  if (follows.empty()) return size;
  return follows.size() == 1 && is_that_size ? Dim(follows[0]) : own_dim(given.name, axis);
}

std::vector<DataSpec> specs_of(const Samples& samples) {
  std::vector<DataSpec> specs;
  for (size_t i = 0; i < samples.graph.outputs().size(); ++i) {
    const Output& output = samples.graph.outputs()[i];
    const TensorType& type = output.value.type();
    for (const auto& [dim, graph] : samples.doubled)
      check(graph.outputs()[i].value.type().rank() == type.rank(),
            "output '{}' has more dimensions where '{}' is larger",
            output.name,
            dim);
    DataSpec spec{output.name, type.dtype, {}};
    for (size_t axis = 0; axis < type.shape.size(); ++axis)
      spec.dims.push_back(dim_of(samples, i, axis));
    specs.push_back(std::move(spec));
  }
  return specs;
}

// Whether row i of each output that begins with the dimension of samples depends on sample i alone.
bool has_separate_samples(const Samples& samples,
                          const std::vector<DataSpec>& specs,
                          const std::string& dim) {
  const int64_t size = samples.graph.binding().at(dim);
  const auto build = [&](int64_t batch) {
    return batch == size ? samples.graph.clone() : samples.doubled.at(dim).clone();
  };
  const BatchReport report = analyze_batch(build, size);
  if (report.flows.empty()) return false;  // the graphs are of another structure
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].dims.empty() || specs[i].dims[0].name != dim) continue;
    const Value& value = samples.graph.outputs()[i].value;
    if (!report.flows[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)]
             .is_split_on(0))
      return false;
  }
  return true;
}

std::vector<DataSpec> outputs_of(const OnnxModel& model) {
  std::set<std::string> dims;
  for (const DataSpec& input : model.inputs())
    for (const Dim& dim : input.dims)
      if (!dim.name.empty()) dims.insert(dim.name);
  if (dims.empty()) return specs_of(samples_of(model, dims, 1));
  std::optional<Samples> samples;
  std::vector<DataSpec> specs;
  for (const int64_t least : kLeastSizes) {
    if (samples || dims.size() > kMostDims) break;
    try {
      Samples those = samples_of(model, dims, least);
      specs = specs_of(those);
      samples = std::move(those);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const onnx::UnsupportedModel&) {
      throw;
    } catch (const UserError&) {
      // Not every size suits every model.
    }
  }
  if (!samples) return model.declared_outputs();
  const std::string& batch = model.batch_dim();
  const bool is_separate = !batch.empty() && has_separate_samples(*samples, specs, batch);
  for (DataSpec& spec : specs) {
    if (spec.dims.empty() || spec.dims[0].name.empty()) continue;
    if (!is_separate || spec.dims[0].name != batch) spec.dims[0] = own_dim(spec.name, 0);
  }
  return specs;
}

}  // namespace

OnnxSource::OnnxSource(OnnxModel model, ConvNorms norms)
    : model_(std::move(model)), norms_(norms), outputs_(outputs_of(model_)) {}

ProgramGraphs OnnxSource::build(const Binding& binding) const {
  ProgramGraphs graphs = model_.import(binding, {}, norms_);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = graphs.entries[0].outputs().at(i);
    check(has_type(outputs_[i], output.value.type(), binding),
          "{}: output '{}' is {} for inputs of these sizes; for others it is {}",
          model_.name(),
          output.name,
          to_string(output.value.type()),
          type_text(outputs_[i]));
  }
  return graphs;
}

}  // namespace ridge
