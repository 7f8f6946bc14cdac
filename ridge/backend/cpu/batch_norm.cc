// Batch norm and its gradient: the steps of isa/batch_norm.cc in parallel.
#include "ridge/graph/ops/batch_norm.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/batch_norm_plan.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

// Elements a thread takes at a time.
constexpr int64_t kGrain = 16384;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

const BatchNormKernels& batch_norm_kernels() {
  return for_isa(avx2::batch_norm_kernels, avx512::batch_norm_kernels);
}

BatchNormPlan::BatchNormPlan(const TensorType& x, DType channels, double eps, NormActivation act)
    : dtype(static_cast<size_t>(x.dtype)), activation(static_cast<size_t>(act)) {
  data.channels = x.shape.back();
  data.rows = x.elements() / data.channels;
  data.eps = eps;
  data.wide_channels = channels != x.dtype;
  // Sums of so many rows in f32 are exact enough; beyond that they are in f64.
  const int64_t columns = std::min(data.channels, kNormColumns);
  data.chunk = std::clamp<int64_t>(32768 / columns, 64, 512);
  chunks = ceil_div(data.rows, data.chunk);
  tiles = ceil_div(data.channels, kNormColumns);
  tile_grain = std::max<int64_t>(1, kGrain / (std::min(data.chunk, data.rows) * columns));
  row_grain = std::max<int64_t>(1, kGrain / data.channels);
}

BatchNormData BatchNormPlan::carve(Workspace& space) const {
  BatchNormData bound = data;
  bound.chunk_first = space.take<double>(chunks * data.channels);
  bound.chunk_second = space.take<double>(chunks * data.channels);
  const bool wide = dtype == static_cast<size_t>(DType::kF64);
  bound.table = space.take<char>(kNormTables * data.channels * (wide ? 8 : 4));
  return bound;
}

size_t BatchNormPlan::workspace_bytes() const {
  Workspace space(nullptr);
  carve(space);
  return space.used();
}

void BatchNormPlan::sum(const BatchNormSteps& steps, const BatchNormData& bound) const {
  const auto step = [&](int64_t n, int64_t grain, BatchNormStep each) {
    parallel_for(n, grain, [&](int64_t begin, int64_t end) { each(bound, begin, end); });
  };
  steps.prepare(bound, 0, bound.channels);
  step(chunks * tiles, tile_grain, steps.collect);
  step(tiles, 1, steps.combine);
}

void BatchNormPlan::run(const BatchNormSteps& steps, const BatchNormData& bound) const {
  sum(steps, bound);
  // From the end on, which the first step has left in the caches.
  const int64_t blocks = ceil_div(data.rows, row_grain);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = (blocks - 1 - i) * row_grain;
      steps.write(bound, first, std::min(data.rows, first + row_grain));
    }
  });
}

void bind_forward(std::span<const void* const> inputs,
                  std::span<void* const> stats,
                  BatchNormData& data) {
  data.x = inputs[0];
  data.gamma = inputs[1];
  data.beta = inputs[2];
  data.mean = stats[0];
  data.variance = stats[1];
}

void bind_backward(std::span<const void* const> inputs,
                   std::span<void* const> gradients,
                   BatchNormData& data) {
  data.x = inputs[0];
  data.gamma = inputs[1];
  data.beta = inputs[2];
  data.mean = const_cast<void*>(inputs[3]);
  data.variance = const_cast<void*>(inputs[4]);
  data.dy = inputs[5];
  data.dgamma = gradients[0];
  data.dbeta = gradients[1];
}

namespace {

std::unique_ptr<HostKernel> make_batch_norm(const Node& node) {
  const auto& op = node.op_as<BatchNorm>();
  const BatchNormPlan plan(node.inputs[0].type(),
                           node.inputs[1].dtype(),
                           op.eps,
                           norm_activation(op.activation, BatchNorm::kTraits.name));
  return std::make_unique<HostKernel>(
      [plan](const KernelArgs& args) {
        Workspace space(args.workspace);
        BatchNormData data = plan.carve(space);
        bind_forward(args.inputs, args.outputs.subspan(1), data);
        data.result = args.outputs[0];
        plan.run(batch_norm_kernels().forward[plan.dtype][plan.activation], data);
      },
      plan.workspace_bytes());
}

std::unique_ptr<HostKernel> make_batch_norm_grad(const Node& node) {
  const auto& op = node.op_as<BatchNormGrad>();
  const BatchNormPlan plan(node.inputs[0].type(),
                           node.inputs[1].dtype(),
                           op.eps,
                           norm_activation(op.activation, BatchNormGrad::kTraits.name));
  return std::make_unique<HostKernel>(
      [plan](const KernelArgs& args) {
        Workspace space(args.workspace);
        BatchNormData data = plan.carve(space);
        bind_backward(args.inputs, args.outputs.subspan(1), data);
        data.result = args.outputs[0];
        plan.run(batch_norm_kernels().backward[plan.dtype][plan.activation], data);
      },
      plan.workspace_bytes());
}

// 16-bit statistics would not be those that batch norm itself goes on with.
bool accepts_stats(const Node& node) { return size_of(node.outputs[0].dtype) >= 4; }

std::unique_ptr<HostKernel> make_batch_norm_stats(const Node& node) {
  const BatchNormPlan plan(node.inputs[0].type(),
                           node.inputs[1].dtype(),
                           node.op_as<BatchNormStats>().eps,
                           NormActivation::kNone);
  const size_t row = static_cast<size_t>(node.outputs[0].bytes());
  return std::make_unique<HostKernel>(
      [plan, row](const KernelArgs& args) {
        Workspace space(args.workspace);
        BatchNormData data = plan.carve(space);
        bind_forward(args.inputs, args.outputs, data);
        plan.sum(batch_norm_kernels().forward[plan.dtype][plan.activation], data);
        const char* table = static_cast<const char*>(data.table);
        std::memcpy(args.outputs[2], table + row, row);
        std::memcpy(args.outputs[3], table + 2 * row, row);
      },
      plan.workspace_bytes());
}

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  table.add(BatchNorm::kTraits.name, {"vectorized"}, make_batch_norm);
  table.add(BatchNormGrad::kTraits.name, {"vectorized"}, make_batch_norm_grad);
  table.add(BatchNormStats::kTraits.name, {"vectorized"}, make_batch_norm_stats, accepts_stats);
}

}  // namespace ridge::cpu
