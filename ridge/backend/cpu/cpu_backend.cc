#include "ridge/backend/cpu/cpu_backend.h"

#include "ridge/backend/cpu/cpu_kernels.h"

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
  cpu::add_shape_kernels(table);
  cpu::add_gather_kernels(table);
  cpu::add_pool_kernels(table);
  cpu::add_matmul_kernels(table);
  cpu::add_conv_kernels(table);
  cpu::add_attention_kernels(table);
  return table;
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(StreamMode mode) : HostBackend("cpu", all_kernels(), mode) {}

  Calibration calibrate() override {
    Calibration result;
    result.copy_bytes_per_s = measure_copy_bandwidth();
    result.launch_s = measure_launch_seconds();
    return result;
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(StreamMode mode) {
  return std::make_unique<CpuBackend>(mode);
}

}  // namespace ridge
