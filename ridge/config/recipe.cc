#include "ridge/config/recipe.h"

#include <algorithm>
#include <array>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/utf8.h"
#include "ridge/config/refusal.h"
#include "ridge/config/value.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

constexpr std::string_view kTable = "recipe.";

std::string hex_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

using ReadValue = FunctionRef<TomlValue(const ConfigField&)>;

// The one spelling of a setting's value.
std::string canonical_setting(const TomlEntry& entry, ReadValue read) {
  std::string text;
  Settings scratch;
  scratch.set(entry.key, setting_text(read(&text)), Source::kRecipe, entry.value_place);
  for (const SettingRow& row : setting_rows()) {
    if (row.name != entry.key) continue;
    if (row.type == SettingType::kInt) return fmt::format("{}", scratch.get_int(row.name));
    if (row.type == SettingType::kBool) return scratch.get_bool(row.name) ? "true" : "false";
    if (row.type == SettingType::kDouble)
      return value_text(TomlValue(scratch.get_double(row.name)));
  }
  return toml_quoted(scratch.get_string(entry.key));
}

// The one spelling of a key's value, where any kind allows it. Whether the kind in force does is
// for load_config() to say.
std::string canonical_value(const TomlEntry& entry, ReadValue read) {
  TrainConfig scratch;
  const std::vector<ConfigKey> keys = config_keys(scratch);
  const ConfigKey* named = nullptr;
  for (const ConfigKey& key : keys) {
    if (key.name != entry.key) continue;
    named = &key;
    if (assign(key, read(key.field))) return value_text(key.field);
  }
  if (named == nullptr) refuse_key(keys, entry.key, entry.key_place);
  refuse_value(*named, entry.value_place, read(named->field));
}

// Settings before keys, both in the order of their tables.
size_t rank(std::string_view name) {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    TrainConfig scratch;
    for (const SettingRow& row : setting_rows()) all.push_back(row.name);
    for (const ConfigKey& key : config_keys(scratch)) all.push_back(key.name);
    return all;
  }();
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// Tables that no configuration has.
bool is_for_a_program(const std::string& key) {
  const std::string table = key.substr(0, key.find('.'));
  return table == "pytorch" || table == "environment" || table == "sites";
}

}  // namespace

void Recipe::set(const std::string& key, const std::string& value, const std::string& where) {
  const TomlEntry places{.key = key, .value = {}, .key_place = where, .value_place = where};
  put(places, [&](const ConfigField& field) { return parse_flag(field, value); });
}

void Recipe::put(const TomlEntry& places, ReadValue read) {
  const std::string& key = places.key;
  const std::string text =
      is_setting(key) ? canonical_setting(places, read) : canonical_value(places, read);
  std::erase_if(changes_, [&](const ConfigFlag& change) { return change.key == key; });
  const auto at = std::find_if(changes_.begin(), changes_.end(), [&](const ConfigFlag& change) {
    return rank(change.key) > rank(key);
  });
  changes_.insert(at, {key, text, places.value_place, Source::kRecipe});
}

Recipe parse_recipe(std::string_view text, std::string_view name) {
  Recipe recipe;
  TrainConfig scratch;
  for (const TomlEntry& entry : read_toml(text, name)) {
    if (entry.key.starts_with(kTable))
      take_claim(entry, kConfigRecipe, recipe.proven);
    else if (is_for_a_program(entry.key))
      refuse_recipe_kind(entry.key_place, kProgramRecipe);
    else if (!entry.is_table)
      recipe.put(entry, [&](const ConfigField&) { return entry.value; });
    else if (entry.key != "recipe")
      check_table(config_keys(scratch), entry.key, entry.key_place);
  }
  return recipe;
}

Recipe read_recipe_file(const std::string& path) {
  return parse_recipe(read_file(path, kLongestToml), valid_utf8(path));
}

std::string to_toml(const Recipe& recipe) {
  std::string settings, tables, table;
  for (const ConfigFlag& change : recipe.changes()) {
    const size_t dot = change.key.find('.');
    if (is_setting(change.key)) {
      settings += fmt::format("{} = {}\n", change.key, change.value);
      continue;
    }
    if (change.key.substr(0, dot) != table) {
      table = change.key.substr(0, dot);
      tables += fmt::format("\n[{}]\n", table);
    }
    tables += fmt::format("{} = {}\n", change.key.substr(dot + 1), change.value);
  }
  const std::string text = settings + (settings.empty() ? "" : "\n");
  return text + claim_toml(recipe.proven, kConfigRecipe) + tables;
}

std::string recipe_hash(const Recipe& recipe) {
  uint64_t hash = kHashStart;
  for (const ConfigFlag& change : recipe.changes())
    hash = hash64(fmt::format("{} = {}\n", change.key, change.value), hash);
  return hex_text(hash);
}

std::string config_hash(const TrainConfig& config) {
  const TrainConfig defaults;
  TrainConfig counted = config;
  counted.checkpoint = defaults.checkpoint;
  counted.train.out = defaults.train.out;
  counted.train.seed = defaults.train.seed;
  counted.train.steps = defaults.train.steps;
  counted.train.epochs = defaults.train.epochs;
  counted.train.eval_every = defaults.train.eval_every;
  counted.train.eval_batch = defaults.train.eval_batch;
  return hex_text(hash64(to_toml(counted)));
}

}  // namespace ridge
