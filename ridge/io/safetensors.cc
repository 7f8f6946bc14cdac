#include "ridge/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ridge/base/json_writer.h"
#include "ridge/base/utf8.h"
#include "ridge/io/elements.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8;
constexpr size_t kHeaderLimit = 100'000'000;  // the limit of the format's own reader
constexpr size_t kPieceBytes = size_t{1} << 20;

// In the order of DType.
constexpr std::string_view kDTypeNames[] = {
    "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "U16", "U8", "I8", "BOOL"};

std::string_view format_name(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

DType parse_format_dtype(const std::string& name, const std::string& where) {
  for (DType dtype : kAllDTypes)
    if (format_name(dtype) == name) return dtype;
  throw UserError(fmt::format("{}: dtype '{}' is not one that Ridge has", where, name),
                  "convert the tensor to F32");
}

TensorType parse_type(const JsonValue& entry, const std::string& where) {
  TensorType type;
  type.dtype = parse_format_dtype(entry.at("dtype", where).as_string(where + ".dtype"), where);
  for (const JsonValue& size : entry.at("shape", where).as_array(where + ".shape"))
    type.shape.push_back(size.as_integer(where + ".shape"));
  check_type(type, where);
  return type;
}

/// The part of `data` that the entry names, which must have the size of its type.
TensorView parse_entry(const std::string& name,
                       const JsonValue& entry,
                       Bytes data,
                       const std::string& where) {
  check(entry.as_object(where).size() == 3, "{}: expected dtype, shape, data_offsets", where);
  TensorView view{name, parse_type(entry, where), nullptr};
  const auto& offsets = entry.at("data_offsets", where).as_array(where + ".data_offsets");
  check(offsets.size() == 2, "{}: data_offsets must be two integers", where);
  const int64_t begin = offsets[0].as_integer(where + ".data_offsets");
  const int64_t end = offsets[1].as_integer(where + ".data_offsets");
  const int64_t size = static_cast<int64_t>(data.size());
  check(begin >= 0 && begin <= end && end <= size,
        "{}: truncated or wrong offsets; got {} to {}, file has {} bytes of data",
        where,
        begin,
        end,
        size);
  check(end - begin == view.type.bytes(),
        "{}: {} needs {} bytes, its offsets give {}",
        where,
        to_string(view.type),
        view.type.bytes(),
        end - begin);
  view.data = data.data() + begin;
  return view;
}

void check_name(const std::string& name) {
  check(name != kMetadata, "safetensors: a tensor may not be called '{}'", kMetadata);
  check(valid_utf8(name) == name, "safetensors: name '{}' is not UTF-8", valid_utf8(name));
}

std::vector<const TensorView*> file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) {
    check_name(tensor.name);
    check_type(tensor.type, tensor.name);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    const size_t a_size = size_of(a->type.dtype), b_size = size_of(b->type.dtype);
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw UserError(fmt::format("safetensors: two tensors are called '{}'", *twice));
  return order;
}

std::string header_of(const std::vector<const TensorView*>& order, const TextMap& metadata) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  if (!metadata.empty()) {
    json.key(kMetadata).begin_object();
    for (const auto& [key, value] : metadata) {
      check(valid_utf8(key) == key && valid_utf8(value) == value,
            "safetensors: metadata '{}' is not UTF-8",
            valid_utf8(key));
      json.field(key, value);
    }
    json.end_object();
  }
  int64_t offset = 0;
  for (const TensorView* tensor : order) {
    json.key(tensor->name).begin_object().field("dtype", format_name(tensor->type.dtype));
    json.key("shape").begin_array();
    for (int64_t size : tensor->type.shape) json.value(size);
    json.end_array().key("data_offsets").begin_array().value(offset);
    offset += tensor->type.bytes();
    json.value(offset).end_array().end_object();
  }
  json.end_object().finish();
  // The data begins at a multiple of 64 in the file, so that vectors of mapped weights lie in one
  // line of the cache each.
  text.resize((text.size() + kLengthBytes + 63) / 64 * 64 - kLengthBytes, ' ');
  check(text.size() <= kHeaderLimit,
        "safetensors: the header has {} bytes, the format allows {}",
        text.size(),
        kHeaderLimit);
  return text;
}

}  // namespace

