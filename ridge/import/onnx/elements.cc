#include "ridge/import/onnx/elements.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "ridge/base/utf8.h"
#include "ridge/import/onnx/message.h"
#include "ridge/io/elements.h"

namespace ridge::onnx {
namespace {

// TensorProto.DataType, by number.
constexpr std::string_view kTypeNames[] = {
    "UNDEFINED",      "FLOAT",    "UINT8",        "INT8",           "UINT16",
    "INT16",          "INT32",    "INT64",        "STRING",         "BOOL",
    "FLOAT16",        "DOUBLE",   "UINT32",       "UINT64",         "COMPLEX64",
    "COMPLEX128",     "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ", "UINT4",    "INT4",         "FLOAT4E2M1",     "FLOAT8E8M0",
    "UINT2",          "INT2"};

// Elements that come as a list of numbers: of 16 bits and less in int32_data.
struct Lists {
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> integers;
};

template <typename T>
Known copied(const std::vector<T>& list, DType dtype, const Shape& shape, const std::string& who) {
  const int64_t elements = checked_elements(dtype, shape, who);
  check(static_cast<int64_t>(list.size()) == elements,
        "{}: {} elements for {}",
        who,
        list.size(),
        to_string(TensorType{dtype, shape}));
  if (elements == 0) return Known::empty(dtype, shape);
  Tensor tensor({dtype, shape});
  dispatch(dtype, [&]<typename To>(TypeTag<To>) {
    auto* to = tensor.span<To>().data();
    for (const T value : list) {
      if constexpr (std::is_same_v<To, F16> || std::is_same_v<To, BF16>)
        (to++)->bits = static_cast<uint16_t>(value);  // int32_data hold the bits
      else if constexpr (std::is_same_v<To, bool>)
        *to++ = value != 0;
      else
        *to++ = static_cast<To>(value);
    }
  });
  return Known(std::move(tensor));
}

Known listed(const Lists& lists, DType dtype, const Shape& shape, const std::string& who) {
  if (dtype == DType::kF32) return copied(lists.floats, dtype, shape, who);
  if (dtype == DType::kF64) return copied(lists.doubles, dtype, shape, who);
  return copied(lists.integers, dtype, shape, who);
}

// Bytes of a file where elements lie; bools are checked, since others are undefined behaviour.
Known placed(Bytes bytes,
             DType dtype,
             const Shape& shape,
             std::shared_ptr<const void> owner,
             const std::string& who) {
  const auto size = static_cast<size_t>(checked_elements(dtype, shape, who)) * size_of(dtype);
  check(bytes.size() == size,
        "{}: {} bytes of elements; {} has {}",
        who,
        bytes.size(),
        to_string(TensorType{dtype, shape}),
        size);
  check_bools(dtype, bytes, who);
  return {dtype, shape, bytes, std::move(owner)};
}

// Integers several of which share a byte, whose lowest bits are those of the first.
struct Packing {
  DType dtype;  // of the same integers, one in each byte
  int bits;

  int64_t bytes(int64_t elements) const {
    const int each = 8 / bits;
    return elements / each + (elements % each != 0 ? 1 : 0);
  }
};

std::optional<Packing> packing_of(int64_t data_type) {
  switch (data_type) {
    case 21:
      return Packing{DType::kU8, 4};
    case 22:
      return Packing{DType::kI8, 4};
    case 25:
      return Packing{DType::kU8, 2};
    case 26:
      return Packing{DType::kI8, 2};
    default:
      return std::nullopt;
  }
}

Known unpacked(Bytes bytes, const Packing& packing, const Shape& shape, const std::string& who) {
  const int64_t elements = checked_elements(packing.dtype, shape, who);
  check(std::ssize(bytes) == packing.bytes(elements),
        "{}: {} bytes of elements; {} of {} bits have {}",
        who,
        bytes.size(),
        to_string(shape),
        packing.bits,
        packing.bytes(elements));
  if (elements == 0) return Known::empty(packing.dtype, shape);
  Tensor tensor({packing.dtype, shape});
  auto* const to = static_cast<uint8_t*>(tensor.data());
  const int each = 8 / packing.bits, above = 8 - packing.bits;
  for (int64_t i = 0; i < elements; ++i) {
    const auto byte = static_cast<unsigned>(bytes[static_cast<size_t>(i / each)]);
    const auto at_top = static_cast<uint8_t>(byte << (above - i % each * packing.bits));
    to[i] = packing.dtype == DType::kI8 ? static_cast<uint8_t>(static_cast<int8_t>(at_top) >> above)
                                        : static_cast<uint8_t>(at_top >> above);
  }
  Known known(std::move(tensor));
  known.set_narrow();
  return known;
}

// Bytes that come as a list of numbers.
std::vector<std::byte> bytes_of(const std::vector<int64_t>& list, const std::string& who) {
  std::vector<std::byte> bytes;
  for (const int64_t value : list) {
    check(value >= -128 && value <= 255, "{}: {} is not a byte of packed elements", who, value);
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

int64_t number_of(const std::string& text, const std::string& who) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && value >= 0,
        "{}: its external data have the offset or length '{}', which is no number",
        who,
        text);
  return value;
}

// The entries of external_data.
std::map<std::string, std::string> external_entries(Bytes message) {
  std::map<std::string, std::string> entries;
  for (Message m(message); m.next();) {
    if (m.field() != 13) continue;
    std::string key, value;
    for (Message entry(m.bytes()); entry.next();) {
      if (entry.field() == 1) key = entry.text();
      if (entry.field() == 2) value = entry.text();
    }
    check(is_printable(value), "'{}' of external data is no text", shown_text(key));
    entries[key] = value;
  }
  return entries;
}

// The place of a tensor's elements.
struct Extent {
  std::string location;  // a file
  int64_t offset = 0, length = 0;

