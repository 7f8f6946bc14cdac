// Named dimensions of the data of a model, types under a binding, and both as text.
#pragma once

#include <string>
#include <vector>

#include "ridge/api/data_spec.h"
#include "ridge/base/type.h"

namespace ridge {

/// The named dimensions of all data in order, each with the least of its largest sizes.
std::vector<Dim> named_dims(const std::vector<DataSpec>& data);

/// Its type under a binding that has all of its dimensions.
TensorType bound_type(const DataSpec& spec, const Binding& binding);

/// "f32[B,T<=128,3]": T has a largest size.
std::string type_text(const DataSpec& spec);
/// The same behind the name: "x f32[B,T<=128,3]".
std::string to_string(const DataSpec& spec);

}  // namespace ridge
