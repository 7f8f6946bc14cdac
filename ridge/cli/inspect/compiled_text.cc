#include "ridge/cli/inspect/compiled_text.h"

#include <algorithm>

#include "ridge/cli/common/output.h"
#include "ridge/compile/passes/pad_head.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

constexpr size_t kColumns = 40;  ///< Columns of the memory map.

// The steps of the map's column c are [first(c), first(c + 1)).
struct MapScale {
  size_t steps;
  size_t columns = std::min(kColumns, steps);
  size_t first(size_t column) const { return column * steps / columns; }
};

std::string profile_line(const EntryFacts& entry, const MapScale& scale) {
  std::string line;
  const int64_t most = std::max<int64_t>(1, entry.live[static_cast<size_t>(entry.peak_step)]);
  for (size_t c = 0; c < scale.columns; ++c) {
    int64_t live = 0;
    for (size_t s = scale.first(c); s < scale.first(c + 1); ++s)
      live = std::max(live, entry.live[s]);
    const auto tenths = static_cast<double>(live) * 10 / static_cast<double>(most);
    line += live == most ? '*' : static_cast<char>('0' + static_cast<int>(tenths));
  }
  return line;
}

std::string life_line(const PeakBuffer& buffer, const MapScale& scale) {
  std::string line;
  for (size_t c = 0; c < scale.columns; ++c) {
    const bool lives = static_cast<size_t>(buffer.begin) < scale.first(c + 1) &&
                       scale.first(c) <= static_cast<size_t>(buffer.end);
    line += lives ? '#' : '.';
  }
  return line;
}

std::string step_text(const CompiledFacts& facts, const EntryFacts& entry) {
  const auto step = static_cast<size_t>(entry.peak_step);
  if (step == 0) return "before the first launch";
  if (step > entry.launches) return "after the last launch";
  for (const EntryPlan& plan : facts.program.plan.entries)
    if (plan.name == entry.name)
      return fmt::format(
          "at launch {} of {} ({})", step, entry.launches, plan.steps[step - 1].site);
  return {};
}

// Candidates of one node: the pick first.
std::string candidates_text(const NodeTimes& times) {
  const auto text_of = [](const CandidateTime& candidate) {
    if (!candidate.note.empty()) return fmt::format("{} ({})", candidate.name, candidate.note);
    if (candidate.seconds == 0) return candidate.name;
    return fmt::format("{} {}", candidate.name, run_time_text(candidate.seconds));
  };
  std::string text = text_of(times.candidates[times.pick]);
  for (size_t i = 0; i < times.candidates.size(); ++i)
    if (i != times.pick) text += " | " + text_of(times.candidates[i]);
  return text;
}

std::string choices_text(const CompiledFacts& facts) {
  std::string text;
  for (size_t e = 0; e < facts.entries.size(); ++e) {
    const auto& steps = facts.program.plan.entries[e].steps;
    double sum = 0;
    std::string rows;
    for (size_t i = 0; i < steps.size(); ++i) {
      const NodeTimes& times = facts.entries[e].times[i];
      sum += times.candidates[times.pick].seconds;
      rows += fmt::format("{:>5}{}{:<16} {}  [{}]\n",
                          i + 1,
                          facts.entries[e].other_bits[i] ? '*' : ' ',
                          steps[i].op,
                          candidates_text(times),
                          steps[i].site);
    }
    text += fmt::format(
        "\nkernels of '{}', the pick of each launch first; each timed alone, in all {}\n{}",
        facts.entries[e].name,
        run_time_text(sum),
        rows);
  }
  return text;
}

std::string paddings_text(const CompiledFacts& facts) {
  std::string text;
  for (const Graph& graph : facts.program.graphs.entries)
    for (const HeadPadding& padding : head_paddings(graph))
      text += fmt::format(
          "\npadded in '{}': the logits of {} have rows of {} for {} columns, {} of them\n",
          graph.name(),
          padding.site,
          padding.stride,
          padding.columns,
          padding.rows);
  return text;
}

