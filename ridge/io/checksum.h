// XXH64 checksums: they find damage, not forgery.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ridge/io/file.h"

namespace ridge {

/// XXH64 with seed 0 of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void update(Bytes bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH64 with seed 0.
uint64_t checksum(Bytes bytes);

/// 16 hexadecimal digits, as the tool `xxhsum -H1` prints them.
std::string checksum_text(uint64_t value);

}  // namespace ridge
