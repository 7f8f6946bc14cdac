// A model in memory that runs on samples, and the activations that it has on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ridge/compress/editable_model.h"
#include "ridge/compress/ranges.h"
#include "ridge/infer/model_session.h"
#include "ridge/infer/samples/model_samples.h"

namespace ridge::compress {

/// A session of the model on the CPU, for samples of one size.
class SampleRunner {
 public:
  /// `sample` has the shapes of all; `more_outputs` are values of f32 that run() returns, too.
  /// UserError where the model cannot be imported.
  SampleRunner(const EditableModel& model,
               const NamedTensors& sample,
               const std::vector<std::string>& more_outputs = {});

  NamedTensors run(const NamedTensors& sample) { return session_->run(sample); }

 private:
  std::unique_ptr<ModelSession> session_;
};

/// The outputs of the model for these samples.
SampleOutputs outputs_on(const EditableModel& model, const std::vector<NamedTensors>& samples);

/// The types of values of the model, by name, for inputs of the shapes of `sample`.
std::map<std::string, TensorType> types_of(const EditableModel& model,
                                           const NamedTensors& sample,
                                           const std::set<std::string>& values);

/// The activations of one value on all samples.
struct Activations {
  Histogram histogram{Range{}};
  /// Means over all else of the channels of an axis, by axis; -1 is the last.
  std::map<int64_t, std::vector<double>> means = {};
  std::string problem = {};  ///< Why there are none: "NaN or infinity in sample 3".
};

/// A value, and the axes that means are taken of.
using WantedActivations = std::map<std::string, std::set<int64_t>>;

/// Runs the model twice on each sample: for ranges and means, then for histograms. The wanted
/// values are f32.
std::map<std::string, Activations> calibrate(const EditableModel& model,
                                             const std::vector<NamedTensors>& samples,
                                             const WantedActivations& wanted);

}  // namespace ridge::compress
