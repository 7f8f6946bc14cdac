#include "ridge/train/verify.h"

#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/train/run_kernels.h"

namespace ridge {
namespace {

// By which losses of both programs may differ where bits may: by another order of sums in f32, or
// by what products are rounded to.
constexpr double kF32Tolerance = 1e-3, kLowTolerance = 0.02;

// The inputs that the entry's graph would see: the state, and data of the right form for the rest.
NamedTensors inputs_of(const Graph& graph, const TrainingRun& run, const NamedTensors& data) {
  NamedTensors inputs;
  for (const Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    if (run.program().state().has(name))
      inputs.emplace(name, run.program().state().read(name));
    else
      inputs.emplace(name, data.at(name));
  }
  return inputs;
}

NamedTensors data_of(const Task& task,
                     const TrainingRun& run,
                     const Graph& graph,
                     const TrainConfig& config,
                     const data::Batch& batch) {
  NamedTensors data;
  for (const Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    if (run.program().state().has(name)) continue;
    Tensor tensor(node->outputs[0]);
    if (name == "x" || name == "y")
      std::memcpy(tensor.data(), batch.fields[name == "y"], tensor.bytes());
    else if (name == "rng")
      tensor.set(0, static_cast<double>(config.train.seed));
    else
      task.training->set_hyper(config.schedule, {.step = 0, .total_steps = 1000}, tensor);
    data.emplace(name, std::move(tensor));
  }
  return data;
}

// The graphs of a step of at most kComparedSamples: the reference backend is slow.
std::vector<Graph> compared_graphs(const Task& task, Backend& backend) {
  nn::ProgramSizes sizes;
  const bool accumulates = !task.sizes.micro.empty();
  auto& size = accumulates ? sizes.micro : sizes.step;
  const int64_t samples = (accumulates ? task.sizes.micro : task.sizes.step).front().samples;
  size = {std::min(samples, kComparedSamples)};
  return std::move(
      compile_program(task.training->program(sizes), backend, plain_options()).graphs.entries);
}

// Every node of the graphs of the first step, on its first samples, against the reference; empty
// when all agree.
std::string compare_nodes(const Task& task,
                          const TrainingRun& plain,
                          const TrainConfig& config,
                          const data::Batch& batch,
                          Backend& backend) {
  const auto reference = make_backend("ref");
  for (const Graph& graph : compared_graphs(task, backend)) {
    const NamedTensors data = data_of(task, plain, graph, config, batch);
    const std::string text =
        node_differences(graph, inputs_of(graph, plain, data), backend, *reference);
    if (!text.empty()) return fmt::format("entry '{}' against ref: {}", graph.name(), text);
  }
  return {};
}

bool agree(double a, double b, double tolerance) {
  return std::fabs(a - b) <= tolerance * std::fmax(1.0, std::fabs(b));
}

// A loss in parts is the same loss, and its gradient the same but for the order of sums: both
// against the first step of a program that has it in one.
std::string compare_with_whole_loss(const Task& task,
                                    const TrainConfig& config,
                                    const data::Batch& batch,
                                    const StepResult& in_parts,
                                    Backend& backend) {
  TrainingRun whole(task, config, backend, plain_options());
  const StepResult want = whole.settled_step(batch, 0, 1000);
  if (agree(in_parts.loss, want.loss, 1e-5) && agree(in_parts.grad_norm, want.grad_norm, 1e-4))
    return {};
  return fmt::format(
      "step 1: a loss in {} parts is not the loss; loss {:.17g} and {:.17g}, norm of the gradient "
      "{:.17g} and {:.17g}",
      config.train.loss_chunks,
      in_parts.loss,
      want.loss,
      in_parts.grad_norm,
      want.grad_norm);
}

// The plain program as the configuration would have it without timing.
ProgramOptions plainest_options(const ProgramOptions& options) {
  ProgramOptions plainest = plain_options();
  plainest.passes.loss_chunks = options.passes.loss_chunks;
  plainest.plan.choose = [](const Node&, const std::vector<Choice>& choices) {
    return same_bits_choice(choices);
  };
  return plainest;
}

// Why the two programs may differ in their last bits; empty: they may not.
std::string why_not_bits(const ProgramOptions& options,
                         const TrainingRun& planned,
                         const TrainingRun& plain,
                         const Backend& backend) {
  if (options.passes.precision != DType::kF32)
    return fmt::format("products are in {}", name_of(options.passes.precision));
  if (options.passes.tf32) return "products are in tf32";
  if (options.passes.highest != SemanticClass::kBitIdentical) return "sums may be reordered";
  for (const TrainingRun* run : {&planned, &plain})
    if (const size_t count = launches_of_other_bits(run->program(), backend); count > 0)
      return fmt::format(
          "kernels of {} launch{} have bits of their own", count, count == 1 ? "" : "es");
  return {};
}

}  // namespace

VerifyReport verify_training(const Task& task,
                             const TrainConfig& config,
                             Backend& backend,
                             const ProgramOptions& options) {
  TrainingRun planned(task, config, backend, options);
  TrainingRun plain(task, config, backend, plainest_options(options));
  const std::string why_not = why_not_bits(options, planned, plain, backend);
  const bool same_bits = why_not.empty();
  const bool is_f32 = options.passes.precision == DType::kF32 && !options.passes.tf32;
  const double tolerance = is_f32 ? kF32Tolerance : kLowTolerance;
  data::LoaderOptions inline_loading;
  inline_loading.workers = 0;
  data::Loader loader(*task.train_data, batch_plan(config), inline_loading);
  for (int step = 0; step < kVerifiedSteps; ++step) {
    const data::Batch& batch = loader.next();
    if (step == 0) {
      const std::string text = compare_nodes(task, plain, config, batch, backend);
      if (!text.empty()) return {false, text};
    }
    const StepResult a = planned.settled_step(batch, step, 1000);
    const StepResult b = plain.settled_step(batch, step, 1000);
    if (same_bits ? planned.state_hash() != plain.state_hash() : !agree(a.loss, b.loss, tolerance))
      return {false,
              fmt::format("step {}: the planned program and the plain one differ; loss {:.17g} "
                          "and {:.17g}",
                          step + 1,
                          a.loss,
                          b.loss)};
    if (step > 0 || options.passes.loss_chunks == 1) continue;
    const std::string text = compare_with_whole_loss(task, config, batch, b, backend);
    if (!text.empty()) return {false, text};
  }
  return {
      true,
      fmt::format(
          "{} steps {} the plain program's{}; every node of a step of {} samples within "
          "tolerance of ref",
          kVerifiedSteps,
          same_bits ? "have the same bits as" : "agree in loss with",
          same_bits ? ""
                    : fmt::format(" to {:g} %, not bit by bit, since {}", 100 * tolerance, why_not),
          std::min(micro_batch_size(config.train.batch, config.train.micro, 0), kComparedSamples))};
}

}  // namespace ridge
