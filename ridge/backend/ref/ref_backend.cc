#include "ridge/backend/ref/ref_backend.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/graph/ops/conv_norm.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/pointwise_depthwise.h"

namespace ridge {
namespace {

KernelTable all_kernels() {
  KernelTable table;
  ref::add_source_kernels(table);
  ref::add_elementwise_kernels(table);
  ref::add_activation_kernels(table);
  ref::add_shape_kernels(table);
  ref::add_reduce_kernels(table);
  ref::add_matmul_kernels(table);
  ref::add_matmul_i8_kernels(table);
  ref::add_conv_i8_kernels(table);
  ref::add_conv_kernels(table);
  ref::add_pool_kernels(table);
  ref::add_softmax_kernels(table);
  ref::add_norm_kernels(table);
  ref::add_batch_norm_kernels(table);
  ref::add_gather_kernels(table);
  ref::add_attention_kernels(table);
  ref::add_random_kernels(table);
  return table;
}

// Operations per second of the dot product that the kernels' inner loops are.
double measure_dot_product() {
  constexpr size_t kLength = 1024;  // both vectors stay in the first cache
  constexpr int kRounds = 4096;
  const std::vector<double> a(kLength, 0.5), b(kLength, 0.25);
  volatile double kept = 0.0;  // else the compiler would drop the loop
  double best = 1e9;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; ++round) {
      double sum = kept;
      for (size_t i = 0; i < kLength; ++i) sum += a[i] * b[i];
      kept = sum;
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, elapsed.count());
  }
  return 2.0 * kLength * kRounds / best;
}

// Fused nodes run op by op.
KernelTable with_fused(KernelTable table) {
  for (const std::string_view op : {Fused::kTraits.name,
                                    FusedEach::kTraits.name,
                                    FusedConv2d::kTraits.name,
                                    FusedMatMul::kTraits.name,
                                    PointwiseDepthwise::kTraits.name,
                                    NormConv2d::kTraits.name,
                                    Conv2dNormGrad::kTraits.name})
    table.add(op, {std::string(kExpandedChoice)}, [](const Node& node) {
      static const KernelTable plain = all_kernels();
      return make_expanded(node, plain);
    });
  return table;
}

class RefBackend final : public HostBackend {
 public:
  explicit RefBackend(StreamMode mode) : HostBackend("ref", with_fused(all_kernels()), mode) {}

  Calibration calibrate() override {
    Calibration result;
    // All dtypes are computed in double.
    const double rate = measure_dot_product();
    for (DType dtype : kAllDTypes)
      if (kFloats.has(dtype)) result.flops_per_s[dtype] = rate;
    result.copy_bytes_per_s = measure_copy_bandwidth();
    result.launch_s = measure_launch_seconds();
    return result;
  }
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(StreamMode mode) {
  return std::make_unique<RefBackend>(mode);
}

}  // namespace ridge
