#include "ridge/io/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ridge/base/clock.h"
#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;
constexpr int64_t kFlushNs = 1000000000;

[[noreturn]] void fail(std::string_view action, const std::filesystem::path& path) {
  throw UserError(fmt::format("cannot {} '{}': {}", action, path.string(), std::strerror(errno)));
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, size_t keep)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)),
      flushed_ns_(now_ns()) {
  if (descriptor_ < 0) fail("open", path_);
  buffer_.resize(kBufferBytes);  // every page of it is there from the start
  buffer_.clear();
  // Pipes and devices cannot be cut, and hold nothing to cut off.
  if (::ftruncate(descriptor_, static_cast<off_t>(keep)) == 0 || errno == EINVAL) return;
  const int code = errno;
  ::close(descriptor_);
  errno = code;
  fail("cut", path_);
}

AppendFile::~AppendFile() {
  try {
    flush();
  } catch (const UserError&) {
    // Whoever needs to know has called flush().
  }
  ::close(descriptor_);
}

void AppendFile::append(Bytes bytes) {
  check_internal(bytes.size() <= kBufferBytes, "[AppendFile] {} bytes at once", bytes.size());
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  buffer_.append(as_text(bytes));
  if (now_ns() - flushed_ns_ >= kFlushNs) flush();
}

void AppendFile::flush() {
  Bytes rest = as_bytes(buffer_);
  flushed_ns_ = now_ns();
  while (!rest.empty()) {
    const ssize_t done = ::write(descriptor_, rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const int code = errno;
      buffer_.erase(0, buffer_.size() - rest.size());  // written bytes are not written twice
      errno = code;
      fail("write", path_);
    }
    rest = rest.subspan(static_cast<size_t>(done));
  }
  buffer_.clear();
}

}  // namespace ridge
