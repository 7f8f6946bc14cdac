// Whole files: read, mapped, and written so that a crash leaves the old or the new one.
//
// Files are hostile until they are checked: every reader of a format in this folder compares sizes,
// in 64-bit arithmetic, with the size of the file before it allocates.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ridge/base/function_ref.h"

namespace ridge {

using Bytes = std::span<const std::byte>;

/// Takes the next piece of what is being written.
using ByteSink = FunctionRef<void(Bytes)>;

inline constexpr size_t kReadFileLimit = size_t{1} << 30;

/// The bytes of `text`, and the text of `bytes`: views of the same memory.
inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The content of a regular file. UserError when it cannot be read or has more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, size_t limit = kReadFileLimit);

/// A regular file mapped read-only. Reading beyond what another process cuts off while it is
/// mapped raises SIGBUS, so it is for files that nobody writes in place.
class MappedFile {
 public:
  /// UserError when it cannot be opened or mapped. An empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  Bytes bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Bytes bytes_;
};

/// A file open for writing. Every call checks its result: UserError with path and reason.
class FileWriter {
 public:
  /// Creates the file, or empties it when it exists.
  explicit FileWriter(std::filesystem::path path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void write(Bytes bytes);
  /// Waits until the disk holds everything, and closes. Without it nothing is promised.
  void finish();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// Writes what `body` gives its sink to a temporary file beside `path`, waits for the disk, and
/// renames it to `path`. On any failure, `body`'s own included, the temporary is removed, the old
/// file is intact and the UserError says what went wrong. A symbolic link keeps pointing; a device
/// such as /dev/null is written directly.
void stream_file_atomically(const std::filesystem::path& path, FunctionRef<void(ByteSink)> body);
/// The same for what is in memory already.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// Waits until the disk holds the names in `folder`.
void sync_folder(const std::filesystem::path& folder);

/// Text that tells temporary names of different calls, processes and machines apart.
std::string unique_suffix();

}  // namespace ridge
