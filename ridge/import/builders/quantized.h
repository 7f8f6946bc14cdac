// Numbers as integers of 8 or 16 bits.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// The whole number nearest to x, of two the even one, plus `zero`, as `to`, which has 8 or 16
/// bits: saturating, 0 for NaN. `zero`, of f32 and the shape of x, may be null: 0.
Value rounded_to_integers(Value x, Value zero, DType to);

}  // namespace ridge
