// Reads the assembler's facts on each kernel in a cubin: registers, and memory of a thread that is
// no register.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"

namespace ridge::test {

struct KernelUse {
  std::string entry;
  int registers = 0;
  /// Local memory of a thread: spilled registers, arrays read at a place known at run time, and
  /// what the called need. It lies in device memory.
  int local_bytes = 0;
  int shared_bytes = 0;  ///< Static bytes of a block.
};

/// The facts of all kernels of the cubin, in its order. UserError for anything that is no whole
/// cubin; safe on hostile input.
std::vector<KernelUse> read_cubin(std::string_view cubin);

/// How many instructions in the code of its kernels pass the test, which sees the halves of their
/// 16 bytes (since sm_70).
size_t count_instructions(std::string_view cubin,
                          FunctionRef<bool(uint64_t low, uint64_t high)> counts);

}  // namespace ridge::test
