#include "ridge/graph/data_spec.h"

#include <fmt/format.h>

namespace ridge {

TensorType bound_type(const DataSpec& spec, const Binding& binding) {
  TensorType type{spec.dtype, {}};
  for (const Dim& dim : spec.dims)
    type.shape.push_back(dim.name.empty() ? dim.size : binding.at(dim.name));
  return type;
}

std::string type_text(const DataSpec& spec) {
  std::string dims;
  for (const Dim& dim : spec.dims) {
    if (!dims.empty()) dims += ',';
    dims += dim.name;
    if (dim.name.empty() || dim.size > 0)
      dims += fmt::format("{}{}", dim.name.empty() ? "" : "<=", dim.size);
  }
  return fmt::format("{}[{}]", name_of(spec.dtype), dims);
}

std::string to_string(const DataSpec& spec) {
  return fmt::format("{} {}", spec.name, type_text(spec));
}

}  // namespace ridge
