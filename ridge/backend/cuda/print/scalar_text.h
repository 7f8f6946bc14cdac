// Elementwise ops as expressions of CUDA C++. The values of f16 and bf16 are floats, rounded when
// they are made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/graph/graph.h"

namespace ridge::cuda {

/// The type of an element in memory: "float", "BF16", "int64_t".
std::string_view stored_type(DType dtype);
/// The type that holds its value: "float" for BF16.
std::string_view value_type(DType dtype);

/// `value`, of `dtype`, with all of its bits.
std::string number_text(DType dtype, double value);
std::string number_text(DType dtype, int64_t value);
/// The number of a splat constant.
std::string constant_text(const Node& node);

/// Whose functions of f32 a kernel calls.
enum class Functions : uint8_t {
  kOfCpu,   ///< Those of backend/cpu/isa/functions.h: the CPU's bits.
  kApprox,  ///< Those of device/approx.h, by the device's own approximations, where it has them.
};

/// The expression of the elementwise node (no dropout) on operands given by name; nothing where the
/// op has no form here that gives the bits of the CPU's, and then `why` ends a sentence on the op.
std::optional<std::string> expression(const Node& node,
                                      std::span<const std::string> operands,
                                      std::string& why,
                                      Functions functions = Functions::kOfCpu);

/// True when the expression calls a function of backend/cpu/isa/functions.h.
bool needs_functions(const Node& node);
/// True when device/approx.h has the node's function.
bool has_approx_form(const Node& node);

}  // namespace ridge::cuda
