#include "ridge/io/crc32c.h"

#include <array>

namespace ridge {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78u;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(Bytes bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(Bytes bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace ridge
