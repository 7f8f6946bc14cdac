#include "ridge/doctor/read/trace_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/io/gzip.h"

namespace ridge::doctor {

/// GzipReader refuses what is cut off; a trace is worth reading up to there.
struct TraceBytes::Inflater {
  z_stream z = {};
  std::array<std::byte, 65536> input;
  bool has_input = true;  ///< The file may have more.
  bool is_done = false;
};

TraceBytes::TraceBytes(const std::string& path) : path_(path) {
  // O_NONBLOCK so that a named pipe is refused by its type instead of waited for.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(descriptor_ >= 0, "cannot open '{}': {}", path, std::strerror(errno));
  try {
    struct stat status;
    check(::fstat(descriptor_, &status) == 0, "cannot read '{}': {}", path, std::strerror(errno));
    check(S_ISREG(status.st_mode), "cannot read '{}': not a regular file", path);
    std::array<std::byte, 2> magic;
    const size_t got = read_file(magic);
    check(::lseek(descriptor_, 0, SEEK_SET) == 0, "cannot read '{}'", path);
    if (!is_gzip(std::span(magic).first(got))) return;
    inflater_ = std::make_unique<Inflater>();
    constexpr int kGzipWindow = 15 + 16;  // the largest window, and gzip's header and trailer
    check_internal(inflateInit2(&inflater_->z, kGzipWindow) == Z_OK, "zlib does not start");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TraceBytes::~TraceBytes() {
  if (inflater_ != nullptr) inflateEnd(&inflater_->z);
  ::close(descriptor_);
}

size_t TraceBytes::read_file(std::span<std::byte> out) {
  while (true) {
    const ssize_t got = ::read(descriptor_, out.data(), out.size());
    if (got >= 0) return static_cast<size_t>(got);
    check(errno == EINTR, "cannot read '{}': {}", path_, std::strerror(errno));
  }
}

size_t TraceBytes::read(std::span<std::byte> out) {
  return inflater_ == nullptr ? read_file(out) : inflate_some(out);
}

size_t TraceBytes::inflate_some(std::span<std::byte> out) {
  Inflater& in = *inflater_;
  z_stream& z = in.z;
  const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uInt>::max() / 2);
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(room);
  while (!in.is_done && z.avail_out == room) {
    if (z.avail_in == 0 && in.has_input) {
      z.avail_in = static_cast<uInt>(read_file(in.input));
      z.next_in = reinterpret_cast<Bytef*>(in.input.data());
      in.has_input = z.avail_in != 0;
    }
    const int result = inflate(&z, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      in.is_done = !next_member();
    } else if (result == Z_BUF_ERROR && !in.has_input) {
      trouble_ = "the gzip data ends early";
      in.is_done = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      trouble_ = "the gzip data is corrupt";
      in.is_done = true;
    }
  }
  return room - z.avail_out;
}

/// Goes on to the member that follows; false at the end, or before what is no gzip data.
bool TraceBytes::next_member() {
  Inflater& in = *inflater_;
  z_stream& z = in.z;
  // A header may lie across two blocks: what is left goes to the front, and more behind it.
  std::memmove(in.input.data(), z.next_in, z.avail_in);
  z.next_in = reinterpret_cast<Bytef*>(in.input.data());
  while (z.avail_in < 2 && in.has_input) {
    const size_t got = read_file(std::span(in.input).subspan(z.avail_in));
    z.avail_in += static_cast<uInt>(got);
    in.has_input = got != 0;
  }
  const auto given = std::span(in.input).first(z.avail_in);
  if (is_gzip(given)) return inflateReset(&z) == Z_OK;
  if (!given.empty() && given[0] != std::byte{0})
    trouble_ = "what follows the gzip data was not read";
  return false;
}

}  // namespace ridge::doctor
