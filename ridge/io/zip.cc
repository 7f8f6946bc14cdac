// Format: APPNOTE.TXT of PKWARE, 6.3.10.
#include "ridge/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/io/elements.h"

namespace ridge {
namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kCentralMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr uint32_t kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint16_t kExtra64 = 1;        // the extra field with sizes of 64 bits
constexpr uint16_t kIs64 = 0xffff;      // a number of 16 bits that stands elsewhere in 64
constexpr uint32_t kIn64 = 0xffffffff;  // the same of 32 bits
constexpr uint16_t kVersion64 = 45;     // the version of the format that has ZIP64
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kEncrypted = 1, kUtf8 = 1 << 11;
constexpr uint16_t kFirstDay = 1 << 5 | 1;  // 1980-01-01, the earliest date
constexpr size_t kDeflateLimit = 1032;      // the most bytes that a deflated one becomes
constexpr size_t kMaxPiece = std::numeric_limits<uInt>::max() / 2;

/// Reads numbers of one record after the other. It was checked before that it is there.
class RecordReader {
 public:
  RecordReader(Bytes bytes, size_t at) : bytes_(bytes), at_(at) {}
  template <typename T>
  T next() {
    const T value = load_little_endian<T>(&bytes_[at_]);
    at_ += sizeof(T);
    return value;
  }
  template <typename T>
  void skip(int count) {
    at_ += sizeof(T) * static_cast<size_t>(count);
  }