  // A file may say more than any number holds.
  int64_t end() const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return length > kMost - offset ? kMost : offset + length;
  }
};

std::string named(const TensorProto& tensor) { return fmt::format("tensor '{}'", tensor.name); }

[[noreturn]] void refuse_damaged(const std::string& who, const protozero::exception& error) {
  throw UserError(fmt::format("{}: it is damaged: {}", who, error.what()));
}

// Without a length its sizes say it; of a dtype that Ridge has not they say nothing.
Extent extent_of(const TensorProto& tensor) {
  const std::string who = named(tensor);
  const auto entries = external_entries(tensor.message);
  const auto location = entries.find("location");
  check(location != entries.end(), "{}: its external data have no location", who);
  const auto number = [&](const char* key, int64_t fallback) {
    const auto found = entries.find(key);
    return found == entries.end() ? fallback : number_of(found->second, who);
  };
  int64_t bytes = 0;
  if (const auto dtype = dtype_of_onnx(tensor.data_type))
    bytes = checked_elements(*dtype, tensor.dims, who) * static_cast<int64_t>(size_of(*dtype));
  if (const auto packing = packing_of(tensor.data_type))
    bytes = packing->bytes(checked_elements(packing->dtype, tensor.dims, who));
  return {location->second, number("offset", 0), number("length", bytes)};
}

}  // namespace

