#include "ridge/config/refusal.h"

#include <algorithm>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/base/utf8.h"
#include "ridge/config/value.h"

namespace ridge {
namespace {

// Keys that no longer exist, and what to do about them. The config.toml of an older run has them.
constexpr std::pair<std::string_view, std::string_view> kRemoved[] = {
    {"log.level", "it changed nothing, and was removed: take it out"},
};

std::string question(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += fmt::format("{}'{}'", text.empty() ? "did you mean " : " or ", name);
  return text + "?";
}

// First keys of other tables that end alike, for a forgotten or wrong table is a usual slip; then
// keys of the same table; then all.
std::string nearest_keys(const std::vector<ConfigKey>& keys, const std::string& name) {
  const size_t dot = name.find('.');
  const std::string table = dot == std::string::npos ? "" : name.substr(0, dot);
  const std::string leaf = name.substr(dot == std::string::npos ? 0 : dot + 1);
  std::set<std::string> known, same_leaf, leaves;
  for (const ConfigKey& key : keys) {
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

[[noreturn]] void refuse_name(std::string_view what,
                              std::string_view name,
                              std::string_view place,
                              const std::string& near) {
  throw UserError(fmt::format("{}: unknown {} '{}'", place, what, shown_text(name)),
                  near.empty() ? "docs/config.md lists all keys" : near);
}

std::string default_text(const ConfigKey& key) {
  TrainConfig defaults;
  for (const ConfigKey& other : config_keys(defaults))
    if (other.name == key.name && other.kinds == key.kinds) return value_text(other.field);
  throw InternalError(fmt::format("[refuse_value] no key '{}'", key.name));
}

// The nearest of the names that the key allows, where it is for names.
std::string nearest_choice(const ConfigKey& key, const TomlValue& value) {
  const std::string* name = std::get_if<std::string>(&value);
  if (name == nullptr || key.allowed.find('|') == std::string_view::npos) return {};
  std::vector<std::string> choices(1);
  for (char c : key.allowed)
    if (c == '|')
      choices.emplace_back();
    else
      choices.back() += c;
  return did_you_mean(*name, choices);
}

}  // namespace

void refuse_key(const std::vector<ConfigKey>& keys,
                const std::string& name,
                std::string_view place) {
  for (const auto& [removed, advice] : kRemoved)
    if (name == removed) refuse_name("key", name, place, std::string(advice));
  refuse_name("key", name, place, nearest_keys(keys, name));
}

void check_table(const std::vector<ConfigKey>& keys,
                 const std::string& name,
                 std::string_view place) {
  std::vector<std::string> tables;
  for (const ConfigKey& key : keys) tables.emplace_back(key.table());
  if (std::find(tables.begin(), tables.end(), name) != tables.end()) return;
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  refuse_name("table", name, place, did_you_mean(name, tables));
}

void refuse_value(const ConfigKey& key, std::string_view place, const TomlValue& value) {
  const std::string near = nearest_choice(key, value);
  throw UserError(
      fmt::format("{}: {}: got {}, expected {}",
                  place,
                  key.name,
                  shown_text(value_text(value)),
                  expectation(key)),
      near.empty() ? fmt::format("leave it out for the default {}", default_text(key)) : near);
}

}  // namespace ridge
