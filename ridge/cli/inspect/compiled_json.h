// Parts of the reports on a compiled program in JSON.
#pragma once

#include "ridge/base/json_writer.h"
#include "ridge/cli/inspect/compiled_facts.h"
#include "ridge/cli/inspect/inspect.h"

namespace ridge {

/// The field "entries": for each its cost by op, its memory and what its passes did.
void write_entries(JsonWriter& json, const CompiledFacts& facts, const InspectOptions& options);

/// Fields of an object: bytes of the state by role, and of the plan.
void write_planned_memory(JsonWriter& json, const Plan& plan);

}  // namespace ridge
