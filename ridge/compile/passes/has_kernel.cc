#include "ridge/compile/passes/has_kernel.h"

#include "ridge/graph/ops/source.h"

namespace ridge {

bool has_kernel(const Node& node, const Backend& backend) {
  const auto choices = backend.candidates(node);
  return !choices.empty() && choices.front().name != kExpandedChoice;
}

bool has_kernel(std::shared_ptr<const Op> op, const std::vector<Value>& values, Backend& backend) {
  Graph probe("probe");
  std::vector<Value> inputs;
  for (const Value& value : values)
    inputs.push_back(input(probe, std::to_string(inputs.size()), value.type()));
  return has_kernel(probe.add(std::move(op), inputs), backend);
}

}  // namespace ridge
