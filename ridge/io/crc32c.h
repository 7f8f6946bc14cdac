// CRC-32C (Castagnoli): the checksum of TFRecord files.
#pragma once

#include <cstdint>

#include "ridge/io/file.h"

namespace ridge {

/// CRC-32C as in RFC 3720.
uint32_t crc32c(Bytes bytes);

/// The form in which TFRecord files keep it: rotated by 15 bits, and a constant added.
uint32_t masked_crc32c(Bytes bytes);

}  // namespace ridge
