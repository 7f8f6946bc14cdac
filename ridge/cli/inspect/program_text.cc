// The report of `ridge inspect CONFIG` for people.
#include "ridge/cli/common/output.h"
#include "ridge/cli/inspect/compiled_text.h"
#include "ridge/cli/inspect/program_facts.h"

namespace ridge {
namespace {

std::string parameters_text(const ProgramFacts& facts, bool all) {
  const auto& specs = facts.task.training->parameters();
  std::string text = fmt::format("model {} on {}, {}: {} parameters in {} tensors, {}\n\n",
                                 name_of(facts.config.model.kind),
                                 facts.config.train.device,
                                 name_of(facts.config.train.precision),
                                 grouped(facts.parameters),
                                 specs.size(),
                                 bytes_text(facts.parameter_bytes));
  if (!facts.memory_limit.empty()) text += facts.memory_limit + "\n\n";
  text += fmt::format("{:<32} {:<20} {}\n", "parameter", "type", "starts as");
  const size_t shown = all || specs.size() <= kReportRows + 1 ? specs.size() : kReportRows;
  for (size_t i = 0; i < shown; ++i)
    text += fmt::format(
        "{:<32} {:<20} {}\n", specs[i].name, to_string(specs[i].type), initial_text(specs[i].init));
  if (shown < specs.size())
    text += fmt::format("... {} more; --nodes lists all\n", specs.size() - shown);
  return text;
}

// The limit of memory, and memory that is not in the plan.
std::string limits_text(const ProgramFacts& facts) {
  std::string text;
  if (const auto& most = facts.largest_micro_batch)
    text += fmt::format(
        "  the largest micro-batch within train.memory_limit: {} samples need {}, {} need {}\n",
        most->samples,
        bytes_text(most->bytes),
        most->samples + 1,
        bytes_text(most->next_bytes));
  text += fmt::format(
      "  not included: what the loader keeps ready (up to {} batches of {}) and its caches\n",
      facts.config.loader.prefetch,
      bytes_text(facts.batch_bytes));
  return text;
}

}  // namespace

std::string program_text(const ProgramFacts& facts, const InspectOptions& options) {
  const EntryFacts& largest = largest_entry(facts);
  std::string text = parameters_text(facts, options.nodes) + entries_text(facts) +
                     ops_text(largest) + memory_text(facts) + limits_text(facts) +
                     map_text(facts, largest) + passes_text(facts);
  text += facts.batch.separable
              ? "\nmicro-batches: separable\n"
              : fmt::format("\nmicro-batches: not separable; {}\n", facts.batch.reason);
  text += fmt::format("plan {}\n", plan_hash(facts.program.plan));
  if (options.nodes) text += graphs_text(facts);
  if (options.plan) text += plan_text(facts, facts.config.train.is_on_gpu());
  return text;
}

}  // namespace ridge
