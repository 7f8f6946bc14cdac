// Heads with padded rows on a simulated GPU: kernels that never use what lies in the padding, and
// training with the losses of the CPU.
#include "ridge/compile/passes/pad_head.h"

#include <limits>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/train/training_run.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

class CudaPadHead : public SimulatedGpu {};

// Losses of padded logits in 16 bits, their gradient in 16 bits, and the guesses, as the passes
// leave them.
void build_loss(CaseBuilder& b, int64_t rows, int64_t columns, int64_t stride, double padding) {
  std::vector<double> logits;
  for (int64_t i = 0; i < rows * stride; ++i)
    logits.push_back(i % stride < columns ? b.random().uniform(-3.0, 3.0) : padding);
  const Value l = b.given({DType::kBF16, {rows, stride}}, logits);
  const Value y = b.indices(DType::kI64, {rows}, 0, columns - 1);
  const Value k =
      mask_columns(cast(l, DType::kF32), columns, -std::numeric_limits<double>::infinity());
  const Value max = reduce_max(k, {1}, /*keepdims=*/true);
  const Value e = exp(k - max);
  const Value sum = reduce_sum(e, {1}, /*keepdims=*/true);
  Pick op;
  op.limit = columns;
  const Value own = cast(add_node(std::move(op), {l, y}), DType::kF32);
  const Value loss = log(reshape(sum, {rows})) - (own - reshape(max, {rows}));
  const Value gradient = e * (constant_like(sum, 1.0) / sum) - one_hot(y, stride);
  ArgMax guess;
  guess.axis = 1;
  guess.limit = columns;
  b.finish({loss, cast(gradient, DType::kBF16), add_node(std::move(guess), {l})});
}

TEST_F(CudaPadHead, NoKernelUsesWhatLiesInThePadding) {
  const auto gpu = make_backend_cuda();
  const auto ref = make_backend("ref");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // Rows that share a block, and such as take one, of several pieces.
  for (const auto& [rows, columns, stride] :
       {std::tuple<int64_t, int64_t, int64_t>{6, 300, 320}, {3, 2100, 2112}}) {
    SCOPED_TRACE(columns);
    std::map<bool, NamedTensors> results;
    for (const bool has_nan : {false, true}) {
      CaseBuilder b(DType::kBF16, 11);
      build_loss(b, rows, columns, stride, has_nan ? kNan : 0.0);
      Graph graph = b.graph().clone();
      run_pipeline(graph, *gpu, {});
      int loops = 0;
      for (const auto& node : graph.nodes()) loops += node->is<Fused>() ? 1 : 0;
      EXPECT_EQ(loops, 1);
      EXPECT_EQ(node_differences(graph, b.tensors(), *gpu, *ref), "");
      results[has_nan] = evaluate(graph, *gpu, b.tensors());
    }
    EXPECT_EQ(bit_difference(results[true], results[false]), "");
    const Tensor& gradient = results[true].at("y1");
    for (int64_t i = 0; i < gradient.elements(); ++i)
      if (i % stride >= columns) {
        ASSERT_EQ(gradient.at(i), 0.0) << i;
      }
  }
}

TrainConfig tiny_gpt(int64_t vocab, Precision precision, int64_t micro) {
  TrainConfig config;
  config.model.kind = nn::ModelKind::kGpt;
  config.model.gpt = {.vocab = vocab, .context = 8, .layers = 1, .heads = 2, .width = 16};
  config.data.kind = data::DataKind::kRandom;
  config.data.tokens = true;
  config.data.shape = {8};
  config.data.classes = vocab;
  config.data.samples = 40;
  config.data.eval_fraction = 0.1;
  config.optimizer.lr = 0.01;
  config.train.seed = 3;
  config.train.batch = config.train.eval_batch = 4;
  config.train.steps = 3;
  config.train.micro = micro;
  config.train.precision = precision;
  return config;
}

struct Trained {
  std::vector<double> losses;
  double eval_loss = 0;
  double correct = 0;
  size_t padded = 0;  ///< Heads, in all entries.
};

// The evaluation is of the batch of the last step, of which some is learned by then.
Trained train_on(Backend& backend, const TrainConfig& config, bool pads = true) {
  const Task task = open_task(config);
  ProgramOptions options = program_options(config, task);
  if (!pads) options.passes.off.emplace_back("pad_head");
  Trained trained;
  const CompiledProgram compiled =
      compile_program(task.training->program(task.sizes), backend, options);
  for (const Graph& graph : compiled.graphs.entries) trained.padded += head_paddings(graph).size();
  data::Loader loader(
      *task.train_data, batch_plan(config), config.loader, {}, batch_memory(backend));
  TrainingRun run(task, config, backend, options);
  const data::Batch* batch = nullptr;
  for (int64_t step = 0; step < config.train.steps; ++step) {
    batch = &loader.next();
    trained.losses.push_back(run.train_step(*batch, step, config.train.steps).loss);
  }
  StepResult sums;
  run.evaluate(*batch, sums);
  trained.eval_loss = sums.loss;
  trained.correct = sums.correct;
  return trained;
}

// The CPU rounds what products read, the device what they make too: 2^-8 in bf16 and 2^-11 in fp16.
TEST_F(CudaPadHead, PaddedHeadsGiveTheLossesOfTheCpu) {
  struct Case {
    int64_t vocab;
    Precision precision;
    int64_t micro;
    double bound;
    size_t padded;  // in step, or micro, and eval
  };
  const Case all[] = {{257, Precision::kBf16, 1, 0x1p-6, 2},
                      {300, Precision::kFp16, 2, 0x1p-9, 2},
                      {257, Precision::kF32, 1, 1e-5, 0},
                      {101, Precision::kBf16, 1, 0x1p-6, 0}};
  const size_t few = is_full_scale() ? std::size(all) : 2;
  const auto cpu = make_backend("cpu");
  for (const Case& each : std::span(all).first(few)) {
    SCOPED_TRACE(fmt::format("{} columns in {}", each.vocab, name_of(each.precision)));
    const TrainConfig config = tiny_gpt(each.vocab, each.precision, each.micro);
    const auto gpu = make_backend_cuda();
    const Trained got = train_on(*gpu, config), want = train_on(*cpu, config);
    EXPECT_EQ(got.padded, each.padded);
    EXPECT_EQ(want.padded, 0u);
    for (size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], want.losses[i], each.bound * want.losses[i]) << i;
    EXPECT_NEAR(got.eval_loss, want.eval_loss, each.bound * want.eval_loss);
    if (got.padded > 0) {
      const Trained plain = train_on(*gpu, config, /*pads=*/false);
      EXPECT_EQ(plain.padded, 0u);
      EXPECT_EQ(got.correct, plain.correct);
      EXPECT_GT(got.correct, 0);
    }
  }
}

}  // namespace
}  // namespace ridge::test
