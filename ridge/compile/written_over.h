// Outputs of a plan that are made where an input of the caller lies.
#pragma once

#include "ridge/compile/plan.h"

namespace ridge {

/// Whether the output may be bound to the address of the input: the launch that makes it is the
/// last one that reads the input, and reads each element before it writes there. Both are slots of
/// `plan`, which is of `graph`.
bool may_write_over(const Graph& graph,
                    const EntryPlan& plan,
                    const PlanSlot& output,
                    const PlanSlot& input);

}  // namespace ridge
