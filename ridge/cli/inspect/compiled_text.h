// Parts of the reports on a compiled program for people: tables that begin with an empty line.
#pragma once

#include <cstddef>
#include <string>

#include "ridge/cli/inspect/compiled_facts.h"

namespace ridge {

inline constexpr size_t kReportRows = 12;  ///< Rows shown of a table that has more.

std::string entries_text(const CompiledFacts& facts);
std::string ops_text(const EntryFacts& entry);
/// The launches of an entry that cost most.
std::string nodes_text(const CompiledFacts& facts, size_t entry);
/// State by role, arena, and their sum.
std::string memory_text(const CompiledFacts& facts);
/// Buffers that are live where the entry needs the most memory.
std::string map_text(const CompiledFacts& facts, const EntryFacts& entry);
std::string passes_text(const CompiledFacts& facts);
/// Candidates of each launch, the graphs and the plan, as `nodes` and `plan` of InspectOptions ask.
std::string graphs_text(const CompiledFacts& facts);
std::string plan_text(const CompiledFacts& facts, bool is_on_gpu);

}  // namespace ridge
