// Printed kernels as functions of this machine: their source, compiled by this compiler on top of
// simt.h, many kernels at a time. What was compiled is kept in the user's cache.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridge/backend/cuda/print_kernel.h"
#include "ridge/graph/tensor.h"

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

  /// How often eight lanes have shared banks of shared memory, in all runs (simt_mma.h).
  size_t bank_conflicts() const { return counted_conflicts() - conflicts_before_; }

 private:
  using Entry = void (*)(void* const* operands,
                         unsigned blocks,
                         unsigned threads,
                         size_t shared_bytes);

  std::string text_to_compile() const;
  /// Makes the shared library `library` of `text`; `compiler` is the command without paths.
  void compile(const std::string& text,
               const std::string& compiler,
               const std::filesystem::path& library) const;
  size_t counted_conflicts() const;

  std::vector<std::string> names_, sources_, entries_;
  void* library_ = nullptr;
  size_t conflicts_before_ = 0;
};

}  // namespace ridge::test
