#include "ridge/graph/data_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {

std::vector<Dim> named_dims(const std::vector<DataSpec>& data) {
  std::vector<Dim> named;
  for (const DataSpec& spec : data)
    for (const Dim& dim : spec.dims) {
      if (dim.name.empty()) continue;
      const auto known = std::find_if(
          named.begin(), named.end(), [&](const Dim& each) { return each.name == dim.name; });
      if (known == named.end())
        named.push_back(dim);
      else if (dim.size > 0)
        known->size = known->size > 0 ? std::min(known->size, dim.size) : dim.size;
    }
  return named;
}

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
