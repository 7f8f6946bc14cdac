#include "ridge/compress/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/weights.h"
#include "ridge/run/observer.h"
#include "ridge/run/state.h"

namespace ridge::compress {
namespace {

std::map<std::string, Shape> shapes_of(const NamedTensors& sample) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : sample) shapes[name] = tensor.type().shape;
  return shapes;
}

OnnxModel imported(const EditableModel& model,
                   const NamedTensors& sample,
                   const std::vector<std::string>& more_outputs) {
  const auto bytes =
      std::make_shared<const std::string>(model.bytes_to_run(shapes_of(sample), more_outputs));
  return {as_bytes(*bytes), bytes, model.name(), model.path()};
}

// Those of `names` that are no outputs of the model already.
std::vector<std::string> not_outputs(const EditableModel& model,
                                     const std::set<std::string>& names) {
  std::vector<std::string> more;
  for (const std::string& name : names)
    if (std::ranges::find(model.outputs(), name, &onnx::ValueInfo::name) == model.outputs().end())
      more.push_back(name);
  return more;
}

// Sums of one value over all samples so far.
struct Sums {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::map<int64_t, std::vector<double>> channels = {};
  std::map<int64_t, double> counts = {};  // of elements of each channel
};

// False where a value is not finite.
bool add_range(std::span<const float> values, Range& range) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
    range.least = std::min(range.least, static_cast<double>(value));
    range.most = std::max(range.most, static_cast<double>(value));
  }
  return true;
}

void add_channels(const Tensor& tensor, int64_t axis, Sums& sums) {
  const Shape& shape = tensor.type().shape;
  const auto at = axis < 0 ? shape.size() - 1 : static_cast<size_t>(axis);
  check_internal(at < shape.size(), "[calibrate] no axis {}", axis);
  int64_t inner = 1;
  for (size_t i = at + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<double>& channels = sums.channels[axis];
  channels.resize(static_cast<size_t>(shape[at]));
  const std::span<const float> values = tensor.span<float>();
  for (size_t i = 0; i < values.size(); ++i)
    channels[static_cast<size_t>(static_cast<int64_t>(i) / inner % shape[at])] +=
        static_cast<double>(values[i]);
  sums.counts[axis] += static_cast<double>(tensor.elements()) / static_cast<double>(shape[at]);
}

}  // namespace

SampleRunner::SampleRunner(const EditableModel& model,
                           const NamedTensors& sample,
                           const std::vector<std::string>& more_outputs) {
  TrainObserver nobody;
  session_ = std::make_unique<ModelSession>(
      LoadedModel{
          .source = std::make_shared<const OnnxSource>(imported(model, sample, more_outputs)),
          .state = make_state(open_backend("cpu", nobody)),
          .weights = model.name()},
      ProgramLimits{.bindings = 1, .programs = 1});
}

SampleOutputs outputs_on(const EditableModel& model, const std::vector<NamedTensors>& samples) {
  SampleRunner runner(model, samples.at(0));
  SampleOutputs outputs;
  for (const NamedTensors& sample : samples) outputs.push_back(runner.run(sample));
  return outputs;
}

std::map<std::string, TensorType> types_of(const EditableModel& model,
                                           const NamedTensors& sample,
                                           const std::set<std::string>& values) {
  const OnnxModel whole = imported(model, sample, not_outputs(model, values));
  const ProgramGraphs graphs = whole.import({});
  std::map<std::string, TensorType> types;
  for (const Output& output : graphs.entries.at(0).outputs())
    if (values.contains(output.name)) types.emplace(output.name, output.value.type());
  return types;
}

std::map<std::string, Activations> calibrate(const EditableModel& model,
                                             const std::vector<NamedTensors>& samples,
                                             const WantedActivations& wanted) {
  std::map<std::string, Activations> result;
  if (wanted.empty()) return result;
  std::set<std::string> names;
  for (const auto& [name, axes] : wanted) names.insert(name);
  SampleRunner runner(model, samples.at(0), not_outputs(model, names));
  std::map<std::string, Sums> sums;
  for (size_t s = 0; s < samples.size(); ++s) {
    const NamedTensors values = runner.run(samples[s]);
    for (const auto& [name, axes] : wanted) {
      Activations& of = result[name];
      const Tensor& tensor = values.at(name);
      if (!of.problem.empty()) continue;
      if (!add_range(tensor.span<float>(), sums[name].range)) {
        of.problem = fmt::format("NaN or infinity in sample {}", s);
        continue;
      }
      for (const int64_t axis : axes) add_channels(tensor, axis, sums[name]);
    }
  }
  for (auto& [name, of] : result) {
    if (!of.problem.empty()) continue;
    of.histogram = Histogram(sums[name].range);
    for (auto& [axis, channels] : sums[name].channels) {
      for (double& mean : channels) mean /= sums[name].counts[axis];
      of.means[axis] = channels;
    }
  }
  for (const NamedTensors& sample : samples) {
    const NamedTensors values = runner.run(sample);
    for (auto& [name, of] : result)
      if (of.problem.empty()) of.histogram.add(values.at(name).span<float>());
  }
  return result;
}

}  // namespace ridge::compress
