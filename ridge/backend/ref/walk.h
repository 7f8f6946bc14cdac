// The places of a tensor's elements: strides, offsets and indices in row-major order.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/base/type.h"

namespace ridge::ref {

/// Elements from one index to the next along each axis of a row-major tensor.
std::vector<int64_t> strides_of(const Shape& shape);

/// For each index of `shape` in row-major order: start + the sum of index times stride.
std::vector<size_t> offsets(const Shape& shape,
                            const std::vector<int64_t>& strides,
                            int64_t start = 0);

/// The index of element `position` in row-major order.
std::vector<int64_t> index_of(int64_t position, const Shape& shape);

/// The offset of element (i, j, k, l) of a tensor of rank 4, in elements.
inline size_t at(const Shape& shape, int64_t i, int64_t j, int64_t k, int64_t l) {
  return static_cast<size_t>(((i * shape[1] + j) * shape[2] + k) * shape[3] + l);
}

/// The shape seen from one axis: (outer, axis, inner).
struct AxisView {
  size_t outer = 1, size = 1, inner = 1;

  AxisView(const Shape& shape, int64_t axis);
  size_t offset(size_t o, size_t a, size_t i) const { return (o * size + a) * inner + i; }
};

}  // namespace ridge::ref
