// Elements in another order of axes.
#pragma once

#include <cstdint>
#include <span>

#include "ridge/base/tensor.h"

namespace ridge {

/// Writes the elements of that type at `from`, which may be unaligned, to `to`, in parallel: axis i
/// of the result is axis perm[i] of theirs.
void transpose_elements(const TensorType& type,
                        const void* from,
                        std::span<const int64_t> perm,
                        void* to);

/// The same as a tensor.
Tensor transposed_copy(const TensorType& type, const void* from, std::span<const int64_t> perm);

/// The shape with axis perm[i] as axis i.
Shape transposed_shape(const Shape& shape, std::span<const int64_t> perm);

}  // namespace ridge
