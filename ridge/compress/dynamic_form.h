// The dynamic form of a quantized model, as quantize_dynamic of ONNX Runtime writes it: scales of
// activations follow from each run's data.
#pragma once

#include "ridge/compress/form.h"

namespace ridge::compress {

/// DynamicQuantizeLinear is an operator of this version on.
inline constexpr int64_t kDynamicOpset = 11;

/// in_form(): a MatMul or Gemm as DynamicQuantizeLinear, MatMulInteger, Cast and Mul by the scales,
/// with the bias of a Gemm behind them. Weights are i8 with a scale for each output channel. A Conv
/// stays.
EditableModel in_dynamic_form(const EditableModel& model,
                              const QuantizedForm& form,
                              const std::set<std::string>& chosen);
SwitchedModel with_dynamic_switches(const EditableModel& model, const QuantizedForm& form);

}  // namespace ridge::compress