std::optional<DType> dtype_of_onnx(int64_t data_type) {
  switch (data_type) {
    case 1:
      return DType::kF32;
    case 2:
      return DType::kU8;
    case 3:
      return DType::kI8;
    case 4:
      return DType::kU16;
    case 5:
      return DType::kI16;
    case 6:
      return DType::kI32;
    case 7:
      return DType::kI64;
    case 9:
      return DType::kBool;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

int64_t onnx_type_of(DType dtype) {
  for (int64_t data_type = 1; data_type < std::ssize(kTypeNames); ++data_type)
    if (dtype_of_onnx(data_type) == dtype) return data_type;
  throw InternalError(fmt::format("ONNX has no {}", name_of(dtype)));
}

bool can_read(int64_t data_type) {
  return dtype_of_onnx(data_type).has_value() || packing_of(data_type).has_value();
}

std::string onnx_type_name(int64_t data_type) {
  if (data_type < 0 || data_type >= std::ssize(kTypeNames)) return fmt::format("{}", data_type);
  return std::string(kTypeNames[data_type]);
}

Known ElementFiles::read(const TensorProto& tensor) {
  const std::string who = named(tensor);
  const auto dtype = dtype_of_onnx(tensor.data_type);
  check(can_read(tensor.data_type),
        "{}: dtype {} is not supported",
        who,
        onnx_type_name(tensor.data_type));
  try {
    if (!dtype) return read_packed(tensor, who);
    return tensor.is_external ? read_external(tensor, *dtype, who)
                              : read_elements(tensor, *dtype, who);
  } catch (const protozero::exception& error) {
    refuse_damaged(who, error);
  }
}

Known ElementFiles::stored(const TensorProto& tensor) {
  const std::string who = named(tensor);
  try {
    const ExternalBytes external = external_bytes(tensor, who);
    return {DType::kU8, {std::ssize(external.bytes)}, external.bytes, external.file};
  } catch (const protozero::exception& error) {
    refuse_damaged(who, error);
  }
}

Known ElementFiles::read_elements(const TensorProto& tensor, DType dtype, const std::string& who) {
  Lists lists;
  std::optional<Bytes> raw;
  for (Message m(tensor.message); m.next();) {
    if (m.field() == 4) m.append(lists.floats);
    if (m.field() == 5 || m.field() == 7) m.append(lists.integers);
    if (m.field() == 9) raw = m.bytes();
    if (m.field() == 10) m.append(lists.doubles);
  }
  return raw ? placed(*raw, dtype, tensor.dims, owner_, who)
             : listed(lists, dtype, tensor.dims, who);
}

Known ElementFiles::read_packed(const TensorProto& tensor, const std::string& who) {
  const Packing packing = *packing_of(tensor.data_type);
  if (tensor.is_external)
    return unpacked(external_bytes(tensor, who).bytes, packing, tensor.dims, who);
  std::vector<int64_t> list;
  std::optional<Bytes> raw;
  for (Message m(tensor.message); m.next();) {
    if (m.field() == 5) m.append(list);
    if (m.field() == 9) raw = m.bytes();
  }
  if (raw) return unpacked(*raw, packing, tensor.dims, who);
  return unpacked(bytes_of(list, who), packing, tensor.dims, who);
}

Known ElementFiles::read_external(const TensorProto& tensor, DType dtype, const std::string& who) {
  const ExternalBytes external = external_bytes(tensor, who);
  return placed(external.bytes, dtype, tensor.dims, external.file, who);
}

ElementFiles::ExternalBytes ElementFiles::external_bytes(const TensorProto& tensor,
                                                         const std::string& who) {
  const Extent extent = extent_of(tensor);
  const std::shared_ptr<const MappedFile> file = map(extent.location, extent.end(), who);
  return {
      file->bytes().subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.length)),
      file};
}

void ElementFiles::check_files(const std::vector<const TensorProto*>& tensors) {
  std::map<std::string, std::pair<int64_t, const TensorProto*>> last;  // of each file
  for (const TensorProto* tensor : tensors) {
    try {
      const Extent extent = extent_of(*tensor);
      const std::pair ends(extent.end(), tensor);
      const auto [at, is_new] = last.emplace(extent.location, ends);
      if (!is_new && extent.end() > at->second.first) at->second = ends;
    } catch (const protozero::exception& error) {
      refuse_damaged(named(*tensor), error);
    }
  }
  for (const auto& [location, ends] : last) map(location, ends.first, named(*ends.second));
}

namespace {

std::filesystem::path path_in_folder(const std::filesystem::path& model,
                                     const std::string& location,
                                     const std::string& who) {
  const std::filesystem::path relative(location);
  const auto is_up = [](const std::filesystem::path& part) { return part == ".."; };
  check(!model.empty() && !location.empty() && relative.is_relative() &&
            std::none_of(relative.begin(), relative.end(), is_up),
        "{}: its elements lie in '{}', outside of the model's folder",
        who,
        location);
  // A symbolic link may leave the folder, too.
  std::error_code error;
  const auto folder = std::filesystem::weakly_canonical(
      model.has_parent_path() ? model.parent_path() : std::filesystem::path("."), error);
  auto path = std::filesystem::weakly_canonical(folder / relative, error);
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  check(!error && end == folder.end(),
        "{}: its elements lie in '{}', outside of the model's folder",
        who,
        location);
  return path;
}

}  // namespace

std::shared_ptr<const MappedFile> ElementFiles::map(const std::string& location,
                                                    int64_t bytes,
                                                    const std::string& who) {
  const auto refuse = [&](const std::string& why) {
    throw UserError(fmt::format("{} needs a file of {} bytes: {}", who, bytes, why),
                    "copy the whole file beside the model");
  };
  std::shared_ptr<const MappedFile>& file = files_[location];
  if (file == nullptr) {
    const std::filesystem::path path = path_in_folder(model_, location, who);
    try {
      file = std::make_shared<const MappedFile>(path);
    } catch (const UserError& error) {
      refuse(error.message());
    }
  }
  const auto size = static_cast<int64_t>(file->bytes().size());
  if (size < bytes) refuse(fmt::format("'{}' has {}", file->path().string(), size));
  return file;
}

}  // namespace ridge::onnx
