// Operators on the CPU by the type and the layout of their operands, as a profiler recorded them.
#pragma once

#include <vector>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Rows of products and convolutions of FP32. Without types of operands there are none.
std::vector<size_t> fp32_products(const Trace& trace);

/// Rows of convolutions whose images lie plane by plane (NCHW). Without strides there are none, and
/// images of one plane or one pixel lie in both orders at once.
std::vector<size_t> planar_convolutions(const Trace& trace);

/// Whether the trace says how operands lie.
bool has_strides(const Trace& trace);

}  // namespace ridge::doctor
