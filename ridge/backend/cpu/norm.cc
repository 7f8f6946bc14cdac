// Layer, root-mean-square and batch norm.
#include "ridge/graph/ops/norm.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/norm_kernels.h"
#include "ridge/base/parallel.h"

namespace ridge::cpu {
namespace {

const Choice kVectorized{"vectorized"};

// Elements a thread takes at a time; a row costs several passes over it.
constexpr int64_t kGrain = 8192;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---- layer and root-mean-square norm ----

const RowNormKernels& row_kernels() {
  return for_isa(avx2::row_norm_kernels, avx512::row_norm_kernels);
}

using NormTable = NormKernel (RowNormKernels::*)[kElements];

std::unique_ptr<HostKernel> make_row_norm(const Node& node, NormTable table, double eps) {
  const TensorType& x = node.inputs[0].type();
  const int64_t n = x.shape.back(), count = x.elements() / n;
  const bool has_beta = node.inputs.size() == 3;
  return std::make_unique<HostKernel>(
      [=, dtype = static_cast<int>(x.dtype)](const KernelArgs& args) {
        const NormKernel run = (row_kernels().*table)[dtype];
        const NormRows rows{.x = args.inputs[0],
                            .gamma = args.inputs[1],
                            .beta = has_beta ? args.inputs[2] : nullptr,
                            .y = args.outputs[0],
                            .n = n,
                            .eps = eps};
        parallel_for(count, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
          run(rows, begin, end);
        });
      });
}

// ---- batch norm ----

const BatchNormKernels& batch_kernels() {
  return for_isa(avx2::batch_norm_kernels, avx512::batch_norm_kernels);
}

// What a launch knows of its node but for the addresses.
struct BatchNormPlan {
  explicit BatchNormPlan(const Node& node) : dtype(node.inputs[0].dtype()) {
    const TensorType& x = node.inputs[0].type();
    data.channels = x.shape.back();
    data.rows = x.elements() / data.channels;
    data.eps = node.op_as<BatchNorm>().eps;
    // A tile of a chunk is read three times: at most 128 KiB of f32, for the second-level cache.
    const int64_t columns = std::min(data.channels, kNormColumns);
    data.chunk = std::clamp<int64_t>(32768 / columns, 64, 512);
    chunks = ceil_div(data.rows, data.chunk);
    tiles = ceil_div(data.channels, kNormColumns);
    tile_grain = std::max<int64_t>(1, kGrain / (std::min(data.chunk, data.rows) * columns));
    row_grain = std::max<int64_t>(1, 2 * kGrain / data.channels);
    scaling_bytes = static_cast<size_t>(4 * data.channels) *
                    (dtype == DType::kF64 ? sizeof(double) : sizeof(float));
    table_bytes = static_cast<size_t>(chunks * data.channels) * sizeof(double);
  }

  size_t workspace_bytes() const { return 2 * table_bytes + scaling_bytes; }

  BatchNormData bind(const KernelArgs& args) const {
    BatchNormData bound = data;
    bound.x = args.inputs[0];
    bound.gamma = args.inputs[1];
    bound.beta = args.inputs[2];
    bound.y = args.outputs[0];
    bound.mean = args.outputs[1];
    bound.variance = args.outputs[2];
    bound.chunk_means = static_cast<double*>(args.workspace);
    bound.chunk_squares = bound.chunk_means + chunks * data.channels;
    bound.scaling = bound.chunk_squares + chunks * data.channels;
    return bound;
  }

  DType dtype;
  BatchNormData data{};
  int64_t chunks;
  int64_t tiles;
  int64_t tile_grain;
  int64_t row_grain;
  size_t scaling_bytes;
  size_t table_bytes;
};

std::unique_ptr<HostKernel> make_batch_norm(const Node& node) {
  const BatchNormPlan plan(node);
  return std::make_unique<HostKernel>(
      [plan](const KernelArgs& args) {
        const BatchNormKernels& kernels = batch_kernels();
        const BatchNormData data = plan.bind(args);
        const auto run = [&](int64_t n, int64_t grain, BatchNormKernel step) {
          parallel_for(n, grain, [&](int64_t begin, int64_t end) { step(data, begin, end); });
        };
        const auto dtype = static_cast<int>(plan.dtype);
        run(plan.chunks * plan.tiles, plan.tile_grain, kernels.chunk_statistics[dtype]);
        run(plan.tiles, 1, kernels.statistics[dtype]);
        run(data.rows, plan.row_grain, kernels.normalize[dtype]);
      },
      plan.workspace_bytes());
}

}  // namespace

void add_norm_kernels(KernelTable& table) {
  table.add(LayerNorm::kTraits.name, kVectorized, [](const Node& node) {
    return make_row_norm(node, &RowNormKernels::layer_norm, node.op_as<LayerNorm>().eps);
  });
  table.add(RmsNorm::kTraits.name, kVectorized, [](const Node& node) {
    return make_row_norm(node, &RowNormKernels::rms_norm, node.op_as<RmsNorm>().eps);
  });
  table.add(BatchNorm::kTraits.name, kVectorized, make_batch_norm);
}

}  // namespace ridge::cpu
