#include "ridge/base/settings.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// The one place where settings are listed. Rows stay in the order of the documentation.
constexpr SettingRow kSettings[] = {
    {"threads",
     SettingType::kInt,
     "0",
     "0..1024",
     "RIDGE_THREADS",
     "threads for computing; 0 takes all CPUs that the affinity mask and the cgroup allow"},
    {"cpu.isa",
     SettingType::kString,
     "auto",
     "auto|avx2|avx512|amx",
     "RIDGE_CPU_ISA",
     "instruction set of the CPU kernels; auto takes the widest that this machine has"},
    {"cpu.jit",
     SettingType::kBool,
     "true",
     "",
     "RIDGE_JIT",
     "make machine code for fused loops; false runs them block by block with vector kernels"},
    {"cpu.pin",
     SettingType::kBool,
     "false",
     "",
     "RIDGE_PIN",
     "keep each computing thread on a CPU of its own, where there are as many CPUs as threads"},
    {"tune",
     SettingType::kBool,
     "true",
     "",
     "RIDGE_TUNE",
     "pick kernels by timing those that train.kernels allows, once a machine; false takes the "
     "first"},
};

std::string_view name_of(SettingType type) {
  constexpr std::string_view kNames[] = {"int", "double", "bool", "string"};
  return kNames[static_cast<size_t>(type)];
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (std::string_view no : {"false", "0", "no", "off"})
    if (text == no) return false;
  return std::nullopt;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <typename T>
bool is_number_allowed(std::string_view text, std::string_view range) {
  const std::optional<T> value = parse_number<T>(text);
  if (!value || !std::isfinite(static_cast<double>(*value))) return false;
  if (range.empty()) return true;
  const size_t dots = range.find("..");
  return *value >= parse_number<T>(range.substr(0, dots)) &&
         *value <= parse_number<T>(range.substr(dots + 2));
}

bool is_allowed(const SettingRow& row, std::string_view value) {
  switch (row.type) {
    case SettingType::kInt:
      return is_number_allowed<int64_t>(value, row.allowed);
    case SettingType::kDouble:
      return is_number_allowed<double>(value, row.allowed);
    case SettingType::kBool:
      return parse_bool(value).has_value();
    case SettingType::kString:
      break;
  }
  if (row.allowed.empty()) return true;
  for (const std::string& choice : split(row.allowed, '|'))
    if (value == choice) return true;
  return false;
}

// "an integer from 0 to 1024", "one of auto, avx2, avx512".
std::string expectation(const SettingRow& row) {
  if (row.type == SettingType::kBool) return "true or false";
  if (row.type == SettingType::kString) {
    std::string choices;
    for (const std::string& choice : split(row.allowed, '|'))
      choices += (choices.empty() ? "" : ", ") + choice;
    return "one of " + choices;
  }
  std::string text = row.type == SettingType::kInt ? "an integer" : "a number";
  const size_t dots = row.allowed.find("..");
  if (dots == std::string_view::npos) return text;
  return fmt::format(
      "{} from {} to {}", text, row.allowed.substr(0, dots), row.allowed.substr(dots + 2));
}

std::string place(Source source, std::string_view where) {
  return where.empty() ? std::string(name_of(source))
                       : fmt::format("{} {}", name_of(source), where);
}

[[noreturn]] void refuse(const SettingRow& row,
                         std::string_view value,
                         Source source,
                         std::string_view where) {
  constexpr size_t kShown = 60;  // the value may be anything
  std::string fix = fmt::format("leave it out for the default '{}'", row.default_value);
  if (row.type == SettingType::kString) {
    const std::string near = did_you_mean(value, split(row.allowed, '|'));
    if (!near.empty()) fix = near;
  }
  throw UserError(fmt::format("setting '{}' from {}: got '{}{}', expected {}",
                              row.name,
                              place(source, where),
                              value.substr(0, kShown),
                              value.size() > kShown ? "..." : "",
                              expectation(row)),
                  fix);
}

}  // namespace

std::string_view name_of(Source source) {
  constexpr std::string_view kNames[] = {"default", "file", "recipe", "environment", "flag"};
  return kNames[static_cast<size_t>(source)];
}

std::span<const SettingRow> setting_rows() { return kSettings; }

std::string settings_markdown() {
  std::string text =
      "| setting | type | default | allowed | environment | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const SettingRow& row : kSettings) {
    std::string allowed;  // a bar would end the cell
    for (const std::string& choice : split(row.allowed, '|'))
      allowed += (allowed.empty() ? "" : ", ") + choice;
    text += fmt::format("| `{}` | {} | `{}` | {} | `{}` | {} |\n",
                        row.name,
                        name_of(row.type),
                        row.default_value,
                        allowed,
                        row.environment,
                        row.help);
  }
  return text;
}

Settings::Settings(std::span<const SettingRow> rows) : rows_(rows), values_(rows.size()) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    check_internal(is_allowed(rows_[i], rows_[i].default_value),
                   "[Settings] default of '{}' is not allowed",
                   rows_[i].name);
    values_[i][0] = {true, std::string(rows_[i].default_value), {}};
  }
}

size_t Settings::index_of(std::string_view name) const {
  size_t index = 0;
  while (index < rows_.size() && rows_[index].name != name) ++index;
  return index;
}

void Settings::set(std::string_view name,
                   std::string_view value,
                   Source source,
                   std::string_view where) {
  const size_t index = index_of(name);
  if (index == rows_.size()) {
    std::vector<std::string> known;
    for (const SettingRow& row : rows_) known.emplace_back(row.name);
    const std::string near = did_you_mean(name, known);
    throw UserError(
        fmt::format("unknown setting '{}' from {}", name.substr(0, 60), place(source, where)),
        near.empty() ? "see the list of settings in the documentation" : near);
  }
  if (!is_allowed(rows_[index], value)) refuse(rows_[index], value, source, where);
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[index][static_cast<size_t>(source)] = {true, std::string(value), std::string(where)};
}

void Settings::read_environment() {
  for (const SettingRow& row : rows_) {
    const std::string variable(row.environment);
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') set(row.name, value, Source::kEnvironment, variable);
  }
}

Settings::Origin Settings::origin(std::string_view name) const {
  const size_t index = index_of(name);
  check_internal(index < rows_.size(), "[Settings] no row '{}'", name);
  const std::lock_guard<std::mutex> lock(mutex_);
  const Layers& layers = values_[index];
  size_t top = layers.size() - 1;
  while (!layers[top].present) --top;  // the default is always there
  return {layers[top].value, static_cast<Source>(top), layers[top].where};
}

Settings::Origin Settings::typed(std::string_view name, SettingType type) const {
  const size_t index = index_of(name);
  check_internal(index < rows_.size() && rows_[index].type == type,
                 "[Settings] no row '{}' of type {}",
                 name,
                 name_of(type));
  return origin(name);
}

int64_t Settings::get_int(std::string_view name) const {
  return *parse_number<int64_t>(typed(name, SettingType::kInt).value);
}

double Settings::get_double(std::string_view name) const {
  return *parse_number<double>(typed(name, SettingType::kDouble).value);
}

bool Settings::get_bool(std::string_view name) const {
  return *parse_bool(typed(name, SettingType::kBool).value);
}

std::string Settings::get_string(std::string_view name) const {
  return typed(name, SettingType::kString).value;
}

Settings& settings() {
  // Never destroyed: other statics may ask while the program exits.
  static Settings* const made = [] {
    auto fresh = std::make_unique<Settings>();
    fresh->read_environment();  // may throw, and the next call tries again
    return fresh.release();
  }();
  return *made;
}

}  // namespace ridge
