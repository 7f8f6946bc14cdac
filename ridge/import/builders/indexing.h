// Axes moved to where an op wants them, and indices that count from either end.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// x with `axis` as its last one, and back.
Value axis_to_end(Value x, int64_t axis);
Value axis_from_end(Value x, int64_t axis);

/// Negative indices count from the end, as in ONNX and ATen: the same ones from 0 on, as i64.
Value from_front(Value indices, int64_t size);

}  // namespace ridge
