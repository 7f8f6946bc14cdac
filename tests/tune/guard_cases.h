// Small training programs for tests of the guard, and ways to spoil them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/rewrite.h"
#include "ridge/tune/engine/guard/guard.h"
#include "tests/train/train_runs.h"

namespace ridge::test {

inline constexpr int64_t kGuardedSteps = 60;

inline TrainConfig guarded_config(const std::string& kind, uint64_t seed = 7) {
  TrainConfig config = small_config(kind);
  config.optimizer.lr = 0.003;
  config.schedule = {.kind = nn::ScheduleKind::kCosine, .warmup = 6, .final_ratio = 0.1};
  config.train.seed = seed;
  config.train.steps = kGuardedSteps;
  config.data.samples = 300;  // the last batch of an epoch has 12 of 16
  return config;
}

/// A GPT with enough numbers a tensor for the roundings of bf16 to average out.
inline TrainConfig wide_gpt(int64_t micro) {
  TrainConfig config = guarded_config("gpt");
  config.model.gpt = {
      .vocab = 61, .context = 16, .layers = 1, .heads = 2, .width = 32, .dropout = 0.1};
  config.data.shape = {16};
  config.data.classes = 61;
  config.train.micro = micro;
  return config;
}

/// A training run that something is done to around each step.
class Spoiled : public TrainingVariant {
 public:
  explicit Spoiled(const TrainConfig& config, TrainingVariantOptions options = {})
      : TrainingVariant(config, with_steps(std::move(options))) {}
  double step(const data::Batch& batch, int64_t step) override {
    return around(*this, batch, step);
  }
  double plain_step(const data::Batch& batch, int64_t step) {
    return TrainingVariant::step(batch, step);
  }
  std::function<double(Spoiled&, const data::Batch&, int64_t)> around;

 private:
  static TrainingVariantOptions with_steps(TrainingVariantOptions options) {
    options.total_steps = kGuardedSteps;
    return options;
  }
};

/// Guards `candidate` against `reference` on the data of the latter.
class GuardRun {
 public:
  explicit GuardRun(const TrainConfig& reference,
                    SemanticClass semantic_class = SemanticClass::kReassociation)
      : config_(reference),
        dataset_(data::open_dataset(reference.data, data::Split::kTrain)),
        reference_(config_, {.total_steps = kGuardedSteps}),
        oracle_(oracle_config(config_), {.total_steps = kGuardedSteps}) {
    options.semantic_class = semantic_class;
    options.optimizer = reference.optimizer;
    options.schedule = reference.schedule;
    options.total_steps = kGuardedSteps;
  }

  using Entry = GuardReport (*)(const GuardVariants&, const GuardData&, const GuardOptions&);
  GuardReport operator()(Variant& candidate, Entry entry = guard) {
    const GuardData data{.dataset = dataset_.get(),
                         .plan = {.batch = config_.train.batch,
                                  .shuffle = config_.train.shuffle,
                                  .seed = config_.train.seed,
                                  .drop_last = config_.train.drop_last},
                         .loader = {.workers = 0}};
    return entry({reference_, candidate, oracle_}, data, options);
  }
  GuardReport operator()(const TrainConfig& candidate, TrainingVariantOptions with = {}) {
    with.total_steps = kGuardedSteps;
    TrainingVariant variant(candidate, with);
    return (*this)(variant);
  }

  GuardOptions options;

 private:
  TrainConfig config_;
  std::unique_ptr<data::Dataset> dataset_;
  TrainingVariant reference_, oracle_;
};

/// Replaces output `name` of each entry whose name begins with `entry`. `change` gets the new graph
/// and the node that made the output, its inputs already of the new graph.
using ChangeOutput = std::function<Value(Graph& graph, Node& made_by)>;
inline void change_output(ProgramGraphs& program,
                          const std::string& entry,
                          const std::string& name,
                          const ChangeOutput& change) {
  for (Graph& graph : program.entries) {
    if (!graph.name().starts_with(entry)) continue;
    Rewrite rewrite(graph);
    for (const auto& node : graph.nodes()) rewrite.copy(*node);
    const SiteScope scope(rewrite.to(), "changed." + name, SiteScope::Path::kAbsolute);
    for (const Output& output : graph.outputs())
      if (output.name == name)
        rewrite.redirect(name, change(rewrite.to(), *rewrite.mapped(output.value).node));
    graph = rewrite.finish();
  }
}

/// Multiplies the gradients that entries add to the buffer of `parameter`.
inline void scale_gradient(ProgramGraphs& program,
                           const std::string& entry,
                           const std::string& parameter,
                           double factor) {
  change_output(program, entry, parameter + ".grad.new", [&](Graph&, Node& add) {
    return add.inputs[0] + add.inputs[1] * factor;
  });
}

}  // namespace ridge::test
