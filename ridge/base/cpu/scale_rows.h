// Rows of elements times numbers of their columns.
#pragma once

#include <cstdint>
#include <span>

#include "ridge/base/dtype.h"

namespace ridge {

/// Multiplies column i of `rows` contiguous rows of as many floats as there are numbers by number
/// i, each product rounded once, on the calling thread.
void scale_rows(DType dtype, void* elements, int64_t rows, std::span<const double> scale);

}  // namespace ridge
