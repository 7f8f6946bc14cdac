#include "ridge/io/npy.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "ridge/base/utf8.h"
#include "ridge/io/elements.h"

namespace ridge {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionEnd = 8;  // magic, major, minor
constexpr size_t kHeaderLimit = 65536;

/// How the elements lie in the file.
struct Element {
  size_t size = 0;
  bool big_endian = false;
  bool widen = false;         // unsigned, to be stored as i64
  DType dtype = DType::kF32;  // type of the tensor
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
  size_t data_offset = 0;
};

/// Reads the Python dictionary that the header is.
class DictParser {
 public:
  DictParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Header parse() {
    Header header;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      const auto first = [&](int i) { require(!std::exchange(seen[i], true), key + " once"); };
      if (key == "descr") {
        first(0);
        header.descr = string();
      } else if (key == "fortran_order") {
        first(1);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        first(2);
        header.shape = shape();
      } else {
        require(false, "descr, fortran_order or shape");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    require(at_ == text_.size(), "the end of the header");
    require(seen[0] && seen[1] && seen[2], "descr, fortran_order and shape");
    return header;
  }

 private:
  void require(bool condition, std::string_view wanted) const {
    check(condition, "{}: NPY header, byte {}: expected {}", source_, at_, wanted);
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) { require(accept(wanted), fmt::format("'{}'", wanted)); }

  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    require(quote == '\'' || quote == '"', "a string");
    const size_t end = text_.find(quote, at_ + 1);
    require(end != text_.npos, "the end of a string");
    const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    require(content.find('\\') == content.npos, "a string without escapes");
    at_ = end + 1;
    return std::string(content);
  }

  bool boolean() {
    if (accept_word("True")) return true;
    require(accept_word("False"), "True or False");
    return false;
  }

  Shape shape() {
    Shape sizes;
    expect('(');
    while (!accept(')')) {
      require(sizes.size() < kMaxRank, fmt::format("at most {} dimensions", kMaxRank));
      sizes.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  int64_t integer() {
    skip_space();
    int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto result = std::from_chars(text_.data() + at_, end, value);
    require(result.ec == std::errc(), "a size");
    at_ = static_cast<size_t>(result.ptr - text_.data());
    accept_word("L");  // Python 2 wrote an L
    return value;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

/// The code of each dtype that NPY has, without the order of bytes; then those that become i64.
constexpr std::pair<std::string_view, DType> kCodes[] = {{"b1", DType::kBool},
                                                         {"i1", DType::kI8},
                                                         {"u1", DType::kU8},
                                                         {"i2", DType::kI16},
                                                         {"u2", DType::kU16},
                                                         {"i4", DType::kI32},
                                                         {"i8", DType::kI64},
                                                         {"f2", DType::kF16},
                                                         {"f4", DType::kF32},
                                                         {"f8", DType::kF64},
                                                         {"u4", DType::kI64},
                                                         {"u8", DType::kI64}};

std::optional<DType> dtype_of_code(std::string_view code) {
  for (const auto& [known, dtype] : kCodes)
    if (known == code) return dtype;
  return std::nullopt;
}

Element parse_descr(const std::string& descr, const std::string& source) {
  const bool has_order =
      descr.size() == 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  const auto dtype = dtype_of_code(has_order ? std::string_view(descr).substr(1) : "");
  if (!dtype)
    throw UserError(fmt::format("{}: NPY dtype '{}' is not one that Ridge has", source, descr),
                    "convert the array with astype('float32') before saving");
  Element element;
  element.size = static_cast<size_t>(descr[2] - '0');
  element.big_endian = descr[0] == '>';
  element.widen = descr[1] == 'u' && element.size >= 4;
  element.dtype = *dtype;
  return element;
}

Header read_header(Bytes bytes, const std::string& source) {
  const std::string_view text = as_text(bytes);
  check(text.size() >= kVersionEnd && text.starts_with(kMagic), "{}: not an NPY file", source);
  const int version = std::to_integer<int>(bytes[6]);
  check(version >= 1 && version <= 3, "{}: unknown version {} of NPY", source, version);
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t begin = kVersionEnd + length_bytes;
  check(text.size() >= begin, "{}: truncated: file ends in the header", source);
  const size_t length = version == 1 ? load_little_endian<uint16_t>(&bytes[kVersionEnd])
                                     : load_little_endian<uint32_t>(&bytes[kVersionEnd]);
  check(length <= kHeaderLimit, "{}: an NPY header of {} bytes is too large", source, length);
  check(length <= text.size() - begin,
        "{}: truncated: header ends at byte {}, file has {}",
        source,
        begin + length,
        text.size());
  Header header = DictParser(text.substr(begin, length), source).parse();
  header.data_offset = begin + length;
  return header;
}

/// Copies elements of `size` bytes from column-major to row-major order.
void copy_fortran(Bytes from, const Shape& shape, size_t size, std::byte* to) {
  const size_t rank = shape.size();
  std::vector<size_t> strides(rank), index(rank);
  size_t stride = size;
  for (size_t d = 0; d < rank; ++d) {
    strides[d] = stride;
    stride *= static_cast<size_t>(shape[d]);
  }
  size_t offset = 0;
  for (size_t done = 0; done < from.size(); done += size) {
    std::memcpy(to + done, from.data() + offset, size);
    for (size_t d = rank; d-- > 0;) {
      offset += strides[d];
      if (++index[d] < static_cast<size_t>(shape[d])) break;
      offset -= strides[d] * std::exchange(index[d], 0);
    }
  }
}

/// Copies the data in row-major order and this machine's order of bytes.
void copy_elements(Bytes from, const Header& header, const Element& element, std::byte* to) {
  if (header.fortran_order)
    copy_fortran(from, header.shape, element.size, to);
  else
    std::copy(from.begin(), from.end(), to);
  if (element.big_endian) swap_bytes({to, from.size()}, element.size);
}

/// Fills `to` with unsigned integers of `size` bytes.
void widen(Bytes from, size_t size, std::span<int64_t> to, const std::string& source) {
  for (size_t i = 0; i < to.size(); ++i) {
    const std::byte* at = from.data() + i * size;
    const uint64_t value =
        size == 4 ? load_little_endian<uint32_t>(at) : load_little_endian<uint64_t>(at);
    check(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
          "{}: element {} is {}, beyond i64",
          source,
          i,
          value);
    to[i] = static_cast<int64_t>(value);
  }
}

/// Magic, version 1 and dictionary, filled up so that the elements are aligned to 64 bytes.
std::string header_of(const TensorType& type) {
  constexpr size_t kAlignment = 64;
  const auto code = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const auto& known) {
    return known.second == type.dtype;
  });
  check_internal(code != std::end(kCodes), "NPY has no {}", name_of(type.dtype));
  std::string shape;
  for (const int64_t size : type.shape) shape += fmt::format("{}, ", size);
  if (type.rank() > 0) shape.resize(shape.size() - (type.rank() == 1 ? 1 : 2));  // "5,", "5, 4"
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(type.dtype) == 1 ? '|' : '<',
                                 code->first,
                                 shape);
  const size_t begin = kVersionEnd + 2, used = begin + text.size() + 1;
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  const auto length = static_cast<uint16_t>(text.size());
  header.append(reinterpret_cast<const char*>(&length), sizeof length);
  return header + text;
}

/// An array on its way to a file.
class NpyFile {
 public:
  explicit NpyFile(const Tensor& tensor) : tensor_(&tensor) {
    if (tensor.type().dtype == DType::kBF16) {
      widened_ = Tensor({DType::kF32, tensor.type().shape});
      const auto from = tensor.span<BF16>();
      std::copy(from.begin(), from.end(), widened_.span<float>().begin());
    }
    header_ = header_of(written().type());
  }

