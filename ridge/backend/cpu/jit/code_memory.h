// Memory for machine code: written first, then executed, never both.
#pragma once

#include <cstddef>

namespace ridge::cpu::jit {

class CodeMemory {
 public:
  /// Writable memory of `bytes`; data() is null where the system refuses it.
  explicit CodeMemory(size_t bytes);
  ~CodeMemory();
  CodeMemory(const CodeMemory&) = delete;
  CodeMemory& operator=(const CodeMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  /// Keeps the first `used` bytes, from now on to be executed and not written. False where the
  /// system forbids it.
  bool seal(size_t used);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ridge::cpu::jit
