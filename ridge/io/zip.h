// ZIP archives, as NPZ files are: files that are stored or deflated, found by the directory at the
// end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridge/io/file.h"

namespace ridge {

/// A file of an archive in memory.
struct ZipEntry {
  std::string name{};
  Bytes packed{};  ///< The file's bytes as they lie in the archive.
  bool is_deflated = false;
  uint32_t crc = 0;  ///< CRC-32 of what is unpacked.
  size_t size = 0;   ///< Bytes once unpacked.
};

/// The files of an archive, in the order of its directory; `bytes` must outlive them. UserError
/// that opens with `source` for a directory that is not one, that does not fit the archive's bytes
/// or says what no file of them can be (a name twice, files that overlap, more bytes than could
/// have been deflated to so few), and for files that are encrypted, or packed in another way.
std::vector<ZipEntry> parse_zip(Bytes bytes, const std::string& source);

/// The content of a file: where it lies in the archive, or inflated into `buffer`. UserError that
/// opens with `source` when it is damaged.
Bytes unpack(const ZipEntry& entry, std::vector<std::byte>& buffer, const std::string& source);

/// A file to store, in pieces that follow each other.
struct ZipFile {
  std::string name;  ///< UTF-8.
  std::vector<Bytes> pieces;
};

/// Gives the archive to `sink`, files stored one after the other: the same files give the same
/// bytes. All sizes are in 64 bits (ZIP64). InternalError for a name of more than 65535 bytes.
void write_zip(ByteSink sink, std::span<const ZipFile> files);

}  // namespace ridge
