#include "ridge/io/checkpoint_manifest.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "ridge/base/json_writer.h"
#include "ridge/base/utf8.h"
#include "ridge/io/checksum.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

constexpr std::string_view kSchema = "ridge.checkpoint/1";
constexpr std::string_view kSealStart = ",\n  \"seal\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr size_t kDigits = 16;

void write_text(JsonWriter& json, const std::string& key, const std::string& value) {
  check(valid_utf8(key) == key && valid_utf8(value) == value,
        "checkpoint: text '{}' is not UTF-8",
        valid_utf8(key));
  json.field(key, value);
}

void write_number(JsonWriter& json, const std::string& key, double value) {
  check(valid_utf8(key) == key, "checkpoint: name '{}' is not UTF-8", valid_utf8(key));
  // JSON has no word for these.
  if (std::isnan(value))
    json.field(key, "nan");
  else if (std::isinf(value))
    json.field(key, value > 0 ? "inf" : "-inf");
  else
    json.field(key, value);
}

void write_info(JsonWriter& json, const Checkpoint& info) {
  json.field("schema", kSchema).field("step", info.step).field("epoch", info.epoch);
  json.field("sample", info.sample);
  json.key("texts").begin_object();
  for (const auto& [key, value] : info.texts) write_text(json, key, value);
  json.end_object().key("numbers").begin_object();
  for (const auto& [key, value] : info.numbers) write_number(json, key, value);
  json.end_object().key("integers").begin_object();
  for (const auto& [key, value] : info.integers) {
    check(valid_utf8(key) == key, "checkpoint: name '{}' is not UTF-8", valid_utf8(key));
    json.field(key, value);
  }
  json.end_object();
}

double parse_number(const JsonValue& value, const std::string& where) {
  const auto* text = std::get_if<std::string>(&value.data());
  if (text == nullptr) return value.as_number(where);
  if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (*text == "inf") return std::numeric_limits<double>::infinity();
  check(*text == "-inf", "{}: '{}' is not a number", where, *text);
  return -std::numeric_limits<double>::infinity();
}

int64_t parse_count(const JsonValue& object, std::string_view key, const std::string& where) {
  const int64_t count = object.at(key, where).as_integer(where);
  check(count >= 0, "{}: {} must not be negative; got {}", where, key, count);
  return count;
}

uint64_t parse_checksum(const JsonValue& object, const std::string& where) {
  const std::string& text = object.at("xxh64", where).as_string(where);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  check(error == std::errc() && end == text.data() + text.size() && text.size() == kDigits,
        "{}: xxh64 must be 16 hexadecimal digits; got '{}'",
        where,
        text);
  return value;
}

Checkpoint parse_info(const JsonValue& root, const std::string& source) {
  const std::string& schema = root.at("schema", source).as_string(source + ": schema");
  if (schema != kSchema)
    throw UserError(fmt::format("{}: schema '{}', expected '{}'", source, schema, kSchema),
                    "read it with the version of ridge that wrote it");
  Checkpoint info;
  info.step = parse_count(root, "step", source);
  info.epoch = parse_count(root, "epoch", source);
  info.sample = parse_count(root, "sample", source);
  const auto section = [&](std::string_view name) -> const JsonValue::Object& {
    return root.at(name, source).as_object(fmt::format("{}: {}", source, name));
  };
  for (const auto& [key, value] : section("texts"))
    info.texts[key] = value.as_string(source + ": texts." + key);
  for (const auto& [key, value] : section("numbers"))
    info.numbers[key] = parse_number(value, source + ": numbers." + key);
  for (const auto& [key, value] : section("integers"))
    info.integers[key] = value.as_integer(source + ": integers." + key);
  return info;
}

CheckpointManifest::Entry parse_tensor(const JsonValue& value, const std::string& source) {
  CheckpointManifest::Entry entry;
  const std::string list = source + ": tensors";
  entry.name = value.at("name", list).as_string(list);
  const std::string where = fmt::format("{}: tensor '{}'", source, entry.name);
  const std::string& dtype = value.at("dtype", where).as_string(where);
  const auto parsed = parse_dtype(dtype);
  check(parsed.has_value(), "{}: unknown dtype '{}'", where, dtype);
  entry.type.dtype = *parsed;
  for (const JsonValue& size : value.at("shape", where).as_array(where))
    entry.type.shape.push_back(size.as_integer(where));
  check_type(entry.type, where);
  entry.checksum = parse_checksum(value, where);
  return entry;
}

}  // namespace

std::string print_manifest(const CheckpointManifest& manifest) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object();
  write_info(json, manifest.info);
  json.key("files").begin_object();
  for (const auto& [name, file] : manifest.files) {
    json.key(name).begin_object().field("bytes", file.bytes);
    json.field("xxh64", checksum_text(file.checksum)).end_object();
  }
  json.end_object().key("tensors").begin_array();
  for (const auto& tensor : manifest.tensors) {
    json.begin_object().field("name", tensor.name).field("dtype", name_of(tensor.type.dtype));
    json.key("shape").begin_array();
    for (int64_t size : tensor.type.shape) json.value(size);
    json.end_array().field("xxh64", checksum_text(tensor.checksum)).end_object();
  }
  json.end_array();
  const std::string seal = checksum_text(checksum(as_bytes(text)));
  return fmt::format("{}{}{}{}", text, kSealStart, seal, kSealEnd);
}

void check_seal(std::string_view text, std::string_view source) {
  constexpr size_t kTail = kSealStart.size() + kDigits + kSealEnd.size();
  check(text.size() >= kTail && text.ends_with(kSealEnd), "{}: truncated", source);
  const std::string_view sealed = text.substr(0, text.size() - kTail);
  const std::string expected =
      fmt::format("{}{}{}", kSealStart, checksum_text(checksum(as_bytes(sealed))), kSealEnd);
  check(text.substr(sealed.size()) == expected, "{}: corrupt: its seal does not match", source);
}

CheckpointManifest parse_manifest(std::string_view text, std::string_view source) {
  const std::string name(source);
  const JsonValue root = parse_json(text, source);
  CheckpointManifest manifest;
  manifest.info = parse_info(root, name);
  for (const auto& [file, value] : root.at("files", name).as_object(name + ": files")) {
    const std::string where = fmt::format("{}: file '{}'", source, file);
    // A name from outside must not lead out of the folder.
    check(!file.empty() && file.front() != '.' && file.find('/') == std::string::npos &&
              file.find('\0') == std::string::npos,
          "{}: not a plain file name",
          where);
    manifest.files[file] = {parse_count(value, "bytes", where), parse_checksum(value, where)};
  }
  std::set<std::string> names;
  for (const JsonValue& value : root.at("tensors", name).as_array(name + ": tensors")) {
    manifest.tensors.push_back(parse_tensor(value, name));
    const std::string& tensor = manifest.tensors.back().name;
    check(names.insert(tensor).second, "{}: two tensors are called '{}'", source, tensor);
  }
  return manifest;
}

}  // namespace ridge
