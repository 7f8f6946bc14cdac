// Small files of /proc that are read again and again: raw, into one buffer, and taken for hostile.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::attach {

/// An open folder; what lies in it is then found by a short name.
class ProcFolder {
 public:
  /// `above` is a folder's descriptor or AT_FDCWD.
  ProcFolder(int above, const char* name);
  ProcFolder(const ProcFolder&) = delete;
  ProcFolder& operator=(const ProcFolder&) = delete;
  ~ProcFolder();

  /// -1: it could not be opened.
  int descriptor() const { return descriptor_; }
  /// Those of its entries that are named by a number above 0, rising.
  std::vector<pid_t> numbers() const;

 private:
  DIR* folder_ = nullptr;
  int descriptor_ = -1;
};

/// A file that stays open: it is read again for a fifth of what opening it costs.
class ProcFile {
 public:
  /// Counts itself in `open_files` while it is open.
  ProcFile(int folder, const char* name, size_t& open_files);
  ProcFile(ProcFile&& other) noexcept;
  ProcFile& operator=(ProcFile&&) = delete;
  ~ProcFile();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  size_t* open_files_;
};

class ProcReader {
 public:
  /// The first bytes of a file by one read, which has all of a small file of /proc; valid until the
  /// next call. Empty where it cannot be read: files vanish with their process at any time.
  std::string_view read(int folder, const char* name);
  std::string_view read(const ProcFile& file);
  /// All of a longer one, but no more than `most` bytes.
  static std::string read_whole(const std::string& path, size_t most);
  /// The errno of the last read(), or 0.
  int error() const { return error_; }

 private:
  std::array<char, 4096> bytes_;
  int error_ = 0;
};

/// Fields of `stat`, for a process or for one thread.
struct ProcStat {
  std::string name{};  ///< On one line.
  char state = '?';
  pid_t parent = 0;
  int64_t minor_faults = 0, major_faults = 0, start_ticks = 0, threads = 0, rss_pages = 0;
  int64_t cpu_ticks = 0, waited_ticks = 0;  ///< Its own; of children that were waited for.
};
/// Nothing where the line is cut off or holds what is no number.
std::optional<ProcStat> parse_stat(std::string_view line);

/// A number that fills all of `text`.
std::optional<int64_t> parse_number(std::string_view text);
/// Takes the next word off `text`, up to a blank or the end of a line; empty at the end.
std::string_view next_word(std::string_view& text);
/// Takes the next line off `text`; empty at the end, and where it is.
std::string_view next_line(std::string_view& text);
/// The number of the line that begins with `key` and a colon or blank.
std::optional<int64_t> number_of(std::string_view text, std::string_view key);

}  // namespace ridge::attach
