#include "ridge/backend/cpu/cpu_backend.h"

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/peak.h"

namespace ridge {
namespace {

KernelTable all_kernels() {
  KernelTable table;
  cpu::add_source_kernels(table);
  cpu::add_elementwise_kernels(table);
  cpu::add_random_kernels(table);
  cpu::add_reduce_kernels(table);
  cpu::add_softmax_kernels(table);
  cpu::add_norm_kernels(table);
  cpu::add_batch_norm_kernels(table);
  cpu::add_shape_kernels(table);
  cpu::add_gather_kernels(table);
  cpu::add_pool_kernels(table);
  cpu::add_matmul_kernels(table);
  cpu::add_matmul_i8_kernels(table);
  cpu::add_conv_i8_kernels(table);
  cpu::add_conv_kernels(table);
  cpu::add_attention_kernels(table);
  cpu::add_attention_grad_kernels(table);
  return table;
}

const KernelTable& plain_kernels() {
  static const KernelTable table = all_kernels();
  return table;
}

KernelTable with_fused(KernelTable table) {
  cpu::add_pointwise_depthwise_kernels(table);
  cpu::add_norm_conv_kernels(table, plain_kernels);
  cpu::add_conv_norm_grad_kernels(table, plain_kernels);
  cpu::add_fused_kernels(table, plain_kernels);
  return table;
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(StreamMode mode) : HostBackend("cpu", with_fused(all_kernels()), mode) {}

  Calibration calibrate() override {
    constexpr size_t kCopyBytes = size_t{128} << 20;  // far beyond any last cache's share
    Calibration result;
    result.flops_per_s[DType::kF64] = cpu::measure_fma_peak(DType::kF64);
    // f16 is widened and multiplied in f32.
    for (DType dtype : {DType::kF32, DType::kF16})
      result.flops_per_s[dtype] = cpu::measure_fma_peak(DType::kF32);
    result.flops_per_s[DType::kBF16] = cpu::measure_fma_peak(DType::kBF16);
    result.copy_bytes_per_s = cpu::measure_copy_bandwidth(kCopyBytes);
    result.launch_s = measure_launch_seconds();
    return result;
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(StreamMode mode) {
  return std::make_unique<CpuBackend>(mode);
}

}  // namespace ridge
