// Post-training quantization of ONNX models: another ONNX model, whose products multiply bytes,
// with a measurement of what that costs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/compress/drop.h"
#include "ridge/compress/editable_model.h"
#include "ridge/compress/ranges.h"
#include "ridge/infer/samples/model_samples.h"

namespace ridge::compress {

/// Scales of activations from calibration, for Conv, Gemm and MatMul; or from each run's data, for
/// Gemm and MatMul alone.
enum class QuantizeMethod : uint8_t { kStatic, kDynamic };
constexpr std::string_view names_of(QuantizeMethod) { return "static|dynamic"; }

struct QuantizeOptions {
  static constexpr double kDefaultDrop = 1, kDefaultPoints = 0.5;

  QuantizeMethod method = QuantizeMethod::kStatic;
  RangeMethod ranges = RangeMethod::kMinMax;
  bool equalize = false;      ///< equalize() before; static alone.
  bool correct_bias = false;  ///< Biases keep the means of results; static alone.
  /// The limit, in percent: of the error's power over the signal's (drop.h), or of samples whose
  /// label is no longer found, where there are labels. Nothing: kDefaultDrop or kDefaultPoints.
  std::optional<double> max_drop = {};
  std::vector<std::string> keep = {};  ///< Names of sites that stay as they are.
  /// The seconds that a site, by name, saves; sites that it lacks save none. Empty: sites are
  /// weighed by their floating-point operations.
  std::map<std::string, double> seconds_gained = {};
  /// Called before each measurement, with what it is of; may throw to stop.
  std::function<void(const std::string&)> on_progress = [](const std::string&) {};
};

struct QuantizeData {
  ModelSamples samples;
  std::vector<int64_t> labels = {};  ///< One a sample, or none.
};

struct SiteResult {
  std::string name, op;
  bool is_quantized = false;
  std::string reason = {};           ///< Why it stays as it is.
  std::optional<double> error = {};  ///< The error power where this site alone is quantized.
  double gain = 0;                   ///< Seconds, or floating-point operations of a run.
  int64_t order = 0;                 ///< Its place in the order of the choice, from 1; 0: none.
  bool is_tied = false;  ///< It is worth as much as the one before: the file's order decides.
};

struct QuantizeResult {
  EditableModel model;
  std::vector<SiteResult> sites =
      {};  ///< In the order of the choice, then those that have no place.
  int folded_norms = 0;
  int equalized_pairs = 0;
  size_t calibrated = 0, held_out = 0;  ///< Numbers of samples.
  bool is_held_out_apart = true;        ///< Otherwise there is one sample, which serves for both.
  double limit = 0;                     ///< In percent, as QuantizeOptions has it.
  double drop = 0;                      ///< The same measure of the result, on held-out samples.
  double error_power = 0;               ///< On held-out samples, of `output`.
  std::string output = {};              ///< The output of the largest error.
  std::optional<Score> before = {}, after = {};  ///< On held-out samples with labels.

  size_t quantized() const;
  /// The drop of a model with at least one quantized site is within the limit.
  bool passed() const { return quantized() > 0 && drop <= limit; }
};

/// Quantizes the sites of `model` that the limit allows. Every second sample is for calibration and
/// the choice of sites, the others for the statement. UserError where the model is quantized
/// already, has no site, is of an older opset than the form needs, or cannot run; and for a name of
/// `keep` that is no site.
QuantizeResult quantize_model(const EditableModel& model,
                              const QuantizeData& data,
                              const QuantizeOptions& options);

}  // namespace ridge::compress
