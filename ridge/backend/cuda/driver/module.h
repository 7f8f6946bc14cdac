// Compiled kernels, and their launch.
#pragma once

#include <span>
#include <string>

#include "ridge/backend/cuda/driver/stream.h"

namespace ridge::cuda {

/// A kernel of a module, which must outlive it.
struct Kernel {
  FunctionHandle handle = nullptr;
  std::string name;
  int registers = 0;            ///< Registers of a thread.
  int local_bytes = 0;          ///< Bytes of a thread's spilled registers and arrays.
  int static_shared_bytes = 0;  ///< Bytes of a block that the kernel itself declares.
  int most_threads = 0;
};

/// How a kernel is laid over the device.
struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;  ///< Beside what the kernel declares itself.
};

class Module {
 public:
  /// Loads PTX or a cubin; `name` says in errors which. CudaError with the log of the driver's
  /// compiler, where it has one.
  Module(DeviceRef device, const std::string& image, const std::string& name);

  /// CudaError when it has no such kernel, or when its static shared memory and so many bytes of
  /// dynamic one are more than a block of the device has.
  Kernel kernel(const std::string& name, unsigned shared_bytes = 0) const;

 private:
  Owned<ModuleHandle> module_;
  std::string name_;
};

/// Queues a kernel. `arguments` are the addresses of its parameters, which are read in the call.
void launch(Stream& stream,
            const Kernel& kernel,
            const LaunchShape& shape,
            std::span<void* const> arguments);

}  // namespace ridge::cuda
