// The data that callers give a model, held against what it takes.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/data_spec.h"

namespace ridge {

/// "x f32[B,3] and y i64[B]".
std::string listed(const std::vector<DataSpec>& specs);

/// The one of that name. UserError with the nearest names when there is none.
const DataSpec& find_input(const std::vector<DataSpec>& specs, const std::string& name);

/// Adds the sizes that a shape gives to the named dimensions of an input. UserError, with the type
/// that the model wants, where it has another dtype, number of dimensions or size, or another size
/// than `binding` has already.
void bind_input(const DataSpec& spec, const TensorType& type, Binding& binding);

/// UserError for an input that is not given.
[[noreturn]] void refuse_missing(const std::vector<DataSpec>& specs, const std::string& name);

}  // namespace ridge
