#pragma once

#include <memory>

#include "ridge/backend/cpu/jit/code_memory.h"
#include "ridge/backend/cpu/jit/program.h"

namespace ridge::cpu::jit {

/// What compiled code is called with.
struct Call {
  const void* const* inputs;
  void* const* results;
  int64_t n;        ///< At least 1.
  void* lanes;      ///< For each reduction kLaneBytes, started; left to be finished.
  std::byte* work;  ///< kWorkBytes, aligned to 64.
};

inline constexpr size_t kLaneBytes = 64 * sizeof(double);
inline constexpr size_t kWorkBytes = size_t{32} << 10;
inline constexpr size_t kMostReductions = 16;

enum class Target : uint8_t { kAvx2, kAvx512 };

/// Machine code of a program.
class Code {
 public:
  Code(std::unique_ptr<CodeMemory> memory, size_t entry, int lanes)
      : memory_(std::move(memory)), entry_(entry), lanes_(lanes) {}
  void run(const Call& call) const {
    reinterpret_cast<void (*)(const Call*)>(memory_->data() + entry_)(&call);
  }
  /// Elements of a vector.
  int lanes() const { return lanes_; }

 private:
  std::unique_ptr<CodeMemory> memory_;
  size_t entry_;
  int lanes_;
};

/// `streamed`: results that wish it are stored past the caches; they must be aligned to their own
/// elements times Code::lanes(). Null where the target has no instruction for something, or the
/// system no memory for code.
std::unique_ptr<Code> compile(const Program& program, Target target, bool streamed);

}  // namespace ridge::cpu::jit
