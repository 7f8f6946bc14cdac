// Reading: TOML entries and flags into the fields of a TrainConfig.
#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/config/refusal.h"
#include "ridge/config/text.h"
#include "ridge/config/value.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

// An entry of the file or a flag, on its way to a field.
struct Assignment {
  std::string key;
  std::string key_place, value_place;
  Source source;
  bool is_table = false;  // an empty one
  TomlValue value;        // of the file
  std::string text;       // of a flag
};

std::vector<Assignment> all_assignments(std::vector<TomlEntry> entries,
                                        const std::vector<ConfigFlag>& flags) {
  std::vector<Assignment> all;
  for (TomlEntry& entry : entries)
    all.push_back({std::move(entry.key),
                   std::move(entry.key_place),
                   std::move(entry.value_place),
                   Source::kFile,
                   entry.is_table,
                   std::move(entry.value),
                   {}});
  for (const Source source : {Source::kRecipe, Source::kFlag})
    for (const ConfigFlag& flag : flags)
      if (flag.source == source)
        all.push_back({flag.key, flag.where, flag.where, source, false, {}, flag.value});
  return all;
}

class Loader {
 public:
  explicit Loader(Settings& settings) : settings_(settings), keys_(config_keys(loaded_.config)) {}

  LoadedConfig load(const std::vector<Assignment>& all) {
    // The kinds first: they say which keys there are.
    for (const bool kinds : {true, false})
      for (const Assignment& one : all)
        if (one.key.ends_with(".kind") == kinds) apply(one);
    return std::move(loaded_);
  }

 private:
  void apply(const Assignment& one) {
    if (one.is_table) return check_table(keys_, one.key, one.key_place);
    const std::vector<const ConfigKey*> rows = find(one.key);
    if (rows.empty()) return apply_setting(one);
    for (const ConfigKey* key : rows)
      if (is_active(*key, keys_)) return apply_key(*key, one);
    refuse_kind(rows, one);
  }

  std::vector<const ConfigKey*> find(std::string_view name) const {
    std::vector<const ConfigKey*> rows;
    for (const ConfigKey& key : keys_)
      if (key.name == name) rows.push_back(&key);
    return rows;
  }

  void apply_key(const ConfigKey& key, const Assignment& one) {
    const TomlValue value =
        one.source == Source::kFile ? one.value : parse_flag(key.field, one.text);
    if (!assign(key, value)) refuse_value(key, one.value_place, value);
    loaded_.origins[one.key] = {one.source, one.value_place};
  }

  void apply_setting(const Assignment& one) {
    if (!is_setting(one.key)) refuse_key(keys_, one.key, one.key_place);
    const std::string value =
        one.source == Source::kFile ? setting_text(one.value) : setting_text(one.text);
    settings_.set(one.key, value, one.source, one.value_place);
  }

  [[noreturn]] void refuse_kind(const std::vector<const ConfigKey*>& rows,
                                const Assignment& one) const {
    const std::string kind_key = fmt::format("{}.kind", rows[0]->table());
    const std::string_view kind = std::get<NamedField>(find(kind_key)[0]->field).name();
    std::string owners;
    for (const ConfigKey* key : rows)
      for (char c : (owners.empty() ? "" : "|") + std::string(key->kinds))
        owners += c == '|' ? std::string(" or ") : std::string(1, c);
    const auto origin = loaded_.origins.find(kind_key);
    throw UserError(
        fmt::format("{}: '{}' is a key of kind {}, but {} is '{}' ({})",
                    one.key_place,
                    one.key,
                    owners,
                    kind_key,
                    kind,
                    origin == loaded_.origins.end() ? "the default" : origin->second.where),
        "take the key out or change the kind");
  }

  Settings& settings_;
  LoadedConfig loaded_;
  std::vector<ConfigKey> keys_;  // into loaded_
};

}  // namespace

ConfigFlag parse_set(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw UserError(fmt::format("--set {}: no value is given", shown_text(text)),
                    "write it as --set KEY=VALUE, such as --set optimizer.lr=0.01");
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), "--set"};
}

LoadedConfig load_config(std::string_view text,
                         std::string_view name,
                         const std::vector<ConfigFlag>& flags,
                         Settings& settings) {
  LoadedConfig loaded = Loader(settings).load(all_assignments(read_toml(text, name), flags));
  check_config(loaded);
  return loaded;
}

LoadedConfig load_config_file(const std::string& path,
                              const std::vector<ConfigFlag>& flags,
                              Settings& settings) {
  return load_config(read_file(path, kLongestToml), valid_utf8(path), flags, settings);
}

}  // namespace ridge
