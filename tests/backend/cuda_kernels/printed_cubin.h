// What the assembler says in a cubin of each kernel: registers, and memory of a thread that is no
// register.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge::test {

struct KernelUse {
  std::string entry;
  int registers = 0;
  /// Local memory of a thread: spilled registers, arrays read at a place known at run time, and
  /// what the called need. It lies in device memory.
  int local_bytes = 0;
  int shared_bytes = 0;  ///< Of a block, static.
};

/// Of all kernels of the cubin, in its order. UserError for anything that is no whole cubin; safe
/// on hostile input.
std::vector<KernelUse> read_cubin(std::string_view cubin);

}  // namespace ridge::test
