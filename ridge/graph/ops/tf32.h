// Which contractions may be made in TF32.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// Whether the field `tf32` is set.
bool is_in_tf32(const Op& op);

/// The op with `tf32` set; null where its class has no such field, or its operands are rounded
/// already.
std::shared_ptr<const Op> in_tf32(const Op& op);

}  // namespace ridge
