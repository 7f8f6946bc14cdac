// The image that the stand-in for NVRTC compiles a source to, and the stand-in for the driver
// loads: a shared object of this machine, with a table of the kernels in it.
#pragma once

#include <cstddef>

namespace ridge::test {

struct SimulatedKernel {
  const char* name;     ///< Null behind the last.
  size_t parameters;    ///< Pointers, but for those of other sizes, which hold pointers alone.
  const size_t* sizes;  ///< Bytes of each parameter.
  /// A pointer is given as it is, any other parameter by its address.
  void (*run)(void* const* parameters, unsigned blocks, unsigned threads, size_t shared_bytes);
};

/// The table's name in the shared object.
inline constexpr const char* kSimulatedKernels = "simulated_kernels";

}  // namespace ridge::test
