// Operators on host threads by the type and the layout of their operands, as a profiler recorded
// them. On the CPU they compute themselves; elsewhere they launch what computes.
#pragma once

#include <string_view>
#include <vector>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Rows of products and convolutions whose operands have this type by torch's name: "float",
/// "c10::BFloat16", "c10::Half". Without types of operands there are none.
std::vector<size_t> products_of_type(const Trace& trace, std::string_view type);
/// Those of FP32.
std::vector<size_t> fp32_products(const Trace& trace);
/// Whether some are of 16 bits.
bool has_short_products(const Trace& trace);

/// Rows of convolutions whose images lie plane by plane (NCHW). Without strides there are none, and
/// images of one plane or one pixel lie in both orders at once.
std::vector<size_t> planar_convolutions(const Trace& trace);

/// Whether the trace says how operands lie.
bool has_strides(const Trace& trace);

}  // namespace ridge::doctor
