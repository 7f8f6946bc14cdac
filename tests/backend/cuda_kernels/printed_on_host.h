// Printed kernels on the simulated GPU by themselves, many of which are compiled at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/base/tensor.h"
#include "tests/backend/cuda/simulation/simulated_image.h"

namespace ridge::test {

struct HostFault {
  uint64_t place = 0;  ///< 1 + the number of the index.
  int64_t index = 0;
};

class PrintedOnHost {
 public:
  PrintedOnHost() = default;
  ~PrintedOnHost();
  PrintedOnHost(const PrintedOnHost&) = delete;
  PrintedOnHost& operator=(const PrintedOnHost&) = delete;

  void add(const cuda::PrintedKernel& kernel);
  /// Compiles what was added. std::runtime_error with the compiler's words when it refuses.
  void build();

  /// Runs all launches of a kernel that was added; with `one_block` each as a grid of one block.
  HostFault run(const cuda::PrintedKernel& kernel,
                const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs,
                bool one_block) const;

 private:
  std::vector<std::string> names_, sources_;
  std::map<std::string, const SimulatedKernel*> kernels_;  // by entry
  void* library_ = nullptr;
};

}  // namespace ridge::test
