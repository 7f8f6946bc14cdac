// A file that grows at its end through a buffer: what a run writes at every step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ridge/io/file.h"

namespace ridge {

/// append() allocates nothing. What is buffered reaches the file when a second has passed since the
/// last time, when the buffer is full, at flush(), and at the end. Every failure to write is a
/// UserError with path and reason, except in the destructor.
class AppendFile {
 public:
  /// Opens the file, or creates it, and cuts it to its first `keep` bytes.
  AppendFile(std::filesystem::path path, size_t keep);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  void append(Bytes bytes);
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::string buffer_;  // its capacity never changes
  int64_t flushed_ns_;
};

}  // namespace ridge
