// Inflates gzip data as it is asked for.
#pragma once

#include <memory>
#include <string>

#include "ridge/io/file.h"

namespace ridge {

/// Whether the bytes begin as a gzip file does.
bool is_gzip(Bytes bytes);

/// Reads through one gzip file, of one or more members. UserError that opens with `source` for
/// data that is truncated, corrupt (each member has a CRC) or followed by anything but zeros.
class GzipReader {
 public:
  /// `bytes` must outlive the reader.
  GzipReader(Bytes bytes, std::string source);
  ~GzipReader();

  /// Fills `out` as far as there is data; fewer bytes than asked for mean the end.
  size_t read(std::span<std::byte> out);

 private:
  struct Stream;
  void next_member();

  std::string source_;
  std::unique_ptr<Stream> stream_;
};

/// The whole content. UserError also when it has more than `limit` bytes.
std::string gunzip(Bytes bytes, size_t limit, const std::string& source);

}  // namespace ridge
