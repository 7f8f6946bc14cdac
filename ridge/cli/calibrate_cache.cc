// The cache of calibrations: its folder, the names of its files, and when a kept one is believed.
#include <cmath>
#include <system_error>

#include "ridge/base/clock.h"
#include "ridge/base/hash.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/calibrate.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSchema = "ridge.calibration-cache/1";
constexpr size_t kFileLimit = size_t{1} << 16;

// A rate or time that can be: the file may hold anything.
double positive(const JsonValue& value, std::string_view where) {
  const double number = value.as_number(where);
  check(std::isfinite(number) && number > 0, "{}: {} is no rate", where, number);
  return number;
}

KeptCalibration read_kept(const fs::path& file, const std::string& fingerprint) {
  const std::string where = file.string();
  const JsonValue root = parse_json(read_file(file, kFileLimit), where);
  check(root.at("schema", where).as_string(where) == kSchema, "{}: another form of file", where);
  check(root.at("machine", where).as_string(where) == fingerprint, "{}: another machine", where);
  KeptCalibration kept;
  kept.from_cache = true;
  kept.measured_at = root.at("measured_at", where).as_integer(where);
  for (const auto& [name, value] : root.at("flops_per_s", where).as_object(where)) {
    const std::optional<DType> dtype = parse_dtype(name);
    check(dtype.has_value(), "{}: unknown dtype '{}'", where, name.substr(0, 20));
    kept.values.flops_per_s[*dtype] = positive(value, where);
  }
  kept.values.copy_bytes_per_s = positive(root.at("copy_bytes_per_s", where), where);
  kept.values.launch_s = positive(root.at("launch_s", where), where);
  for (const DeviceNumber& each : device_numbers(kept.values))
    if (const JsonValue* const value = root.find(each.key); value != nullptr)
      *each.value = positive(*value, where);
  return kept;
}

void write_kept(KeptCalibration& kept, const std::string& fingerprint) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object().field("schema", kSchema).field("machine", fingerprint);
  json.field("measured_at", kept.measured_at);
  json.key("flops_per_s").begin_object();
  for (const auto& [dtype, rate] : kept.values.flops_per_s) json.field(name_of(dtype), rate);
  json.end_object();
  json.field("copy_bytes_per_s", kept.values.copy_bytes_per_s);
  json.field("launch_s", kept.values.launch_s);
  for (const DeviceNumber& each : device_numbers(kept.values))
    if (*each.value > 0) json.field(each.key, *each.value);
  json.end_object().finish();
  fs::create_directories(kept.file.parent_path());
  write_file_atomically(kept.file, text + "\n");
}

}  // namespace

std::vector<DeviceNumber> device_numbers(Calibration& values) {
  return {
      {"to device, pinned", "pinned_to_device_bytes_per_s", &values.pinned.to_device, false},
      {"to host, pinned", "pinned_to_host_bytes_per_s", &values.pinned.to_host, false},
      {"to device, pageable", "pageable_to_device_bytes_per_s", &values.pageable.to_device, false},
      {"to host, pageable", "pageable_to_host_bytes_per_s", &values.pageable.to_host, false},
      {"graph node", "graph_node_s", &values.graph_node_s, true}};
}

KeptCalibration kept_calibration(const fs::path& folder,
                                 const std::string& fingerprint,
                                 bool fresh,
                                 const std::function<Calibration()>& measure) {
  const fs::path file = folder.empty()
                            ? fs::path()
                            : folder / fmt::format("calibration-{:016x}.json", hash64(fingerprint));
  KeptCalibration kept;
  std::error_code error;
  if (!fresh && !file.empty() && fs::exists(file, error)) {
    try {
      kept = read_kept(file, fingerprint);
      kept.file = file;
      return kept;
    } catch (const UserError& damage) {
      kept.note = fmt::format("the kept calibration is of no use: {}", damage.what());
    }
  }
  kept.values = measure();
  kept.measured_at = wall_ns() / 1000000000;
  if (file.empty()) {
    kept.note = "nothing is kept: neither XDG_CACHE_HOME nor HOME names a folder";
    return kept;
  }
  try {
    kept.file = file;
    write_kept(kept, fingerprint);
  } catch (const std::exception& failure) {  // of the file system too
    kept.file.clear();
    kept.note = fmt::format("the calibration is not kept: {}", failure.what());
  }
  return kept;
}

}  // namespace ridge