 private:
  Bytes bytes_;
  size_t at_;
};

/// The place of the directory.
struct Directory {
  uint64_t files = 0, begin = 0, size = 0;
  uint64_t end = 0;  ///< The place of the records behind the directory, where files may not lie.
};

bool has_mark(Bytes bytes, size_t at, uint32_t mark) {
  return load_little_endian<uint32_t>(&bytes[at]) == mark;
}

class ZipParser {
 public:
  ZipParser(Bytes bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  std::vector<ZipEntry> parse() {
    const Directory directory = find_directory();
    need(directory.begin <= directory.end && directory.size <= directory.end - directory.begin,
         "its directory lies outside of the file");
    need(directory.files <= directory.size / kCentralBytes,
         "its directory has no room for {} files",
         directory.files);
    central_ = bytes_.subspan(directory.begin, directory.size);
    std::vector<ZipEntry> entries;
    for (uint64_t i = 0; i < directory.files; ++i) entries.push_back(next_entry(directory.begin));
    need(central_.empty(), "its directory has more than {} files", directory.files);
    check_apart();
    return entries;
  }

 private:
  template <typename... Args>
  void need(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    throw UserError(fmt::format(
        "{}: damaged archive: {}", source_, fmt::format(format, std::forward<Args>(args)...)));
  }

  // The record at the end, behind which only a comment may stand.
  size_t find_end() const {
    constexpr size_t kMostComment = 0xffff;
    check(bytes_.size() >= kEndBytes, "{}: not a ZIP archive", source_);
    size_t at = bytes_.size() - kEndBytes;
    const size_t last = at - std::min(at, kMostComment);
    for (;; --at) {
      if (has_mark(bytes_, at, kEndMark) &&
          load_little_endian<uint16_t>(&bytes_[at + kEndBytes - 2]) ==
              bytes_.size() - at - kEndBytes)
        return at;
      if (at == last) break;
    }
    throw UserError(fmt::format("{}: not a ZIP archive, or a truncated one", source_));
  }

  Directory find_directory() const {
    const size_t end = find_end();
    if (end >= kLocatorBytes && has_mark(bytes_, end - kLocatorBytes, kLocatorMark))
      return find_directory64(end - kLocatorBytes);
    RecordReader record(bytes_, end + 4);
    need(record.next<uint16_t>() == 0 && record.next<uint16_t>() == 0,
         "it is one of several parts");
    Directory directory{.end = end};
    record.skip<uint16_t>(1);
    directory.files = record.next<uint16_t>();
    directory.size = record.next<uint32_t>();
    directory.begin = record.next<uint32_t>();
    return directory;
  }

  Directory find_directory64(size_t locator) const {
    RecordReader to_end(bytes_, locator + 4);
    to_end.skip<uint32_t>(1);
    const auto end = to_end.next<uint64_t>();
    need(
        locator >= kEnd64Bytes && end <= locator - kEnd64Bytes && has_mark(bytes_, end, kEnd64Mark),
        "the record of its sizes in 64 bits is not there");
    RecordReader record(bytes_, end + 4);
    record.skip<uint64_t>(1);
    record.skip<uint16_t>(2);
    need(record.next<uint32_t>() == 0 && record.next<uint32_t>() == 0,
         "it is one of several parts");
    Directory directory{.end = end};
    record.skip<uint64_t>(1);
    directory.files = record.next<uint64_t>();
    directory.size = record.next<uint64_t>();
    directory.begin = record.next<uint64_t>();
    return directory;
  }

  // Takes one file off the front of the directory, which begins at `directory`.
  ZipEntry next_entry(uint64_t directory) {
    need(central_.size() >= kCentralBytes && has_mark(central_, 0, kCentralMark),
         "its directory ends early");
    RecordReader record(central_, 4);
    record.skip<uint16_t>(2);
    const auto flags = record.next<uint16_t>(), method = record.next<uint16_t>();
    record.skip<uint16_t>(2);
    ZipEntry entry{.crc = record.next<uint32_t>()};
    uint64_t packed = record.next<uint32_t>(), size = record.next<uint32_t>();
    const size_t name_bytes = record.next<uint16_t>(), extra_bytes = record.next<uint16_t>();
    const size_t comment_bytes = record.next<uint16_t>();
    record.skip<uint16_t>(2);
    record.skip<uint32_t>(1);
    uint64_t begin = record.next<uint32_t>();
    const size_t whole = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    need(whole <= central_.size(), "its directory ends early");
    entry.name = as_text(central_.subspan(kCentralBytes, name_bytes));
    read_extra(central_.subspan(kCentralBytes + name_bytes, extra_bytes), {&size, &packed, &begin});
    central_ = central_.subspan(whole);
    check_method(entry, flags, method);
    need(names_.insert(entry.name).second, "two files are called '{}'", shown_text(entry.name));
    entry.is_deflated = method == kDeflated;
    entry.size = size;
    entry.packed = find_packed(entry.name, begin, packed, directory);
    need(entry.is_deflated ? size / kDeflateLimit <= packed : size == packed,
         "'{}' cannot have {} bytes: {} are there",
         shown_text(entry.name),
         size,
         packed);
    return entry;
  }

  // Numbers that are all ones in 32 bits stand here in 64, in this order.
  void read_extra(Bytes extra, std::initializer_list<uint64_t*> numbers) const {
    while (extra.size() >= 4) {
      const auto id = load_little_endian<uint16_t>(extra.data());
      const size_t size = load_little_endian<uint16_t>(&extra[2]);
      need(size <= extra.size() - 4, "an extra field ends early");
      Bytes field = extra.subspan(4, size);
      extra = extra.subspan(4 + size);
      if (id != kExtra64) continue;
      for (uint64_t* number : numbers) {
        if (*number != kIn64) continue;
        need(field.size() >= 8, "a size in 64 bits is missing");
        *number = load_little_endian<uint64_t>(field.data());
        field = field.subspan(8);
      }
      return;
    }
  }

  void check_method(const ZipEntry& entry, uint16_t flags, uint16_t method) const {
    constexpr const char* kFix = "save it by numpy.savez or numpy.savez_compressed";
    if ((flags & kEncrypted) != 0)
      throw UserError(fmt::format("{}: '{}' is encrypted", source_, shown_text(entry.name)), kFix);
    if (method != kStored && method != kDeflated)
      throw UserError(fmt::format("{}: '{}' is packed by method {}, which is neither stored nor "
                                  "deflated",
                                  source_,
                                  shown_text(entry.name),
                                  method),
                      kFix);
  }

  // A file has a header of its own, before the bytes.
  Bytes find_packed(const std::string& name, uint64_t begin, uint64_t packed, uint64_t directory) {
    const std::string shown = shown_text(name);
    need(begin <= directory && directory - begin >= kLocalBytes &&
             has_mark(bytes_, begin, kLocalMark),
         "'{}' is not where the directory says",
         shown);
    RecordReader record(bytes_, begin + kLocalBytes - 4);
    const size_t name_bytes = record.next<uint16_t>(), extra_bytes = record.next<uint16_t>();
    const uint64_t room = directory - begin - kLocalBytes;
    need(name_bytes + extra_bytes <= room && packed <= room - name_bytes - extra_bytes,
         "'{}' ends beyond the directory's begin",
         shown);
    need(as_text(bytes_.subspan(begin + kLocalBytes, name_bytes)) == name,
         "'{}' has another name before its bytes",
         shown);
    const uint64_t data = begin + kLocalBytes + name_bytes + extra_bytes;
    places_.emplace_back(begin, data + packed);
    return bytes_.subspan(data, packed);
  }

  // Files that share bytes would make a small archive a large one.
  void check_apart() {
    std::sort(places_.begin(), places_.end());
    for (size_t i = 1; i < places_.size(); ++i)
      need(places_[i - 1].second <= places_[i].first, "two of its files overlap");
  }

  Bytes bytes_;
  const std::string& source_;
  Bytes central_;  ///< The part of the directory that is not read yet.
  std::set<std::string> names_;
  std::vector<std::pair<uint64_t, uint64_t>> places_;
};

/// An inflater of raw data, ended in any case.
struct Inflater {
  Inflater() { check_internal(inflateInit2(&z, -MAX_WBITS) == Z_OK, "zlib does not start"); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&z); }