  /// Views of it, as long as it stays where it is.
  std::vector<Bytes> pieces() const {
    return {as_bytes(header_),
            {static_cast<const std::byte*>(written().data()), written().bytes()}};
  }

 private:
  const Tensor& written() const { return widened_.data() != nullptr ? widened_ : *tensor_; }

  const Tensor* tensor_;
  Tensor widened_;
  std::string header_;
};

constexpr std::string_view kEnd = ".npy";

}  // namespace

Tensor parse_npy(Bytes bytes, const std::string& source) {
  const Header header = read_header(bytes, source);
  const Element element = parse_descr(header.descr, source);
  const TensorType type{element.dtype, header.shape};
  check_type(type, source);
  const Bytes data = bytes.subspan(header.data_offset);
  const size_t expected = static_cast<size_t>(type.elements()) * element.size;
  check(data.size() == expected,
        "{}: {}: header says {} bytes, file has {}",
        source,
        data.size() < expected ? "truncated" : "too long",
        header.data_offset + expected,
        bytes.size());
  check_bools(element.dtype, data, source);
  Tensor tensor(type);
  if (element.widen) {
    std::vector<std::byte> narrow(expected);
    copy_elements(data, header, element, narrow.data());
    widen(narrow, element.size, tensor.span<int64_t>(), source);
  } else {
    copy_elements(data, header, element, static_cast<std::byte*>(tensor.data()));
  }
  return tensor;
}

Tensor read_npy(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_npy(file.bytes(), path.string());
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const NpyFile file(tensor);
  stream_file_atomically(path, [&](ByteSink sink) {
    for (const Bytes piece : file.pieces()) sink(piece);
  });
}

NpzView::NpzView(Bytes bytes, std::string source)
    : source_(std::move(source)), entries_(parse_zip(bytes, source_)) {
  for (const ZipEntry& entry : entries_) {
    if (!entry.name.ends_with(kEnd))
      throw UserError(fmt::format("{}: '{}' in it is no NPY file", source_, shown_text(entry.name)),
                      "save arrays alone, by numpy.savez");
    names_.push_back(entry.name.substr(0, entry.name.size() - kEnd.size()));
  }
}

bool NpzView::contains(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

Tensor NpzView::read(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    throw UserError(fmt::format("{}: there is no array '{}'", source_, name),
                    did_you_mean(name, names_));
  std::vector<std::byte> buffer;
  const ZipEntry& entry = entries_[static_cast<size_t>(found - names_.begin())];
  return parse_npy(unpack(entry, buffer, source_),
                   fmt::format("{}: {}", source_, shown_text(entry.name)));
}

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  std::vector<NpyFile> files;
  std::vector<ZipFile> zipped;
  for (const auto& [name, tensor] : tensors) files.emplace_back(tensor);
  for (const auto& [name, tensor] : tensors)
    zipped.push_back({name + std::string(kEnd), files[zipped.size()].pieces()});
  stream_file_atomically(path, [&](ByteSink sink) { write_zip(sink, zipped); });
}

}  // namespace ridge
