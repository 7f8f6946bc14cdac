// A model with a recipe, and the process that runs it, as a variant of the loop; or another runtime
// in its place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/compress/form.h"
#include "ridge/tune/onnx/model_worker.h"
#include "ridge/tune/onnx/runtime_peer.h"
#include "ridge/tune/target.h"

namespace ridge {

class OpenModel : public TunedVariant {
 public:
  /// Those of a session; a rival has the time to its first result and its memory alone.
  virtual const SessionFacts& facts() const = 0;
  /// The outputs for the samples that the guard compares; none of a rival.
  virtual const SampleOutputs& outputs() const = 0;
  /// Whether its products multiply bytes: a quantized model runs in the model's place.
  virtual bool is_quantized() const { return false; }
  /// Rows of a step.
  virtual int64_t samples() const = 0;
  /// Seconds of single runs since the last call, or of some of them, evenly spread.
  virtual std::vector<double> take_runs() = 0;
  std::string plan_hash() const override { return facts().plan_hash; }
};

inline OpenModel& as_model(TunedVariant& variant) { return static_cast<OpenModel&>(variant); }

/// All that a target of a model needs of the machine.
class ModelRunners {
 public:
  virtual ~ModelRunners() = default;

  /// The data that all variants run on.
  virtual const ModelSamples& samples() = 0;
  /// A session with the recipe, with outputs for `count` samples; VariantFailed and TrialStopped as
  /// WorkerPipe has them. The model that a recipe runs in the model's place is made at the first
  /// time, by the samples; VariantFailed where it would differ by more than its limit.
  virtual std::unique_ptr<OpenModel> open(const std::string& recipe,
                                          size_t count,
                                          int64_t until_ns) = 0;
  /// The path of a file that a recipe names, which open() has made.
  virtual std::string file(const std::string& name) const = 0;
  /// The outputs in f64, as WideSource has them for that role; `seconds` is what they took.
  virtual SampleOutputs wide_outputs(ModelRole role,
                                     size_t count,
                                     int64_t until_ns,
                                     double& seconds) = 0;
  /// The other runtime on runs of `batch` rows; its name with its version goes to `name`. Null:
  /// none is asked for. UserError where it cannot run the model.
  virtual std::unique_ptr<OpenModel> open_rival(int64_t batch, std::string& name) = 0;
};

struct ModelRequest {
  std::string model;           ///< Its path.
  std::string data{};          ///< The path of an NPZ; empty: samples are drawn.
  Binding sizes{};             ///< Sizes of named dimensions, where data do not give them.
  bool is_throughput = false;  ///< The goal: rows a second, not the time of a run.
  std::optional<PeerRuntime> against{};
  std::string python{};   ///< The Python that has it.
  std::string program{};  ///< The path of ridge, which variants run in.
  LoopOptions loop{};
};

/// The name of the file that has the model at `model` quantized by that method.
std::string quantized_name(const std::string& model, compress::QuantizeMethod method);

/// Runners in processes of their own. UserError where the model cannot be imported, the data do not
/// suit, or a dimension has no size.
std::unique_ptr<ModelRunners> model_processes(const ModelRequest& request);

}  // namespace ridge
