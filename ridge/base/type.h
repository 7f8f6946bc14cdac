// Shapes and tensor types: static, checked in 64-bit arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"

namespace ridge {

/// Sizes of the dimensions, outermost first; empty for a scalar.
using Shape = std::vector<int64_t>;

/// Largest number of dimensions of a tensor.
inline constexpr int kMaxRank = 8;

/// Product of the sizes. The shape must have passed check_type, else the product may overflow.
int64_t numel(const Shape& shape);

/// "[64,784]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const { return numel(shape); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }
  bool operator==(const TensorType&) const = default;
};

/// "f32[64,784]"; "f32[]" for a scalar.
std::string to_string(const TensorType& type);

/// Throws UserError unless the rank is at most kMaxRank, every size at least 1, and the tensor's
/// bytes are below 2^48. `who` opens the message.
void check_type(const TensorType& type, std::string_view who);

/// `axis` counted from the front, where -1 is the last of `rank` dimensions; UserError when out of
/// range.
int64_t normalize_axis(int64_t axis, int64_t rank, std::string_view who);

}  // namespace ridge
