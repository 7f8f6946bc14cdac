#include "ridge/backend/cuda/driver/node_kernel.h"

namespace ridge::cuda {

Stream& cuda_stream(ridge::Stream& stream) {
  auto* const on_gpu = dynamic_cast<StreamOnGpu*>(&stream);
  check_internal(on_gpu != nullptr, "a stream of another backend");
  Stream& driver_stream = on_gpu->driver_stream();
  driver_stream.device().ensure_current();
  return driver_stream;
}

}  // namespace ridge::cuda
