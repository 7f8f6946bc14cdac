// The driver's stream behind the engine's, which every NodeKernel of the CUDA backend needs.
#pragma once

#include "ridge/backend/backend.h"
#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {

/// The engine's stream on a GPU.
class StreamOnGpu : public ridge::Stream {
 public:
  virtual cuda::Stream& driver_stream() = 0;  // the bare name is of the base
};

/// The driver's stream behind `stream`; its device is current to the calling thread from now on.
/// InternalError where it is a stream of another backend.
Stream& cuda_stream(ridge::Stream& stream);

/// An address of KernelArgs as the driver takes it.
inline DevicePointer device_pointer(const void* address) {
  return reinterpret_cast<DevicePointer>(address);
}

}  // namespace ridge::cuda
