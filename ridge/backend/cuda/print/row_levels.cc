#include "ridge/backend/cuda/print/row_levels.h"

#include <algorithm>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cuda {
namespace {

// The node of the maximum where `exponential` is exp(x - max(x)) in f32, reshapes aside; else null.
const Node* maximum_within(const FusedBody& body, const Node& exponential) {
  if (!exponential.is<Exp>() || exponential.outputs[0].dtype != DType::kF32) return nullptr;
  const Node& difference = behind_reshapes(*exponential.inputs[0].node);
  if (!difference.is<Sub>()) return nullptr;
  const Node& spread = behind_reshapes(*difference.inputs[1].node);
  if (!spread.is<Broadcast>()) return nullptr;
  const Node& maximum = behind_reshapes(*spread.inputs[0].node);
  const bool is_its_own =
      maximum.is<ReduceMax>() && body.role(maximum) == LoopRole::kRow &&
      &behind_reshapes(*maximum.inputs[0].node) == &behind_reshapes(*difference.inputs[0].node);
  return is_its_own ? &maximum : nullptr;
}

}  // namespace

bool RowLevels::is_found(const Node& maximum) const {
  return std::ranges::any_of(maximum_of, [&](const auto& each) { return each.second == &maximum; });
}

RowLevels row_levels(const FusedBody& body, Functions functions, bool is_held) {
  RowLevels levels{.of = body.levels, .maximum_of = {}, .below_zero = {}};
  if (functions == Functions::kOfCpu) return levels;
  for (const auto& node : body.graph.nodes()) {
    if (maximum_within(body, *node) != nullptr) levels.below_zero.insert(node.get());
    if (is_held) continue;
    int level = 0;
    for (const Value& input : node->inputs) level = std::max(level, levels.level(*input.node));
    const bool ends_pass = is_loop_reduction(*node) || node->is<Pick>();
    if (ends_pass && body.role(*node) == LoopRole::kRow) ++level;
    const bool is_sum = node->is<ReduceSum>() && body.role(*node) == LoopRole::kRow;
    const Node* const maximum =
        is_sum ? maximum_within(body, behind_reshapes(*node->inputs[0].node)) : nullptr;
    if (maximum != nullptr && !levels.is_found(*maximum)) {
      levels.maximum_of.emplace(node.get(), maximum);
      level = levels.level(*maximum);
    }
    levels.of[static_cast<size_t>(node->id)] = level;
  }
  return levels;
}

}  // namespace ridge::cuda
