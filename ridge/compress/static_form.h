// The static form of a quantized model: QuantizeLinear and DequantizeLinear with scales from
// calibration (QDQ), which engines fuse into products of bytes.
#pragma once

#include "ridge/compress/calibration.h"
#include "ridge/compress/form.h"
#include "ridge/compress/points.h"

namespace ridge::compress {

/// QuantizeLinear by channel is an operator of this version on.
inline constexpr int64_t kStaticOpset = 13;

/// The scales of the calibrated values; those with a problem are left out.
std::map<std::string, ByteScale> scales_of(const std::map<std::string, Activations>& activations,
                                           RangeMethod method);

/// in_form(): weights are i8 with a scale for each output channel, biases i32 in units of the
/// products, activations u8. A site whose input has no scale stays.
EditableModel in_static_form(const EditableModel& model,
                             const QuantizedForm& form,
                             const std::set<std::string>& chosen);
SwitchedModel with_static_switches(const EditableModel& model, const QuantizedForm& form);

}  // namespace ridge::compress
