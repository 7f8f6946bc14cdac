// Reading: TOML entries and flags into the fields of a TrainConfig.
#include <algorithm>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/io/file.h"
#include "ridge/train/config_text.h"
#include "ridge/train/config_value.h"

namespace ridge {
namespace {

constexpr size_t kShown = 60;  // of texts from outside, in messages

std::string shown(std::string_view text) {
  return valid_utf8(text.substr(0, kShown)) + (text.size() > kShown ? "..." : "");
}

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
  for (const ConfigFlag& flag : flags)
    all.push_back({flag.key, flag.where, flag.where, Source::kFlag, false, {}, flag.value});
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
    if (one.is_table) return apply_table(one);
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
    const bool is_flag = one.source == Source::kFlag;
    const TomlValue value = is_flag ? parse_flag(key.field, one.text) : one.value;
    if (!assign(key, value)) refuse_value(key, one, value);
    loaded_.origins[one.key] = {one.source, one.value_place};
  }

  // A known table without keys does no harm.
  void apply_table(const Assignment& one) const {
    std::vector<std::string> tables;
    for (const ConfigKey& key : keys_) tables.emplace_back(key.table());
    if (std::find(tables.begin(), tables.end(), one.key) != tables.end()) return;
    tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
    refuse_name(one, "table", did_you_mean(one.key, tables));
  }

  void apply_setting(const Assignment& one) {
    const auto rows = setting_rows();
    if (std::none_of(rows.begin(), rows.end(), [&](auto& row) { return row.name == one.key; }))
      refuse_name(one, "key", nearest_keys(one.key));
    const std::string* text = std::get_if<std::string>(&one.value);
    const std::string value = one.source == Source::kFlag ? one.text
                              : text != nullptr           ? *text
                                                          : value_text(one.value);
    settings_.set(one.key, value, one.source, one.value_place);
  }

  // First keys of other tables that end alike, for a forgotten or wrong table is a usual slip; then
  // keys of the same table; then all.
  std::string nearest_keys(const std::string& name) const {
    const size_t dot = name.find('.');
    const std::string table = dot == std::string::npos ? "" : name.substr(0, dot);
    const std::string leaf = name.substr(dot == std::string::npos ? 0 : dot + 1);
    std::set<std::string> known, same_leaf, leaves;
    for (const ConfigKey& key : keys_) {
      known.emplace(key.name);
      if (key.leaf() == leaf) same_leaf.emplace(key.name);
      if (key.table() == table) leaves.emplace(key.leaf());
    }
    if (!same_leaf.empty()) return question({same_leaf.begin(), same_leaf.end()});
    std::vector<std::string> near = nearest_names(leaf, {leaves.begin(), leaves.end()});
    for (std::string& one : near) one.insert(0, table + ".");
    if (!near.empty()) return question(near);
    for (const SettingRow& row : setting_rows()) known.emplace(row.name);
    return did_you_mean(name, {known.begin(), known.end()});
  }

  static std::string question(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
      text += fmt::format("{}'{}'", text.empty() ? "did you mean " : " or ", name);
    return text + "?";
  }

  [[noreturn]] static void refuse_name(const Assignment& one,
                                       std::string_view what,
                                       const std::string& near) {
    throw UserError(fmt::format("{}: unknown {} '{}'", one.key_place, what, shown(one.key)),
                    near.empty() ? "docs/config.md lists all keys" : near);
  }

  [[noreturn]] void refuse_kind(const std::vector<const ConfigKey*>& rows,
                                const Assignment& one) const {
    const std::string kind_key = fmt::format("{}.kind", rows[0]->table());
    const std::string kind = *std::get<std::string*>(find(kind_key)[0]->field);
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

  [[noreturn]] static void refuse_value(const ConfigKey& key,
                                        const Assignment& one,
                                        const TomlValue& value) {
    TrainConfig defaults;
    std::string fix;
    for (const ConfigKey& other : config_keys(defaults))
      if (other.name == key.name && other.kinds == key.kinds)
        fix = fmt::format("leave it out for the default {}", value_text(other.field));
    const std::string* name = std::get_if<std::string>(&value);
    if (name != nullptr && key.allowed.find('|') != std::string_view::npos) {
      std::vector<std::string> choices(1);
      for (char c : key.allowed)
        if (c == '|')
          choices.emplace_back();
        else
          choices.back() += c;
      const std::string near = did_you_mean(*name, choices);
      if (!near.empty()) fix = near;
    }
    throw UserError(fmt::format("{}: {}: got {}, expected {}",
                                one.value_place,
                                key.name,
                                shown(value_text(value)),
                                expectation(key)),
                    fix);
  }

  Settings& settings_;
  LoadedConfig loaded_;
  std::vector<ConfigKey> keys_;  // into loaded_
};

}  // namespace

ConfigFlag parse_set(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw UserError(fmt::format("--set {}: no value is given", shown(text)),
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
