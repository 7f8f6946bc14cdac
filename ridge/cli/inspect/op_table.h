// Operators of a graph with their cost, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/json_writer.h"
#include "ridge/graph/summary.h"

namespace ridge {

/// A line each, and the total behind them.
std::string op_table(const std::vector<OpSummary>& ops, const Cost& total, size_t nodes);

/// The field "ops".
void write_ops(JsonWriter& json, const std::vector<OpSummary>& ops);

}  // namespace ridge
