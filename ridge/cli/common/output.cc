#include "ridge/cli/common/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"

namespace ridge {

void write_stdout(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  check(std::fflush(stdout) == 0 && written, "cannot write to stdout");
}

// A write of nothing asks a device whether it takes more.
void check_stdout() {
  check(::write(STDOUT_FILENO, "", 0) == 0 || errno == EINTR || errno == EAGAIN,
        "cannot write to stdout: {}; let it go to a file or a terminal",
        std::strerror(errno));
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void write_note(std::string_view note) { write_stderr(fmt::format("note: {}\n", note)); }

namespace {

[[noreturn]] void refuse_place(const std::string& path, std::string_view why, const char* fix) {
  throw UserError(fmt::format("cannot write '{}': {}", path, why), fix);
}

// A device or a pipe, which is written in place. A pipe would wait for its reader.
void check_device(const std::string& path, const struct stat& status) {
  constexpr const char* kFix = "name another file";
  if (::access(path.c_str(), W_OK) != 0) refuse_place(path, std::strerror(errno), kFix);
  if (!S_ISCHR(status.st_mode)) return;
  const Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (device.get() < 0 || ::write(device.get(), "", 0) != 0)
    refuse_place(path, std::strerror(errno), kFix);
}

// Some file systems have no number of blocks.
bool is_full(const std::filesystem::path& folder) {
  struct statvfs disk;
  if (::statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return false;
  return (::geteuid() == 0 ? disk.f_bfree : disk.f_bavail) == 0;
}

}  // namespace

void check_place(const std::string& path) {
  if (path.empty()) return;
  struct stat status;
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (!is_there && errno == ENAMETOOLONG)
    refuse_place(path, std::strerror(errno), "give a shorter name");
  if (is_there && S_ISDIR(status.st_mode))
    refuse_place(path, "it is a folder", "name a file in it");
  if (is_there && !S_ISREG(status.st_mode)) return check_device(path, status);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  folder /= ".";  // which no file has
  if (::access(folder.c_str(), W_OK) != 0)
    refuse_place(path, std::strerror(errno), "name a file in a folder that you may write to");
  if (is_full(folder)) refuse_place(path, "its disk is full", "name a file on another");
}

std::string scaled(double value) {
  constexpr std::string_view kPrefixes[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  if (prefix == 0 && value == std::floor(value)) return fmt::format("{}", value);
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, kPrefixes[prefix]);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string duration_text(double seconds) {
  if (!(seconds > 0)) seconds = 0;  // NaN too
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  constexpr double kLongest = 3.6e9;  // a million hours, "forever" for a progress bar
  const int64_t whole = std::llround(std::min(seconds, kLongest));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string run_time_text(double seconds) {
  if (seconds < 1e-4) return fmt::format("{:.1f} us", 1e6 * seconds);
  if (seconds < 1e-2) return fmt::format("{:.0f} us", 1e6 * seconds);
  return fmt::format("{:.1f} ms", 1e3 * seconds);
}

std::string grouped(int64_t value) {
  std::string text = fmt::format("{}", value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace ridge
