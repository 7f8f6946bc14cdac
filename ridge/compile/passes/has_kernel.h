// Whether a backend runs an op as one, before any graph has it.
#pragma once

#include <memory>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge {

/// True where the first choice of a node of `op` with inputs of the types of `values` is not its
/// plain form.
bool has_kernel(std::shared_ptr<const Op> op, const std::vector<Value>& values, Backend& backend);

}  // namespace ridge
