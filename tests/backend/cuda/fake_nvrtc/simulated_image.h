// What the stand-in for NVRTC makes of a source, and the stand-in for the driver loads: a shared
// object of this machine, with a table of the kernels in it.
#pragma once

#include <cstddef>

namespace ridge::test {

struct SimulatedKernel {
  const char* name;   ///< Null behind the last.
  size_t parameters;  ///< All are pointers.
  void (*run)(void* const* parameters, unsigned blocks, unsigned threads);
};

/// The table's name in the shared object.
inline constexpr const char* kSimulatedKernels = "simulated_kernels";

}  // namespace ridge::test
