// Machine code that takes rows of elements, one after another, through several programs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ridge/backend/cpu/jit/compile.h"

namespace ridge::cpu::jit {

/// What is done to every row: programs in turn, which meet in memory.
struct RowsProgram {
  struct Part {
    Program program;
    bool is_pass = false;  ///< Over the row's elements; else over single elements, all uniform.
    /// Pointers of its inputs and results; the results of reductions are single elements.
    std::vector<int> inputs, results;
  };
  std::vector<Part> parts;
  std::vector<int32_t> steps;  ///< By pointer: bytes from one row to the next.
  int columns = 0;             ///< Elements of a row.
};

inline constexpr size_t kMostRowPointers = 60;

/// What compiled code is called with. `work` begins with the pointers, which are moved on.
struct RowsCall {
  std::byte* work;  ///< kWorkBytes, aligned to 64.
  void* lanes;      ///< kMostReductions times kLaneBytes, aligned to 64.
  int64_t rows;     ///< At least 1.
};

class RowsCode {
 public:
  RowsCode(std::unique_ptr<CodeMemory> memory, size_t entry)
      : memory_(std::move(memory)), entry_(entry) {}
  void run(const RowsCall& call) const {
    reinterpret_cast<void (*)(const RowsCall*)>(memory_->data() + entry_)(&call);
  }

 private:
  std::unique_ptr<CodeMemory> memory_;
  size_t entry_;
};

/// `streamed`: results that wish it are stored past the caches; their rows must be aligned to 64
/// bytes. Null where the target has no instruction for something, or the system no memory for code.
std::unique_ptr<RowsCode> compile_rows(const RowsProgram& rows, Target target, bool streamed);

}  // namespace ridge::cpu::jit
