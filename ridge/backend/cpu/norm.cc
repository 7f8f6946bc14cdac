// Layer and root-mean-square norm.
#include "ridge/graph/ops/norm.h"

#include <algorithm>

#include "ridge/backend/cpu/cache_size.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/norm_kernels.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

const Choice kVectorized{"vectorized"};

// Elements a thread takes at a time; a row costs several passes over it.
constexpr int64_t kGrain = 8192;

const RowNormKernels& row_kernels() {
  return for_isa(avx2::row_norm_kernels, avx512::row_norm_kernels);
}

using NormTable = NormKernel (RowNormKernels::*)[kElements];

std::unique_ptr<HostKernel> make_row_norm(const Node& node, NormTable table, double eps) {
  const TensorType& x = node.inputs[0].type();
  const int64_t n = x.shape.back(), count = x.elements() / n;
  const bool has_beta = node.inputs.size() == 3;
  const size_t bytes = static_cast<size_t>(count * n) * size_of(x.dtype);
  return std::make_unique<HostKernel>([=,
                                       dtype = static_cast<int>(x.dtype)](const KernelArgs& args) {
    const NormKernel run = (row_kernels().*table)[dtype];
    const NormRows rows{.x = args.inputs[0],
                        .gamma = args.inputs[1],
                        .beta = has_beta ? args.inputs[2] : nullptr,
                        .y = args.outputs[0],
                        .n = n,
                        .eps = eps,
                        .streamed = outgrows_caches(bytes) && args.outputs[0] != args.inputs[0]};
    parallel_for(count, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      run(rows, begin, end);
    });
  });
}

}  // namespace

void add_norm_kernels(KernelTable& table) {
  table.add(LayerNorm::kTraits.name, kVectorized, [](const Node& node) {
    return make_row_norm(node, &RowNormKernels::layer_norm, node.op_as<LayerNorm>().eps);
  });
  table.add(RmsNorm::kTraits.name, kVectorized, [](const Node& node) {
    return make_row_norm(node, &RowNormKernels::rms_norm, node.op_as<RmsNorm>().eps);
  });
}

}  // namespace ridge::cpu