SafetensorsView::SafetensorsView(Bytes bytes, std::string source) : source_(std::move(source)) {
  check(bytes.size() >= kLengthBytes,
        "{}: truncated: a safetensors file has at least 8 bytes, this one {}",
        source_,
        bytes.size());
  const uint64_t length = load_little_endian<uint64_t>(bytes.data());
  check(length <= kHeaderLimit,
        "{}: not a safetensors file: its header would have {} bytes",
        source_,
        length);
  check(length <= bytes.size() - kLengthBytes,
        "{}: truncated: its header says {} bytes, file has {}",
        source_,
        length + kLengthBytes,
        bytes.size());
  const std::string_view header = as_text(bytes.subspan(kLengthBytes, length));
  check(header.starts_with('{'), "{}: not a safetensors file: no '{{' at byte 8", source_);
  parse_header(header, bytes.subspan(kLengthBytes + length));
}

SafetensorsView::SafetensorsView(std::vector<TensorView> tensors,
                                 TextMap metadata,
                                 std::string source)
    : source_(std::move(source)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {
  for (const TensorView& tensor : tensors_) index_.emplace(tensor.name, index_.size());
}

void SafetensorsView::parse_header(std::string_view header, Bytes data) {
  const std::string where = source_ + ": header";
  const JsonValue root = parse_json(header, where);
  for (const auto& [name, entry] : root.as_object(where)) {
    const std::string at = fmt::format("{}: '{}'", source_, name);
    if (name == kMetadata) {
      for (const auto& [key, value] : entry.as_object(at))
        metadata_[key] = value.as_string(at + "." + key);
    } else {
      tensors_.push_back(parse_entry(name, entry, data, at));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) {
    return a.data < b.data;
  });
  const std::byte* end = data.data();
  for (const TensorView& tensor : tensors_) {
    check(tensor.data == end, "{}: '{}' overlaps or leaves a gap before it", source_, tensor.name);
    end += tensor.type.bytes();
    index_.emplace(tensor.name, index_.size());
  }
  const ptrdiff_t rest = data.data() + data.size() - end;
  check(rest == 0, "{}: {} bytes after the last tensor", source_, rest);
}

const TensorView& SafetensorsView::tensor(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found != index_.end()) return tensors_[found->second];
  std::vector<std::string> names;
  for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
  throw UserError(fmt::format("{}: no tensor '{}'", source_, name), did_you_mean(name, names));
}

Tensor SafetensorsView::read(std::string_view name) const {
  Tensor result(tensor(name).type);
  read_into(name, result.type(), result.data());
  return result;
}

const TensorView& SafetensorsView::checked(std::string_view name, const TensorType& type) const {
  const TensorView& found = tensor(name);
  check(found.type == type,
        "{}: tensor '{}' is {}, expected {}",
        source_,
        name,
        to_string(found.type),
        to_string(type));
  check_bools(type.dtype, found.bytes(), fmt::format("{}: tensor '{}'", source_, name));
  return found;
}

void SafetensorsView::read_into(std::string_view name, const TensorType& type, void* data) const {
  const Bytes bytes = checked(name, type).bytes();
  std::memcpy(data, bytes.data(), bytes.size());
}

void write_safetensors(ByteSink sink,
                       std::span<const TensorView> tensors,
                       const TextMap& metadata) {
  const auto order = file_order(tensors);
  const std::string header = header_of(order, metadata);
  const uint64_t length = header.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(as_bytes(header));
  for (const TensorView* tensor : order)
    for (Bytes rest = tensor->bytes(); !rest.empty();) {
      const size_t size = std::min(rest.size(), kPieceBytes);
      sink(rest.first(size));
      rest = rest.subspan(size);
    }
}

void save_safetensors(const std::filesystem::path& path,
                      std::span<const TensorView> tensors,
                      const TextMap& metadata) {
  stream_file_atomically(path, [&](ByteSink sink) { write_safetensors(sink, tensors, metadata); });
}

}  // namespace ridge
