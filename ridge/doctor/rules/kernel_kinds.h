// Kinds of kernels, by their names.
#pragma once

#include <string_view>
#include <vector>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

enum class KernelKind : uint8_t {
  kMatrix,       ///< Products and convolutions, whatever they run on.
  kElementwise,  ///< One result an element, such as an activation.
  kNorm,         ///< Normalization and softmax.
  kCast,         ///< The same values as another type.
  kLayout,       ///< The same values in another order or place: transposes, copies, concatenation.
  kOptimizer,    ///< Updates many weights at once.
  kCommunication,
  kOther,
};
KernelKind kind_of_kernel(std::string_view name);

/// A product or convolution in FP32 on plain arithmetic units, by its name.
bool is_plain_fp32_matrix(std::string_view name);

/// The row of the call that launched `row`; trace.size() where none is known.
size_t call_of(const Trace& trace, const Analysis& analysis, size_t row);

/// By lane: the ranges over updates of the weights.
std::vector<Intervals> optimizer_ranges(const Trace& trace);

/// Selects the kernels that ranges over updates of the weights launched, or whose names say so.
std::vector<size_t> optimizer_kernels(const Trace& trace,
                                      const Analysis& analysis,
                                      const std::vector<size_t>& kernels);

/// Their time in milliseconds a step, added up.
double ms_a_step(const Trace& trace, const Analysis& analysis, const std::vector<size_t>& rows);

/// Their stretches.
Intervals stretches_of(const Trace& trace, const std::vector<size_t>& rows);

/// The longest few of them, the longest first, to show.
std::vector<size_t> longest_of(const Trace& trace, std::vector<size_t> rows, size_t count = 5);

/// A name of a kernel short enough for a line: without arguments, and cut in the middle of none.
std::string short_name(std::string_view name);

}  // namespace ridge::doctor
