#include "ridge/io/idx.h"

#include <algorithm>
#include <optional>

#include "ridge/io/elements.h"
#include "ridge/io/gzip.h"

namespace ridge {
namespace {

// Deflate's densest code: no gzip file inflates to more than this many times its size.
constexpr size_t kMostInflation = 1032;
constexpr size_t kMagicBytes = 4;
constexpr size_t kSizeBytes = 4;

/// The bytes of the file, inflated where it is gzipped, from front to end.
class Source {
 public:
  Source(Bytes bytes, const std::string& name)
      : rest_(bytes), limit_(is_gzip(bytes) ? bytes.size() * kMostInflation : bytes.size()) {
    if (is_gzip(bytes)) gzip_.emplace(bytes, name);
  }

  /// No more bytes than this can come in all.
  size_t limit() const { return limit_; }
  size_t taken() const { return taken_; }

  size_t read(std::span<std::byte> out) {
    size_t got = std::min(out.size(), rest_.size());
    if (gzip_) {
      got = gzip_->read(out);
    } else {
      std::copy_n(rest_.begin(), got, out.begin());
      rest_ = rest_.subspan(got);
    }
    taken_ += got;
    return got;
  }

  /// Bytes not yet read, counted to the end.
  size_t skip_rest() {
    const size_t before = taken_;
    std::byte buffer[4096];
    while (read(buffer) == sizeof(buffer)) {
    }
    return taken_ - before;
  }

 private:
  Bytes rest_;
  size_t limit_;
  size_t taken_ = 0;
  std::optional<GzipReader> gzip_;
};

DType dtype_of_code(int code, const std::string& source) {
  switch (code) {
    case 0x08:
      return DType::kU8;
    case 0x09:
      return DType::kI8;
    case 0x0b:
      return DType::kI16;
    case 0x0c:
      return DType::kI32;
    case 0x0d:
      return DType::kF32;
    case 0x0e:
      return DType::kF64;
    default:
      throw UserError(fmt::format("{}: not an IDX file: unknown type {:#04x}", source, code));
  }
}

TensorType read_header(Source& file, const std::string& source) {
  std::byte magic[kMagicBytes] = {};
  const bool whole = file.read(magic) == kMagicBytes;
  check(whole && magic[0] == std::byte{0} && magic[1] == std::byte{0},
        "{}: not an IDX file: it must begin with two zero bytes, a type and a rank",
        source);
  TensorType type;
  type.dtype = dtype_of_code(std::to_integer<int>(magic[2]), source);
  const int rank = std::to_integer<int>(magic[3]);
  for (int i = 0; i < rank; ++i) {
    std::byte size[kSizeBytes] = {};
    const bool has_size = file.read(size) == kSizeBytes;
    check(has_size, "{}: truncated: file ends in the header of rank {}", source, rank);
    type.shape.push_back(load_big_endian<uint32_t>(size));
  }
  check_type(type, source);
  return type;
}

[[noreturn]] void refuse_size(std::string_view problem,
                              size_t expected,
                              size_t found,
                              const std::string& source) {
  throw UserError(
      fmt::format("{}: {}: header says {} bytes, file has {}", source, problem, expected, found));
}

}  // namespace

Tensor parse_idx(Bytes bytes, const std::string& source) {
  Source file(bytes, source);
  const TensorType type = read_header(file, source);
  const size_t expected = file.taken() + static_cast<size_t>(type.bytes());
  if (expected > file.limit())
    refuse_size("truncated", expected, file.taken() + file.skip_rest(), source);
  Tensor tensor(type);
  const std::span<std::byte> data(static_cast<std::byte*>(tensor.data()), tensor.bytes());
  if (file.read(data) != data.size()) refuse_size("truncated", expected, file.taken(), source);
  const size_t more = file.skip_rest();
  if (more != 0) refuse_size("too long", expected, expected + more, source);
  swap_bytes(data, size_of(type.dtype));
  return tensor;
}

Tensor read_idx(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_idx(file.bytes(), path.string());
}

}  // namespace ridge
