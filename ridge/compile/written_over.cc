#include "ridge/compile/written_over.h"

#include <algorithm>

namespace ridge {

bool may_write_over(const Graph& graph,
                    const EntryPlan& plan,
                    const PlanSlot& output,
                    const PlanSlot& input) {
  const auto made =
      std::ranges::find_if(output.uses, [](const LaunchOperand& use) { return use.is_result; });
  if (made == output.uses.end()) return false;
  const int id = plan.steps.at(made->step).node;
  const Op& op = *graph.nodes().at(static_cast<size_t>(id))->op;
  return std::ranges::all_of(input.uses, [&](const LaunchOperand& use) {
    return use.step < made->step ||
           (use.step == made->step && op.may_overwrite(made->number, use.number));
  });
}

}  // namespace ridge