// On the CPU there is something to say only where kernels of any bits are picked.
std::string bits_text(const CompiledFacts& facts, bool is_on_gpu) {
  size_t launches = 0, others = 0;
  for (const EntryFacts& entry : facts.entries) {
    launches += entry.launches;
    others +=
        static_cast<size_t>(std::count(entry.other_bits.begin(), entry.other_bits.end(), true));
  }
  if (others > 0)
    return fmt::format("\n* bits may differ from the CPU's: {} of {} launches\n", others, launches);
  if (!is_on_gpu) return {};
  return fmt::format("\nall {} launches have the CPU's bits\n", launches);
}

}  // namespace

std::string entries_text(const CompiledFacts& facts) {
  std::string text = fmt::format("\n{:<12} {:>6} {:>8} {:>9} {:>9} {:>9} {:>11} {:>11}\n",
                                 "entry",
                                 "nodes",
                                 "launches",
                                 "FLOP",
                                 "bytes",
                                 "FLOP/byte",
                                 "arena",
                                 "least");
  for (const EntryFacts& entry : facts.entries) {
    const Cost& cost = entry.summary.total;
    text += fmt::format("{:<12} {:>6} {:>8} {:>9} {:>9} {:>9.2f} {:>11} {:>11}\n",
                        entry.name,
                        entry.nodes,
                        entry.launches,
                        scaled(cost.flops),
                        scaled(cost.bytes),
                        cost.bytes > 0 ? cost.flops / cost.bytes : 0,
                        bytes_text(entry.peak_bytes),
                        bytes_text(entry.lower_bound_bytes));
  }
  return text;
}

std::string ops_text(const EntryFacts& entry) {
  std::string text = fmt::format("\n{:<24} {:>6} {:>9} {:>7} {:>9} {:>7}\n",
                                 fmt::format("op of '{}'", entry.name),
                                 "nodes",
                                 "FLOP",
                                 "%",
                                 "bytes",
                                 "%");
  const Cost& total = entry.summary.total;
  const size_t shown = std::min(kReportRows, entry.summary.ops.size());
  for (size_t i = 0; i < shown; ++i) {
    const OpSummary& op = entry.summary.ops[i];
    text += fmt::format("{:<24} {:>6} {:>9} {:>7.1f} {:>9} {:>7.1f}\n",
                        op.op,
                        op.nodes,
                        scaled(op.cost.flops),
                        total.flops > 0 ? 100 * op.cost.flops / total.flops : 0,
                        scaled(op.cost.bytes),
                        total.bytes > 0 ? 100 * op.cost.bytes / total.bytes : 0);
  }
  if (shown < entry.summary.ops.size())
    text += fmt::format("... {} more\n", entry.summary.ops.size() - shown);
  return text;
}

std::string nodes_text(const CompiledFacts& facts, size_t entry) {
  const std::vector<NodeCost> costs = nodes_by_cost(facts, entry);
  const Cost& total = facts.entries.at(entry).summary.total;
  std::string text = fmt::format(
      "\n{:<24} {:>9} {:>7} {:>9}  {}\n", "launches by cost", "FLOP", "%", "bytes", "site");
  const size_t shown = std::min(kReportRows, costs.size());
  for (size_t i = 0; i < shown; ++i)
    text += fmt::format("{:<24} {:>9} {:>7.1f} {:>9}  {}  {}\n",
                        costs[i].op,
                        scaled(costs[i].cost.flops),
                        total.flops > 0 ? 100 * costs[i].cost.flops / total.flops : 0,
                        scaled(costs[i].cost.bytes),
                        costs[i].site,
                        costs[i].type);
  if (shown < costs.size()) text += fmt::format("... {} more\n", costs.size() - shown);
  return text;
}

std::string memory_text(const CompiledFacts& facts) {
  const Plan& plan = facts.program.plan;
  std::string text = "\nmemory\n";
  const auto row = [&text](std::string_view name, int64_t bytes, std::string_view remark) {
    text += fmt::format(
        "  {:<12} {:>11}{}{}\n", name, bytes_text(bytes), remark.empty() ? "" : "  ", remark);
  };
  for (StateRole role : kRoles)
    if (const int64_t bytes = role_bytes(plan, role); bytes > 0) row(name_of(role), bytes, "");
  row("state", plan.state_bytes, "all of the above, aligned");
  if (plan.lent_bytes > 0)
    row("of it", plan.lent_bytes, "is read where the model has it already, and takes no memory");
  if (plan.passing_bytes > 0)
    row("of it",
        plan.passing_bytes,
        "is packed into others, and in memory only while that is done");
  row("arena",
      plan.arena_bytes,
      fmt::format("shared by the entries; '{}' needs the most", largest_entry(facts).name));
  if (plan.staging_bytes > 0)
    row("staging", plan.staging_bytes, "inputs on their way while a step runs: two slots each");
  row("planned",
      plan.total_bytes(),
      fmt::format("{} is the least possible in this order", bytes_text(plan.lower_bound_bytes())));
  return text;
}

