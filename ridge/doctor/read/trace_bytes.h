// The bytes of a trace file, block by block: plain or gzip, and as far as it goes.
#pragma once

#include <memory>
#include <string>

#include "ridge/io/file.h"

namespace ridge::doctor {

/// Reads a regular file that may end, or stop being gzip, at any byte.
class TraceBytes {
 public:
  /// UserError when it cannot be opened.
  explicit TraceBytes(const std::string& path);
  ~TraceBytes();

  /// Fills some of `out`, which is not empty; 0 at the end. UserError when the disk fails.
  size_t read(std::span<std::byte> out);

  /// Says why the gzip data could not be read to its end, for a warning; else empty.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Inflater;
  size_t read_file(std::span<std::byte> out);
  size_t inflate_some(std::span<std::byte> out);
  bool next_member();

  std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<Inflater> inflater_;
  std::string trouble_;
};

}  // namespace ridge::doctor
