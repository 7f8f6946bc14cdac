// The static form of a quantized model: QuantizeLinear and DequantizeLinear with scales from
// calibration (QDQ), which engines fuse into products of bytes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/compress/calibration.h"
#include "ridge/compress/points.h"
#include "ridge/compress/ranges.h"

namespace ridge::compress {

/// QuantizeLinear by channel is an operator of this version on.
inline constexpr int64_t kStaticOpset = 13;

/// All that does not depend on which sites are chosen.
struct StaticForm {
  std::vector<Site> sites;
  std::map<std::string, ByteScale> scales = {};  ///< Activations, by value.
  RangeMethod method = RangeMethod::kMinMax;
  /// By site's output: what its bias gets so that the mean of the result stays. Empty: no bias is
  /// corrected.
  std::map<std::string, std::vector<double>> means = {};
};

/// The scales of the calibrated values; those with a problem are left out.
std::map<std::string, ByteScale> scales_of(const std::map<std::string, Activations>& activations,
                                           RangeMethod method);

/// The model with the sites in `chosen` (by output) in the static form: weights are i8 with a scale
/// for each output channel, biases i32 in units of the products, activations u8. All other nodes
/// stay as they are. A site whose input has no scale stays, too.
EditableModel in_static_form(const EditableModel& model,
                             const StaticForm& form,
                             const std::set<std::string>& chosen);

}  // namespace ridge::compress
