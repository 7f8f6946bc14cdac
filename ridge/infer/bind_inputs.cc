#include "ridge/infer/bind_inputs.h"

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

[[noreturn]] void refuse(const DataSpec& spec, const TensorType& type, const std::string& what) {
  throw UserError(fmt::format(
      "input '{}' {}; got {}, expected {}", spec.name, what, to_string(type), type_text(spec)));
}

}  // namespace

std::string listed(const std::vector<DataSpec>& specs) {
  std::string text;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i > 0) text += i + 1 == specs.size() ? " and " : ", ";
    text += to_string(specs[i]);
  }
  return text;
}

const DataSpec& find_input(const std::vector<DataSpec>& specs, const std::string& name) {
  const auto found = std::find_if(
      specs.begin(), specs.end(), [&](const DataSpec& spec) { return spec.name == name; });
  if (found != specs.end()) return *found;
  std::vector<std::string> names;
  for (const DataSpec& spec : specs) names.push_back(spec.name);
  throw UserError(
      fmt::format("the model has no input '{}', only {}", shown_text(name), listed(specs)),
      did_you_mean(name, names));
}

void bind_input(const DataSpec& spec, const TensorType& type, Binding& binding) {
  if (type.dtype != spec.dtype) refuse(spec, type, "has another dtype");
  if (type.shape.size() != spec.dims.size()) refuse(spec, type, "has another number of dimensions");
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const Dim& dim = spec.dims[i];
    const int64_t size = type.shape[i];
    if (dim.name.empty()) {
      if (size != dim.size) refuse(spec, type, fmt::format("has another size in dimension {}", i));
      continue;
    }
    if (dim.size > 0 && size > dim.size)
      refuse(spec, type, fmt::format("is too large in '{}'", dim.name));
    if (const int64_t known = binding.emplace(dim.name, size).first->second; known != size)
      refuse(
          spec, type, fmt::format("has another '{}' than {}, which came before", dim.name, known));
  }
}

void refuse_missing(const std::vector<DataSpec>& specs, const std::string& name) {
  throw UserError(fmt::format("input '{}' is missing", name), "give " + listed(specs));
}

}  // namespace ridge
