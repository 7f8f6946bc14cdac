#include "ridge/cli/inspect_program.h"

#include <algorithm>

#include "ridge/compile/live_ranges.h"
#include "ridge/run/backends.h"
#include "ridge/train/memory_limit.h"

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
                       const Tuner& tuner,
                       KernelRange kernels) {
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
    const NodeTimes* times = tuner.times(node, kernels);
    facts.times.push_back(times != nullptr
                              ? *times
                              : NodeTimes{.candidates = {{step.choice_name, 0, ""}}, .pick = 0});
  }
  return facts;
}

}  // namespace

ProgramFacts inspect_program(const TrainConfig& config, Tuning& tuning) {
  ProgramFacts facts{.config = config, .task = open_task(config)};
  facts.task.choose = tuning.choose(kernels_of(config));
  const auto backend = make_backend(config.train.device,
                                    [&](const std::string& note) { facts.notes.push_back(note); });
  facts.memory_limit = apply_memory_limit(facts.config, facts.task, *backend);
  facts.program = compile_program(facts.task.training->program(facts.task.sizes),
                                  *backend,
                                  program_options(config, facts.task));
  const Plan& plan = facts.program.plan;
  for (size_t i = 0; i < plan.entries.size(); ++i)
    facts.entries.push_back(entry_facts(plan.entries[i],
                                        facts.program.graphs.entries[i],
                                        *backend,
                                        tuning.tuner(),
                                        kernels_of(config)));
  for (const nn::ParameterSpec& spec : facts.task.training->parameters()) {
    facts.parameters += spec.type.elements();
    facts.parameter_bytes += spec.type.bytes();
  }
  for (const data::FieldType& field : facts.task.train_data->fields())
    facts.batch_bytes += field.bytes() * config.train.batch;
  facts.batch = facts.task.training->batch_report(
      micro_batch_size(config.train.batch, facts.config.train.micro, 0));
  if (config.train.memory_limit > 0 && facts.batch.separable)
    facts.largest_micro_batch =
        largest_micro_batch(facts.config, facts.task, *backend, config.train.memory_limit << 20);
  return facts;
}

const EntryFacts& largest_entry(const ProgramFacts& facts) {
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

std::string initial_text(const Initializer& init) {
  switch (init.kind) {
    case Initializer::Kind::kUniform:
      return fmt::format("uniform {:.3g}", init.scale);
    case Initializer::Kind::kNormal:
      return fmt::format("normal {:.3g}", init.scale);
    default:
      return fmt::format("{:.3g}", init.scale);
  }
}

}  // namespace ridge
