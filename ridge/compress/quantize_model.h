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
#include "ridge/compress/form.h"
#include "ridge/compress/site_times.h"
#include "ridge/infer/samples/model_samples.h"

namespace ridge::compress {

/// The gain that the order of sites weighs their errors against: the seconds that a site saves on
/// this machine, where sites that save none stay as they are; or its floating-point operations.
enum class GainMeasure : uint8_t { kTime, kFlops };
constexpr std::string_view names_of(GainMeasure) { return "time|flops"; }

struct QuantizeOptions {
  static constexpr double kDefaultDrop = 1, kDefaultPoints = 0.5;

  QuantizeMethod method = QuantizeMethod::kStatic;
  /// How ranges are chosen, and whether biases keep the means of results (static alone). Nothing:
  /// as it errs least (QuantizeResult::tried).
  std::optional<RangeMethod> ranges = {};
  std::optional<bool> correct_bias = {};
  bool equalize = false;  ///< equalize() before; static alone.
  /// The limit, in percent: of the error's power over the signal's (drop.h), or of samples whose
  /// label is no longer found, where there are labels. Nothing: kDefaultDrop or kDefaultPoints.
  std::optional<double> max_drop = {};
  std::vector<std::string> keep = {};  ///< Names of sites that stay as they are.
  GainMeasure gain = GainMeasure::kFlops;
  /// The times of sites, by output, which kTime takes in place of measured ones; it measures them
  /// where this is empty.
  std::map<std::string, SiteTime> times = {};
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
  double flops = 0;                  ///< Floating-point operations of a run on one sample.
  std::optional<SiteTime> time = {};
  int64_t order = 0;     ///< Its place in the order of the choice, from 1; 0: none.
  bool is_tied = false;  ///< It is worth as much as the one before: the file's order decides.
};

/// A way that ranges and biases could be chosen, and the error power (drop.h) with all sites in
/// bytes, on samples of the choice.
struct TriedForm {
  RangeMethod ranges = RangeMethod::kMinMax;
  bool corrects_bias = false;
  double error = 0;
};

/// Numbers of samples: those that ranges come from, those that sites are chosen by, and those of
/// the statement.
struct SampleCounts {
  size_t calibrated = 0, chosen_by = 0, held_out = 0;
  /// Otherwise the sites are chosen by the samples of the calibration.
  bool is_choice_apart = true;
  bool is_held_out_apart = true;  ///< Otherwise there is one sample, which serves for all.
};

struct QuantizeResult {
  EditableModel model;
  std::vector<SiteResult> sites =
      {};  ///< In the order of the choice, then those that have no place.
  RangeMethod ranges = RangeMethod::kMinMax;
  bool corrects_bias = false;
  /// Ways that were tried in turn, each range method before a correction of biases with the best of
  /// them; none where the options leave no choice.
  std::vector<TriedForm> tried = {};
  int folded_norms = 0;
  int equalized_pairs = 0;
  SampleCounts samples = {};
  double limit = 0;         ///< The limit that held, in percent, as QuantizeOptions has it.
  double drop = 0;          ///< The same measure of the result, on held-out samples.
  double error_power = 0;   ///< On held-out samples, of `output`.
  std::string output = {};  ///< The output of the largest error.
  std::optional<Score> before = {}, after = {};  ///< On held-out samples with labels.
  std::optional<SiteTime> time = {};  ///< A whole run on one sample takes it, with kTime.

  size_t quantized() const;
  /// The drop of a model with at least one quantized site is within the limit.
  bool passed() const { return quantized() > 0 && drop <= limit; }
};

/// Quantizes the sites of `model` that the limit allows. Of four samples in a row the first and
/// third are for calibration, the second for the choice of sites, and the last for the statement: a
/// range that cuts off what it has not seen is found by samples that it was not taken from.
/// UserError where the model is quantized already, has no site, is of an older opset than the form
/// needs, or cannot run; and for a name of `keep` that is no site.
QuantizeResult quantize_model(const EditableModel& model,
                              const QuantizeData& data,
                              const QuantizeOptions& options);

}  // namespace ridge::compress
