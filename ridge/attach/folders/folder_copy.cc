#include "ridge/attach/folders/folder_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

// Bytes counted for a small file, its name and its place in a table included.
constexpr int64_t kLeastBytes = 4096;

struct stat status_of(const fs::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) status.st_mode = 0;
  return status;
}

/// The names in a folder; none where it cannot be read.
std::vector<fs::path> names_in(const fs::path& folder) {
  std::vector<fs::path> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename());
  return names;
}

/// Whether a path without links lies in `folder`, or is it.
bool is_in(const fs::path& path, const fs::path& folder) {
  const std::string text = path.string(), start = folder.string();
  return text == start || text.starts_with(start + "/");
}

class Copier {
 public:
  Copier(fs::path from, fs::path to, int64_t most_bytes)
      : from_(std::move(from)), to_(std::move(to)), most_bytes_(most_bytes) {}

  void copy() {
    fs::create_directories(to_);
    struct statvfs room{};
    if (::statvfs(to_.c_str(), &room) == 0)
      room_ = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
    copy_entries(from_, to_);
    keep(to_, status_of(from_));
  }

 private:
  [[noreturn]] void fail(const fs::path& path) const {
    throw UserError(fmt::format("cannot copy '{}': {}", path.string(), std::strerror(errno)));
  }

  void take(int64_t bytes) {
    bytes_ += std::max(bytes, kLeastBytes);
    check(bytes_ <= most_bytes_,
          "the working folder holds more than {} MiB that would have to be copied",
          most_bytes_ >> 20);
    check(bytes_ <= room_, "there is no room for a copy in '{}'", to_.parent_path().string());
  }

  // Opened before they were given their modes, which may forbid it.
  void keep(const fs::path& to, const struct stat& status) const {
    [[maybe_unused]] const int is_given = ::lchown(to.c_str(), status.st_uid, status.st_gid);
    ::chmod(to.c_str(), status.st_mode & 07777);
    const timespec times[] = {status.st_atim, status.st_mtim};
    ::utimensat(AT_FDCWD, to.c_str(), times, 0);
  }

  void copy_entries(const fs::path& from, const fs::path& to) {
    for (const fs::path& name : names_in(from)) {
      const struct stat status = status_of(from / name);
      if (S_ISLNK(status.st_mode)) {
        copy_link(from / name, to / name);
      } else if (S_ISDIR(status.st_mode)) {
        take(0);
        if (::mkdir((to / name).c_str(), 0700) != 0) fail(to / name);
        copy_entries(from / name, to / name);
        keep(to / name, status);
      } else if (S_ISFIFO(status.st_mode)) {
        if (::mkfifo((to / name).c_str(), 0600) == 0) keep(to / name, status);
      } else if (S_ISREG(status.st_mode)) {
        copy_file(from / name, to / name, status);
      }
    }
  }

  void copy_file(const fs::path& from, const fs::path& to, const struct stat& status) {
    if (status.st_nlink > 1) {
      const auto [twin, is_new] = twins_.try_emplace({status.st_dev, status.st_ino}, to);
      if (!is_new && ::link(twin->second.c_str(), to.c_str()) == 0) return;
    }
    // Not to wait, should it have become a FIFO meanwhile.
    const Descriptor in(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (in.get() < 0 && (errno == EACCES || errno == ENOENT)) return;
    if (in.get() < 0) fail(from);
    {
      const Descriptor out(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (out.get() < 0) fail(to);
      if (::ioctl(out.get(), FICLONE, in.get()) != 0) {
        take(status.st_size);
        copy_bytes(in.get(), out.get(), from);
      }
    }
    keep(to, status);
  }

  void copy_bytes(int in, int out, const fs::path& from) {
    constexpr size_t kPiece = size_t{1} << 20;
    ssize_t got = 0;
    do {
      got = ::copy_file_range(in, nullptr, out, nullptr, kPiece, 0);
    } while (got > 0 || (got < 0 && errno == EINTR));
    // copy_file_range() copies nothing of files that are made while they are read, such as those of
    // /proc.
    if (got < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT)) fail(from);
    buffer_.resize(kPiece);
    while ((got = ::read(in, buffer_.data(), kPiece)) != 0) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(from);
      for (ssize_t done = 0; done < got;) {
        const ssize_t put = ::write(out, buffer_.data() + done, static_cast<size_t>(got - done));
        if (put < 0 && errno != EINTR) fail(from);
        done += std::max<ssize_t>(put, 0);
      }
    }
  }

  void copy_link(const fs::path& from, const fs::path& to) const {
    std::error_code error;
    fs::path target = fs::read_symlink(from, error);
    if (error) return;
    const fs::path named = from.parent_path() / target;
    const fs::path within =
        (from.parent_path().lexically_relative(from_) / target).lexically_normal();
    if (target.is_absolute() || *within.begin() == "..") {
      const fs::path real = fs::weakly_canonical(named, error);
      if (!error && is_in(real, from_))
        target = (to_ / real.lexically_relative(from_)).lexically_normal();
      else if (!error && target.is_relative())
        target = real;
    }
    if (::symlink(target.c_str(), to.c_str()) != 0) fail(to);
  }

  fs::path from_, to_;
  int64_t most_bytes_, bytes_ = 0, room_ = INT64_MAX;
  std::map<std::pair<dev_t, ino_t>, fs::path> twins_;
  std::vector<char> buffer_;
};

/// True for the characters of usual names; any other character ends a name.
bool is_of_path(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./+").find(c) != std::string_view::npos || (c & 0x80) != 0;
}

/// Whether a path can begin behind `before`: "-I", but neither "/mnt" nor "data".
bool can_begin_behind(std::string_view before) {
  size_t start = before.size();
  while (start > 0 && is_of_path(before[start - 1])) --start;
  const std::string_view word = before.substr(start);
  return word.empty() || (word.starts_with('-') && word.find('/') == word.npos);
}

/// Whether a folder's path ends before `behind`, in which no ".." leads out of it again.
bool can_end_before(std::string_view behind) {
  return behind.empty() || !is_of_path(behind[0]) ||
         (behind[0] == '/' && !behind.starts_with("/.."));
}

}  // namespace

void copy_folder(const std::string& from, const std::string& to, int64_t most_bytes) {
  Copier(from, to, most_bytes).copy();
}

std::string with_moved_paths(std::string_view text, std::string_view from, std::string_view to) {
  std::string moved;
  for (size_t at = 0; at < text.size();) {
    const size_t found = text.find(from, at), end = found + from.size();
    if (found == text.npos) return moved += text.substr(at);
    const bool is_it = can_begin_behind(text.substr(0, found)) && can_end_before(text.substr(end));
    moved += text.substr(at, found - at);
    moved += is_it ? to : from;
    at = end;
  }
  return moved;
}

}  // namespace ridge::attach
