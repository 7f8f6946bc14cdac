// The form in which a model's products multiply bytes, and the model in that form.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/compress/ranges.h"
#include "ridge/compress/sites.h"
#include "ridge/compress/switches.h"

namespace ridge::compress {

/// Scales of activations from calibration, for Conv, Gemm and MatMul; or from each run's data, for
/// Gemm and MatMul alone.
enum class QuantizeMethod : uint8_t { kStatic, kDynamic };
constexpr std::string_view names_of(QuantizeMethod) { return "static|dynamic"; }

/// All that does not depend on which sites are chosen.
struct QuantizedForm {
  QuantizeMethod method = QuantizeMethod::kStatic;
  RangeMethod ranges = RangeMethod::kMinMax;
  std::vector<Site> sites = {};
  /// Scales of activations, by value; the static form alone has them.
  std::map<std::string, ByteScale> scales = {};
  /// The means of the input channels of each site, by its output: a bias is moved by them so that
  /// the mean of the result stays. No bias is corrected where this is empty.
  std::map<std::string, std::vector<double>> means = {};
};

/// The version of ONNX's operators from which on a form can be written.
int64_t least_opset(QuantizeMethod method);

/// The model with the sites in `chosen` (by output) in bytes. All other nodes stay as they are; so
/// does a site that the form is not for.
EditableModel in_form(const EditableModel& model,
                      const QuantizedForm& form,
                      const std::set<std::string>& chosen);
/// The model with a switch for each site of the form, in their order: on, it is as if no other site
/// was in bytes; off, as the model has it.
SwitchedModel with_switches(const EditableModel& model, const QuantizedForm& form);

}  // namespace ridge::compress