std::string map_text(const CompiledFacts& facts, const EntryFacts& entry) {
  const MapScale scale{entry.live.size()};
  const int64_t most = entry.live[static_cast<size_t>(entry.peak_step)];
  std::string text = fmt::format("\narena of '{}': {}, most live {}: {} in {} buffers\n",
                                 entry.name,
                                 bytes_text(entry.peak_bytes),
                                 step_text(facts, entry),
                                 bytes_text(most),
                                 entry.at_peak.size());
  text += fmt::format("  {:>10} {:>5}  {} live, in tenths of the most (*)\n",
                      "bytes",
                      "%",
                      profile_line(entry, scale));
  const size_t shown = std::min(kReportRows, entry.at_peak.size());
  int64_t rest = most;
  for (size_t i = 0; i < shown; ++i) {
    const PeakBuffer& buffer = entry.at_peak[i];
    rest -= buffer.bytes;
    text += fmt::format("  {:>10} {:>5.1f}  {} {}{}{}\n",
                        bytes_text(buffer.bytes),
                        100 * static_cast<double>(buffer.bytes) / static_cast<double>(most),
                        life_line(buffer, scale),
                        buffer.site,
                        buffer.type.empty() ? " (workspace)" : " ",
                        buffer.type);
  }
  if (shown < entry.at_peak.size())
    text += fmt::format("  {:>10} {:>5.1f}  in {} more\n",
                        bytes_text(std::max<int64_t>(0, rest)),
                        100 * static_cast<double>(rest) / static_cast<double>(most),
                        entry.at_peak.size() - shown);
  return text;
}

std::string passes_text(const CompiledFacts& facts) {
  const auto& passes = facts.program.passes;
  const size_t each = passes.size() / std::max<size_t>(1, facts.entries.size());
  std::string text = fmt::format("\n{:<18}", "nodes after pass");
  for (const EntryFacts& entry : facts.entries) text += fmt::format(" {:>10}", entry.name);
  text += fmt::format(" {:>9}\n{:<18}", "ms", "(before)");
  for (size_t e = 0; e < facts.entries.size() && each > 0; ++e)
    text += fmt::format(" {:>10}", passes[e * each].nodes_before);
  text += "\n";
  for (size_t p = 0; p < each; ++p) {
    text += fmt::format("{:<18}", passes[p].name);
    double seconds = 0;
    for (size_t e = 0; e < facts.entries.size(); ++e) {
      const PassReport& pass = passes[e * each + p];
      seconds += pass.seconds;
      text += pass.changed ? fmt::format(" {:>10}", pass.nodes_after) : fmt::format(" {:>10}", "-");
    }
    text += fmt::format(" {:>9.2f}\n", 1e3 * seconds);
  }
  // Some passes ask what a kernel needs: the first to ask is no slower for that.
  double choosing = 0;
  for (const PassReport& pass : passes) choosing += pass.choosing_seconds;
  if (choosing > 0)
    text += fmt::format(
        "{:<{}} {:>9.2f}\n", "choosing kernels", 18 + 11 * facts.entries.size(), 1e3 * choosing);
  return text;
}

std::string graphs_text(const CompiledFacts& facts) {
  std::string text;
  for (const Graph& graph : facts.program.graphs.entries) text += "\n" + print(graph);
  return text;
}

std::string plan_text(const CompiledFacts& facts, bool is_on_gpu) {
  return choices_text(facts) + bits_text(facts, is_on_gpu) + paddings_text(facts) + "\n" +
         print(facts.program.plan);
}

}  // namespace ridge
