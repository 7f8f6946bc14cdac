#include "ridge/cli/inspect/compiled_facts.h"

#include <algorithm>
#include <tuple>

#include "ridge/compile/live_ranges.h"

namespace ridge {
namespace {

PeakBuffer peak_buffer(const LiveRange& range, const EntryPlan& entry, const Graph& graph) {
  PeakBuffer buffer{.offset = range.place.offset,
                    .bytes = range.place.bytes,
                    .begin = range.begin,
                    .end = range.end};
  if (range.kind == LiveRange::Kind::kInput) {
    const PlanSlot& slot = entry.inputs[range.index];
    buffer.site = "input " + slot.name;
    buffer.op = "input";
    buffer.type = to_string(slot.type);
    return buffer;
  }
  const PlanStep& step = entry.steps[static_cast<size_t>(range.begin) - 1];
  buffer.site = step.site;
  buffer.op = step.op;
  if (range.kind == LiveRange::Kind::kWorkspace)
    buffer.op += " workspace";
  else
    buffer.type = to_string(graph.nodes().at(static_cast<size_t>(step.node))->outputs[range.index]);
  return buffer;
}

EntryFacts entry_facts(const EntryPlan& entry,
                       const Graph& graph,
                       const Backend& backend,
                       const FindTimes& find_times) {
  EntryFacts facts{.name = entry.name,
                   .nodes = graph.nodes().size(),
                   .launches = entry.steps.size(),
                   .summary = summarize(graph),
                   .peak_bytes = entry.peak_bytes,
                   .lower_bound_bytes = entry.lower_bound_bytes};
  const std::vector<LiveRange> ranges = live_ranges(entry);
  facts.live = live_bytes(entry, ranges);
  facts.peak_step =
      static_cast<int>(std::max_element(facts.live.begin(), facts.live.end()) - facts.live.begin());
  for (const LiveRange& range : ranges)
    if (range.begin <= facts.peak_step && facts.peak_step <= range.end)
      facts.at_peak.push_back(peak_buffer(range, entry, graph));
  std::stable_sort(facts.at_peak.begin(), facts.at_peak.end(), [](const auto& a, const auto& b) {
    return a.bytes > b.bytes;
  });
  for (const PlanStep& step : entry.steps) {
    const Node& node = *graph.nodes().at(static_cast<size_t>(step.node));
    facts.other_bits.push_back(has_other_bits(backend.candidates(node), step.choice));
    const NodeTimes* times = find_times ? find_times(node) : nullptr;
    facts.times.push_back(times != nullptr
                              ? *times
                              : NodeTimes{.candidates = {{step.choice_name, 0, ""}}, .pick = 0});
  }
  return facts;
}

}  // namespace

void add_entries(CompiledFacts& facts, const Backend& backend, const FindTimes& find_times) {
  const Plan& plan = facts.program.plan;
  for (size_t i = 0; i < plan.entries.size(); ++i)
    facts.entries.push_back(
        entry_facts(plan.entries[i], facts.program.graphs.entries[i], backend, find_times));
}

std::vector<NodeCost> nodes_by_cost(const CompiledFacts& facts, size_t entry) {
  std::vector<NodeCost> costs;
  const auto& nodes = facts.program.graphs.entries.at(entry).nodes();
  for (const PlanStep& step : facts.program.plan.entries.at(entry).steps) {
    const Node& node = *nodes.at(static_cast<size_t>(step.node));
    costs.push_back({.site = step.site,
                     .op = step.op,
                     .type = to_string(node.outputs.at(0)),
                     .cost = node.op->cost(node.input_types(), node.outputs)});
  }
  std::stable_sort(costs.begin(), costs.end(), [](const NodeCost& a, const NodeCost& b) {
    return std::tuple(-a.cost.flops, -a.cost.bytes) < std::tuple(-b.cost.flops, -b.cost.bytes);
  });
  return costs;
}

const EntryFacts& largest_entry(const CompiledFacts& facts) {
  return *std::max_element(
      facts.entries.begin(), facts.entries.end(), [](const auto& a, const auto& b) {
        return a.peak_bytes < b.peak_bytes;
      });
}

int64_t role_bytes(const Plan& plan, StateRole role) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.state.size(); ++i)
    if (plan.roles[i] == role) bytes += plan.state[i].place.bytes;
  return bytes;
}

}  // namespace ridge
