#include "ridge/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, and gzip's header and trailer
constexpr size_t kMaxPiece = std::numeric_limits<uInt>::max() / 2;

}  // namespace

struct GzipReader::Stream {
  z_stream z = {};
  Bytes rest;         // input that zlib was not given yet
  bool done = false;  // all members were read

  /// Gives zlib more input when it has none.
  void feed() {
    if (z.avail_in != 0 || rest.empty()) return;
    const size_t piece = std::min(rest.size(), kMaxPiece);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest.data()));
    z.avail_in = static_cast<uInt>(piece);
    rest = rest.subspan(piece);
  }
};

bool is_gzip(Bytes bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

GzipReader::GzipReader(Bytes bytes, std::string source)
    : source_(std::move(source)), stream_(std::make_unique<Stream>()) {
  check(is_gzip(bytes), "{}: not gzip data", source_);
  stream_->rest = bytes;
  check_internal(inflateInit2(&stream_->z, kGzipWindow) == Z_OK, "zlib does not start");
}

GzipReader::~GzipReader() {
  if (stream_ != nullptr) inflateEnd(&stream_->z);
}

size_t GzipReader::read(std::span<std::byte> out) {
  z_stream& z = stream_->z;
  size_t total = 0;
  while (total < out.size() && !stream_->done) {
    stream_->feed();
    const size_t piece = std::min(out.size() - total, kMaxPiece);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + total);
    z.avail_out = static_cast<uInt>(piece);
    const int result = inflate(&z, Z_NO_FLUSH);
    total += piece - z.avail_out;
    if (result == Z_STREAM_END) {
      next_member();
    } else if (result == Z_BUF_ERROR || (result == Z_OK && z.avail_in == 0 && z.avail_out != 0)) {
      check(!stream_->rest.empty(), "{}: truncated: the gzip data ends early", source_);
    } else {
      check(result == Z_OK,
            "{}: corrupt gzip data: {}",
            source_,
            z.msg == nullptr ? "cannot be inflated" : z.msg);
    }
  }
  return total;
}

/// Goes on to the member that follows, or to the end behind padding.
void GzipReader::next_member() {
  stream_->feed();
  z_stream& z = stream_->z;
  const Bytes given(reinterpret_cast<const std::byte*>(z.next_in), z.avail_in);
  if (is_gzip(given)) {
    check_internal(inflateReset(&z) == Z_OK, "zlib does not start again");
    return;
  }
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  check(std::all_of(given.begin(), given.end(), is_zero) &&
            std::all_of(stream_->rest.begin(), stream_->rest.end(), is_zero),
        "{}: corrupt: other bytes follow the gzip data",
        source_);
  stream_->done = true;
}

std::string gunzip(Bytes bytes, size_t limit, const std::string& source) {
  GzipReader reader(bytes, source);
  std::string content;
  constexpr size_t kFirst = 65536;
  while (true) {
    // One byte beyond the limit shows that there is more.
    const size_t before = content.size();
    const size_t room = std::min(std::max(before, kFirst), limit - std::min(before, limit) + 1);
    content.resize(before + room);
    const size_t got =
        reader.read(std::as_writable_bytes(std::span(content.data() + before, room)));
    content.resize(before + got);
    check(content.size() <= limit, "{}: inflates to more than {} bytes", source, limit);
    if (got < room) return content;
  }
}

}  // namespace ridge
