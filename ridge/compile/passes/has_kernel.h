// Whether a backend runs a node as one.
#pragma once

#include <memory>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge {

/// True where the first choice of the node is not its plain form.
bool has_kernel(const Node& node, const Backend& backend);
/// The same of a node of `op` with inputs of the types of `values`, before any graph has it.
bool has_kernel(std::shared_ptr<const Op> op, const std::vector<Value>& values, Backend& backend);

}  // namespace ridge