  z_stream z = {};
};

/// Whether `from` inflates to as many bytes as `to` has, no more and no fewer.
bool inflates_to(Bytes from, std::span<std::byte> to) {
  Inflater inflater;
  z_stream& z = inflater.z;
  std::byte none{};
  z.next_out = reinterpret_cast<Bytef*>(&none);  // zlib wants a place even for no byte
  int result = Z_OK;
  while (result == Z_OK) {
    if (z.avail_in == 0 && !from.empty()) {
      const size_t piece = std::min(from.size(), kMaxPiece);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data()));
      z.avail_in = static_cast<uInt>(piece);
      from = from.subspan(piece);
    }
    if (z.avail_out == 0 && !to.empty()) {
      const size_t piece = std::min(to.size(), kMaxPiece);
      z.next_out = reinterpret_cast<Bytef*>(to.data());
      z.avail_out = static_cast<uInt>(piece);
      to = to.subspan(piece);
    }
    result = inflate(&z, Z_NO_FLUSH);  // Z_BUF_ERROR where either side has nothing left
  }
  return result == Z_STREAM_END && z.avail_in == 0 && from.empty() && z.avail_out == 0 &&
         to.empty();
}

template <typename T>
void append(std::string& text, std::initializer_list<T> values) {
  for (const T value : values) text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// A stored file's numbers, which its header and the directory repeat.
struct Stored {
  const std::string& name;
  uint32_t crc = 0;
  uint64_t size = 0, begin = 0;
};

void append_common(std::string& text, const Stored& file, uint16_t extra_bytes) {
  append<uint16_t>(text, {kVersion64, kUtf8, kStored, 0, kFirstDay});
  append<uint32_t>(text, {file.crc, kIn64, kIn64});
  append<uint16_t>(text, {static_cast<uint16_t>(file.name.size()), extra_bytes});
}

std::string local_header(const Stored& file) {
  constexpr uint16_t kSizes = 16;
  std::string text;
  append<uint32_t>(text, {kLocalMark});
  append_common(text, file, kSizes + 4);
  text += file.name;
  append<uint16_t>(text, {kExtra64, kSizes});
  append<uint64_t>(text, {file.size, file.size});
  return text;
}

void append_central(std::string& text, const Stored& file) {
  constexpr uint16_t kSizes = 24;
  append<uint32_t>(text, {kCentralMark});
  append<uint16_t>(text, {kVersion64});
  append_common(text, file, kSizes + 4);
  append<uint16_t>(text, {0, 0, 0});
  append<uint32_t>(text, {0, kIn64});
  text += file.name;
  append<uint16_t>(text, {kExtra64, kSizes});
  append<uint64_t>(text, {file.size, file.size, file.begin});
}

std::string end_records(uint64_t files, uint64_t begin, uint64_t size) {
  std::string text;
  append<uint32_t>(text, {kEnd64Mark});
  append<uint64_t>(text, {kEnd64Bytes - 12});  // without mark and this number
  append<uint16_t>(text, {kVersion64, kVersion64});
  append<uint32_t>(text, {0, 0});
  append<uint64_t>(text, {files, files, size, begin});
  append<uint32_t>(text, {kLocatorMark, 0});
  append<uint64_t>(text, {begin + size});
  append<uint32_t>(text, {1, kEndMark});
  append<uint16_t>(text, {0, 0, kIs64, kIs64});
  append<uint32_t>(text, {kIn64, kIn64});
  append<uint16_t>(text, {0});
  return text;
}

}  // namespace

std::vector<ZipEntry> parse_zip(Bytes bytes, const std::string& source) {
  return ZipParser(bytes, source).parse();
}

Bytes unpack(const ZipEntry& entry, std::vector<std::byte>& buffer, const std::string& source) {
  const auto need = [&](bool holds) {
    check(holds, "{}: '{}' is damaged: save the file again", source, shown_text(entry.name));
  };
  Bytes content = entry.packed;
  if (entry.is_deflated) {
    buffer.resize(entry.size);
    need(inflates_to(entry.packed, buffer));
    content = buffer;
  }
  need(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) == entry.crc);
  return content;
}

void write_zip(ByteSink sink, std::span<const ZipFile> files) {
  std::string central;
  uint64_t at = 0;
  for (const ZipFile& file : files) {
    check_internal(
        file.name.size() <= kIs64, "a ZIP archive with a name of {} bytes", file.name.size());
    Stored stored{.name = file.name, .begin = at};
    for (const Bytes piece : file.pieces) {
      stored.crc = static_cast<uint32_t>(
          crc32_z(stored.crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
      stored.size += piece.size();
    }
    const std::string header = local_header(stored);
    sink(as_bytes(header));
    for (const Bytes piece : file.pieces) sink(piece);
    append_central(central, stored);
    at += header.size() + stored.size;
  }
  sink(as_bytes(central));
  sink(as_bytes(end_records(files.size(), at, central.size())));
}

}  // namespace ridge
