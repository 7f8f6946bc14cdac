// The dynamic form of a quantized model, as quantize_dynamic of ONNX Runtime writes it: scales of
// activations follow from each run's data.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ridge/compress/ranges.h"
#include "ridge/compress/sites.h"

namespace ridge::compress {

/// DynamicQuantizeLinear is an operator of this version on.
inline constexpr int64_t kDynamicOpset = 11;

/// The model with the sites in `chosen` (by output), MatMul and Gemm alone, as
/// DynamicQuantizeLinear, MatMulInteger, Cast and Mul by the scales, with the bias of a Gemm behind
/// them. Weights are i8 with a scale for each output channel.
EditableModel in_dynamic_form(const EditableModel& model,
                              const std::vector<Site>& sites,
                              RangeMethod method,
                              const std::set<std::string>& chosen);

}  // namespace ridge::compress
