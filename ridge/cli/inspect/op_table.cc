#include "ridge/cli/inspect/op_table.h"

#include <fmt/format.h>

#include "ridge/cli/common/output.h"

namespace ridge {

std::string op_table(const std::vector<OpSummary>& ops, const Cost& total, size_t nodes) {
  std::string text = fmt::format(
      "\n{:<20} {:>6} {:>10} {:>10} {:>10}\n", "op", "nodes", "FLOP", "bytes", "FLOP/byte");
  for (const OpSummary& op : ops) {
    const double intensity = op.cost.bytes > 0 ? op.cost.flops / op.cost.bytes : 0;
    text += fmt::format("{:<20} {:>6} {:>10} {:>10} {:>10.2f}\n",
                        op.op,
                        op.nodes,
                        scaled(op.cost.flops),
                        scaled(op.cost.bytes),
                        intensity);
  }
  return text + fmt::format("{:<20} {:>6} {:>10} {:>10}\n",
                            "total",
                            nodes,
                            scaled(total.flops),
                            scaled(total.bytes));
}

void write_ops(JsonWriter& json, const std::vector<OpSummary>& ops) {
  json.key("ops").begin_array();
  for (const OpSummary& op : ops) {
    json.begin_object();
    json.field("op", op.op).field("nodes", op.nodes);
    json.field("flops", op.cost.flops).field("bytes", op.cost.bytes);
    json.end_object();
  }
  json.end_array();
}

}  // namespace ridge
