#include "ridge/cli/inspect/program_facts.h"

#include "ridge/run/backends.h"
#include "ridge/train/memory_limit.h"

namespace ridge {

ProgramFacts inspect_program(const TrainConfig& config, Tuning& tuning) {
  ProgramFacts facts{{}, config, open_task(config)};
  facts.task.choose = tuning.choose(kernels_of(config));
  const auto backend = make_backend(config.train.device,
                                    [&](const std::string& note) { facts.notes.push_back(note); });
  facts.memory_limit = apply_memory_limit(facts.config, facts.task, *backend);
  facts.program = compile_program(facts.task.training->program(facts.task.sizes),
                                  *backend,
                                  program_options(config, facts.task));
  const KernelRange kernels = kernels_of(config);
  add_entries(
      facts, *backend, [&](const Node& node) { return tuning.tuner().times(node, kernels); });
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
