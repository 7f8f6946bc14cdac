#include "ridge/graph/model_source.h"

#include <algorithm>

namespace ridge {

Graph ModelSource::bind(const Binding& binding) const {
  const std::vector<std::string> known = dims();
  for (const auto& [name, size] : binding) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(fmt::format("the model has no dimension '{}'", name),
                      did_you_mean(name, known));
    check(size >= 1, "dimension '{}' must be at least 1; got {}", name, size);
  }
  for (const std::string& name : known)
    check(binding.contains(name), "the model needs a size for dimension '{}'", name);
  Graph graph = build(binding);
  graph.set_binding(binding);
  return graph;
}

}  // namespace ridge
