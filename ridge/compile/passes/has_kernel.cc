#include "ridge/compile/passes/has_kernel.h"

#include <fmt/format.h>

#include "ridge/graph/ops/source.h"

namespace ridge {

bool has_kernel(std::shared_ptr<const Op> op, const std::vector<Value>& values, Backend& backend) {
  Graph probe("probe");
  std::vector<Value> inputs;
  for (const Value& value : values)
    inputs.push_back(input(probe, std::to_string(inputs.size()), value.type()));
  const auto choices = backend.candidates(probe.add(std::move(op), inputs));
  return !choices.empty() && choices.front().name != kExpandedChoice;
}

}  // namespace ridge
