#include "ridge/tune/onnx/model_variant.h"

#include <algorithm>
#include <set>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/weights.h"
#include "ridge/run/observer.h"
#include "ridge/run/program.h"
#include "ridge/run/state.h"
#include "ridge/train/process_memory.h"
#include "ridge/tune/onnx/wide_source.h"

namespace ridge {
namespace {

std::set<std::string> changing_passes(const std::vector<PassReport>& reports) {
  std::set<std::string> names;
  for (const PassReport& report : reports) {
    const auto pass = std::ranges::find(pipeline(), report.name, &PassInfo::name);
    if (report.changed && pass != pipeline().end() && !pass->required) names.emplace(report.name);
  }
  return names;
}

}  // namespace

ModelVariant::ModelVariant(const std::function<LoadedModel()>& open,
                           const ModelRecipe& recipe,
                           ModelSamples samples)
    : samples_(std::move(samples)),
      batch_(recipe.batch.value_or(1)),
      callers_(static_cast<size_t>(recipe.instances)) {
  release_free_memory();
  const bool has_peak = reset_peak_resident_bytes();
  const int64_t resident = resident_bytes(), start = now_ns();
  // A recipe that changes nothing is the session as it is, with the picks that are kept.
  ProgramLimits limits = limits_of(recipe, 2);
  if (recipe.empty()) limits.choices.reset();
  session_ = std::make_unique<ModelSession>(open(), limits);
  if (batch_ > 1 && samples_.rows.empty())
    throw UserError("the model has no dimension of samples, which a batch could have more of",
                    "leave out the batch");
  for (size_t i = 0; i < callers_.count(); ++i)
    data_.push_back(
        batch_of(samples_, session_->inputs(), i * static_cast<size_t>(batch_), batch_));
  session_->run(data_[0]);
  facts_.first_seconds = static_cast<double>(now_ns() - start) * 1e-9;
  if (has_peak && resident > 0) facts_.peak_bytes = peak_resident_bytes() - resident;
  Binding sizes = samples_.sizes;
  if (!samples_.rows.empty()) sizes[samples_.rows] = batch_;
  session_->inspect(sizes, [this](const Program& program) { read_facts(program); });
}

void ModelVariant::read_facts(const Program& program) {
  const Plan& plan = program.plan();
  const Backend& backend = session_->model().state->backend();
  const Graph& graph = program.entries().at(0);
  facts_.plan_hash = plan_hash(plan);
  facts_.planned_bytes = plan.total_bytes();
  facts_.state_bytes = plan.state_bytes - plan.passing_bytes;
  facts_.arena_bytes = plan.arena_bytes;
  for (const auto& [hash, name] : named_kernels(graph, plan.entries.at(0), backend))
    facts_.kernels.push_back(hash + " " + name);
  const std::set<std::string> passes = changing_passes(program.passes());
  facts_.passes.assign(passes.begin(), passes.end());
  std::set<std::string> replaceable;
  bool has_products = false;
  for (const PlanStep& step : plan.entries.at(0).steps) {
    const Node& node = *graph.nodes()[static_cast<size_t>(step.node)];
    has_products = has_products || step.op.find("matmul") != std::string::npos;
    const std::vector<Choice> choices = backend.candidates(node);
    bool has_packed = false;
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice& choice = choices[i];
      has_packed = has_packed || !backend.packed_operands(node, i).empty();
      if (choice.name == step.choice_name) continue;
      const bool has_same = choice.bits == choices[step.choice].bits;
      (has_same ? facts_.has_alternatives : facts_.has_other_bits) = true;
    }
    if (has_packed && choices.size() > 1) replaceable.insert(step.choice_name);
  }
  facts_.replaceable.assign(replaceable.begin(), replaceable.end());
  facts_.has_bf16 = has_products && cpu_info().bf16;
}

Block ModelVariant::run(int64_t runs, std::vector<double>& seconds) {
  std::vector<std::vector<double>> times(callers_.count());
  const double stolen = stolen_seconds();
  const int64_t begun = now_ns();
  callers_.run([&](size_t caller) {
    times[caller].reserve(static_cast<size_t>(runs));
    for (int64_t i = 0; i < runs; ++i) {
      const int64_t start = now_ns();
      session_->run(data_[caller]);
      times[caller].push_back(static_cast<double>(now_ns() - start) * 1e-9);
    }
  });
  const Block block{.seconds = static_cast<double>(now_ns() - begun) * 1e-9,
                    .stolen_seconds = stolen_seconds() - stolen};
  for (const std::vector<double>& each : times)
    seconds.insert(seconds.end(), each.begin(), each.end());
  return block;
}

SampleOutputs ModelVariant::outputs(size_t count) {
  SampleOutputs outputs;
  while (outputs.size() < count)
    for (NamedTensors& row :
         rows_of(session_->run(batch_of(samples_, session_->inputs(), outputs.size(), batch_)),
                 samples_.rows,
                 batch_))
      outputs.push_back(std::move(row));
  outputs.resize(count);
  return outputs;
}

LoadedModel load_for(ModelRole role, const std::string& path) {
  TrainObserver nobody;
  if (role == ModelRole::kSession) return load_onnx_model(path, {}, nobody);
  auto model = std::make_shared<const OnnxSource>(OnnxModel(path), ConvNorms::kAsWritten);
  const auto operands =
      role == ModelRole::kControl ? std::optional(DType::kBF16) : std::optional<DType>();
  return {.source = std::make_shared<const WideSource>(std::move(model), operands),
          .state = make_state(open_backend("cpu", nobody)),
          .weights = path};
}

ModelRecipe recipe_for(ModelRole role, const ModelRecipe& recipe) {
  if (role == ModelRole::kSession) return recipe;
  ModelRecipe plain;
  plain.choices.passes_off = {"all"};
  return plain;
}

}  // namespace ridge
