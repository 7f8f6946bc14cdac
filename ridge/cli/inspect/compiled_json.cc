#include "ridge/cli/inspect/compiled_json.h"

#include "ridge/compile/passes/pad_head.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

void write_entry(JsonWriter& json, const EntryFacts& entry) {
  json.field("name", entry.name).field("nodes", entry.nodes).field("launches", entry.launches);
  json.field("flops", entry.summary.total.flops).field("bytes", entry.summary.total.bytes);
  json.key("ops").begin_array();
  for (const OpSummary& op : entry.summary.ops) {
    json.begin_object().field("op", op.op).field("nodes", op.nodes);
    json.field("flops", op.cost.flops).field("bytes", op.cost.bytes).end_object();
  }
  json.end_array();
  json.field("arena_bytes", entry.peak_bytes).field("lower_bound_bytes", entry.lower_bound_bytes);
  json.field("peak_step", entry.peak_step);
  json.key("live_bytes").begin_array();
  for (int64_t bytes : entry.live) json.value(bytes);
  json.end_array();
  json.key("live_at_peak").begin_array();
  for (const PeakBuffer& buffer : entry.at_peak) {
    json.begin_object().field("site", buffer.site).field("op", buffer.op);
    json.field("type", buffer.type).field("bytes", buffer.bytes).field("offset", buffer.offset);
    json.field("begin", buffer.begin).field("end", buffer.end).end_object();
  }
  json.end_array();
}

void write_passes(JsonWriter& json, const CompiledFacts& facts, size_t entry) {
  const auto& passes = facts.program.passes;
  const size_t each = passes.size() / facts.entries.size();
  json.key("passes").begin_array();
  for (size_t p = entry * each; p < (entry + 1) * each; ++p) {
    json.begin_object().field("name", passes[p].name).field("changed", passes[p].changed);
    json.field("nodes_before", passes[p].nodes_before);
    json.field("nodes_after", passes[p].nodes_after);
    json.field("seconds", passes[p].seconds);
    json.field("choosing_seconds", passes[p].choosing_seconds).end_object();
  }
  json.end_array();
}

void write_choices(JsonWriter& json, const CompiledFacts& facts, size_t entry) {
  const auto& steps = facts.program.plan.entries[entry].steps;
  json.key("kernels").begin_array();
  for (size_t i = 0; i < steps.size(); ++i) {
    const NodeTimes& times = facts.entries[entry].times[i];
    const Node& node =
        *facts.program.graphs.entries[entry].nodes()[static_cast<size_t>(steps[i].node)];
    const Cost cost = node.op->cost(node.input_types(), node.outputs);
    json.begin_object().field("site", steps[i].site).field("op", steps[i].op);
    json.field("flops", cost.flops).field("bytes", cost.bytes);
    json.field("pick", times.candidates[times.pick].name);
    json.field("other_bits", static_cast<bool>(facts.entries[entry].other_bits[i]));
    json.key("candidates").begin_array();
    for (const CandidateTime& candidate : times.candidates) {
      json.begin_object().field("name", candidate.name);
      if (candidate.seconds > 0) json.field("seconds", candidate.seconds);
      if (!candidate.note.empty()) json.field("note", candidate.note);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_paddings(JsonWriter& json, const Graph& graph) {
  json.key("padded_heads").begin_array();
  for (const HeadPadding& padding : head_paddings(graph)) {
    json.begin_object().field("site", padding.site).field("rows", padding.rows);
    json.field("columns", padding.columns).field("stride", padding.stride).end_object();
  }
  json.end_array();
}

}  // namespace

void write_entries(JsonWriter& json, const CompiledFacts& facts, const InspectOptions& options) {
  json.key("entries").begin_array();
  for (size_t i = 0; i < facts.entries.size(); ++i) {
    json.begin_object();
    write_entry(json, facts.entries[i]);
    write_passes(json, facts, i);
    if (options.plan) write_choices(json, facts, i);
    if (options.plan) write_paddings(json, facts.program.graphs.entries[i]);
    if (options.nodes) json.field("text", print(facts.program.graphs.entries[i]));
    json.end_object();
  }
  json.end_array();
}

void write_planned_memory(JsonWriter& json, const Plan& plan) {
  json.key("state_by_role").begin_object();
  for (StateRole role : kRoles) json.field(name_of(role), role_bytes(plan, role));
  json.end_object();
  json.field("state_bytes", plan.state_bytes).field("lent_bytes", plan.lent_bytes);
  json.field("passing_bytes", plan.passing_bytes).field("arena_bytes", plan.arena_bytes);
  json.field("staging_bytes", plan.staging_bytes).field("planned_bytes", plan.total_bytes());
  json.field("lower_bound_bytes", plan.lower_bound_bytes());
}

}  // namespace ridge
