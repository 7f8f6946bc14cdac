// Stable 64-bit hashes: the same on every machine and in every version, so that they may be
// stored and may key random numbers. Not for hostile keys in a hash table.
#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

inline constexpr uint64_t kHashStart = 0xcbf29ce484222325u;

/// FNV-1a of the bytes of `text`. Give the hash of what comes before as `start` to hash in parts:
/// hash64("ab") == hash64("b", hash64("a")).
constexpr uint64_t hash64(std::string_view text, uint64_t start = kHashStart) {
  uint64_t hash = start;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace ridge
