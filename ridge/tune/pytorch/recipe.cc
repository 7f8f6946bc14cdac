#include "ridge/tune/pytorch/recipe.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/utf8.h"
#include "ridge/config/refusal.h"
#include "ridge/config/value.h"
#include "ridge/io/file.h"
#include "ridge/io/toml_reader.h"
#include "ridge/tune/pytorch/variables.h"

namespace ridge {
namespace {

using enum KnobType;

constexpr int64_t kMostCpu = 4096;

constexpr std::string_view kKnobTable = "pytorch.", kVariables = "environment.", kSites = "sites.";

size_t rank(std::string_view key) {
  return static_cast<size_t>(std::ranges::find(knobs(), key, &Knob::key) - knobs().begin());
}

const Knob& knob_of(const std::string& key, const std::string& where) {
  if (const Knob* knob = find_knob(key)) return *knob;
  std::vector<std::string> known;
  for (const Knob& knob : knobs()) known.push_back(knob.key);
  const std::string near = did_you_mean(key, known);
  throw UserError(fmt::format("{}: unknown key '{}'", where, shown_text(key)),
                  near.empty() ? "docs/recipes_pytorch.md lists all keys" : near);
}

std::string expectation(const Knob& knob) {
  if (knob.type == kFlag) return "true or false";
  if (knob.type == kNumber) return fmt::format("an integer from {} to {}", knob.least, knob.most);
  if (knob.type == kCpus) return "CPUs, such as \"0-3\" or \"0,2\"";
  std::string text;
  for (const std::string& word : knob.words) text += (text.empty() ? "" : ", ") + word;
  return text.find(',') == std::string::npos ? '"' + text + '"' : "one of " + text;
}

/// Digits alone, from `least` to `most`.
std::optional<int64_t> whole(std::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || text.starts_with('-') || value < least || value > most) return std::nullopt;
  return value;
}

bool are_cpus(std::string_view text) {
  for (;;) {
    const std::string_view range = text.substr(0, text.find(','));
    const size_t dash = range.find('-');
    const std::optional<int64_t> from = whole(range.substr(0, dash), 0, kMostCpu);
    if (!from) return false;
    if (dash != std::string_view::npos && !whole(range.substr(dash + 1), *from, kMostCpu))
      return false;
    if (range.size() == text.size()) return true;
    text.remove_prefix(range.size() + 1);
  }
}

/// The one spelling of a value; empty where the knob does not allow it.
std::string canonical(const Knob& knob, const std::string& value) {
  if (knob.type == kFlag) return value == "true" || value == "false" ? value : "";
  if (knob.type == kNumber) {
    const std::optional<int64_t> number = whole(value, knob.least, knob.most);
    return number ? fmt::format("{}", *number) : "";
  }
  if (knob.type == kCpus) return are_cpus(value) ? value : "";
  return std::ranges::count(knob.words, value) == 1 ? value : "";
}

bool is_text(const Knob& knob) { return knob.type == kWord || knob.type == kCpus; }

std::string toml_value(std::string_view key, const std::string& value) {
  const Knob* knob = find_knob(key);
  return knob != nullptr && !is_text(*knob) ? value : toml_quoted(value);
}

bool is_variable(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// An entry of [environment] or [sites]: a string, or a number as a variable may well have.
std::string text_value(const TomlEntry& entry, bool may_be_number) {
  if (const auto* text = std::get_if<std::string>(&entry.value); text != nullptr && !entry.is_table)
    return *text;
  if (may_be_number && !entry.is_table && std::holds_alternative<int64_t>(entry.value))
    return value_text(entry.value);
  throw UserError(fmt::format("{}: {} is no string", entry.value_place, shown_text(entry.key)),
                  "put its value in quotes");
}

void take_knob(const TomlEntry& entry, ForeignRecipe& recipe) {
  const std::string key = entry.key.substr(kKnobTable.size());
  const Knob& knob = knob_of(key, entry.key_place);
  const auto* word = std::get_if<std::string>(&entry.value);
  const bool is_word = word != nullptr && is_text(knob);
  recipe.set(key, is_word ? *word : value_text(entry.value), entry.value_place);
}

void take_variable(const TomlEntry& entry, RecipeTrust trust, ForeignRecipe& recipe) {
  const std::string name = entry.key.substr(kVariables.size());
  const std::string value = text_value(entry, true);
  recipe.set_environment(name, value, entry.key_place);
  if (trust == RecipeTrust::kListedVariables) check_trusted(name, value, entry.key_place);
}

bool is_site(std::string_view text) {
  const size_t colon = text.rfind(':');
  return colon != std::string_view::npos && colon > 0 &&
         whole(text.substr(colon + 1), 1, INT32_MAX).has_value();
}

void take_site(const TomlEntry& entry, ForeignRecipe& recipe) {
  const std::string key = entry.key.substr(kSites.size());
  knob_of(key, entry.key_place);
  const std::string site = text_value(entry, false);
  check(is_site(site),
        "{}: {}: got '{}', expected a file and its line, such as \"train.py:53\"",
        entry.value_place,
        key,
        shown_text(site));
  recipe.sites[key] = valid_utf8(site);
}

// What stands in none of our tables: of a configuration, or a slip.
void refuse_entry(const TomlEntry& entry) {
  TrainConfig scratch;
  const std::vector<ConfigKey> keys = config_keys(scratch);
  const bool is_config =
      is_setting(entry.key) || std::ranges::any_of(keys, [&](const auto& key) {
        return key.name == entry.key || (entry.is_table && key.table() == entry.key);
      });
  // Most of our keys stand one table higher when the table's name is forgotten.
  if (find_knob(entry.key) != nullptr)
    throw UserError(
        fmt::format("{}: '{}' does not stand below [pytorch]", entry.key_place, entry.key),
        "put it there, or give a recipe of a configuration to 'ridge train --recipe'");
  if (is_config) refuse_recipe_kind(entry.key_place, kConfigRecipe);
  const std::string table = entry.key.substr(0, entry.key.find('.'));
  const std::string near = did_you_mean(table, {"pytorch", "environment", "sites", "recipe"});
  throw UserError(fmt::format("{}: unknown table '{}'", entry.key_place, shown_text(table)),
                  near.empty() ? "it may be pytorch, environment, sites or recipe" : near);
}

// Without what a shell's quotes add, which is no difference between two commands.
std::string without_quotes(std::string_view text) {
  std::string bare;
  for (const char c : text)
    if (c != '\'' && c != '"' && c != '\\') bare += c;
  return bare;
}

/// The next place that a template leaves open: where it begins and ends.
std::pair<size_t, size_t> next_gap(std::string_view text) {
  constexpr std::string_view kOut = "{out}", kSteps = "{steps}";
  const size_t out = text.find(kOut), steps = text.find(kSteps);
  if (out == std::string_view::npos && steps == std::string_view::npos)
    return {text.size(), text.size()};
  return out < steps ? std::pair(out, out + kOut.size()) : std::pair(steps, steps + kSteps.size());
}

bool matches(std::string_view text, std::string_view wanted) {
  const auto [begin, end] = next_gap(wanted);
  if (begin == wanted.size()) return text == wanted;
  if (!text.starts_with(wanted.substr(0, begin))) return false;
  text.remove_prefix(begin);
  wanted.remove_prefix(end);
  // Each piece at its first place but the last, which has to end the text.
  for (;;) {
    const auto [next, after] = next_gap(wanted);
    const std::string_view piece = wanted.substr(0, next);
    if (next == wanted.size()) return text.ends_with(piece);
    const size_t at = text.find(piece);
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + piece.size());
    wanted.remove_prefix(after);
  }
}

}  // namespace

void ForeignRecipe::set(const std::string& key,
                        const std::string& value,
                        const std::string& where) {
  const Knob& knob = knob_of(key, where);
  const std::string text = canonical(knob, value);
  if (text.empty())
    throw UserError(
        fmt::format(
            "{}: {}: got {}, expected {}", where, key, shown_text(value), expectation(knob)),
        knob.words.empty() ? "" : did_you_mean(value, knob.words));
  erase(key);
  const auto at = std::ranges::find_if(
      changes_, [&](const auto& change) { return rank(change.first) > rank(key); });
  changes_.insert(at, {key, text});
}

void ForeignRecipe::set_environment(const std::string& name,
                                    const std::string& value,
                                    const std::string& where) {
  check(is_variable(name),
        "{}: '{}' is no name of an environment variable; write letters, digits and '_'",
        where,
        shown_text(name));
  check(name != "PYTHONPATH" && !name.starts_with("RIDGE_"),
        "{}: {} is what Ridge sets itself; leave it out",
        where,
        shown_text(name));
  check(value.find('\0') == std::string::npos && valid_utf8(value) == value,
        "{}: the value of {} is no text",
        where,
        shown_text(name));
  environment_[name] = value;
}

void ForeignRecipe::erase(const std::string& key) {
  std::erase_if(changes_, [&](const auto& change) { return change.first == key; });
}

std::string ForeignRecipe::get(std::string_view key) const {
  for (const auto& [name, value] : changes_)
    if (name == key) return value;
  return {};
}

std::string ForeignRecipe::shim_json() const {
  if (changes_.empty()) return {};
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  for (const auto& [key, value] : changes_) {
    const KnobType type = find_knob(key)->type;
    if (type == kFlag)
      json.field(key, value == "true");
    else if (type == kNumber)
      json.field(key, whole(value, 0, INT64_MAX).value());
    else
      json.field(key, value);
  }
  json.end_object().finish();
  return text;
}

ForeignRecipe parse_foreign_recipe(std::string_view text,
                                   std::string_view name,
                                   RecipeTrust trust) {
  ForeignRecipe recipe;
  const std::vector<TomlEntry> entries = read_toml(text, name);
  // Of what kind it is goes before what its entries are.
  for (const TomlEntry& entry : entries)
    if (entry.key.starts_with("recipe.")) take_claim(entry, kProgramRecipe, recipe.proven);
  for (const TomlEntry& entry : entries) {
    const std::string& key = entry.key;
    if (key.starts_with("recipe.")) continue;
    const bool is_own_table = entry.is_table && (key == "pytorch" || key == "environment" ||
                                                 key == "sites" || key == "recipe");
    if (key.starts_with(kKnobTable) && !entry.is_table)
      take_knob(entry, recipe);
    else if (key.starts_with(kVariables))
      take_variable(entry, trust, recipe);
    else if (key.starts_with(kSites))
      take_site(entry, recipe);
    else if (!is_own_table)
      refuse_entry(entry);
  }
  return recipe;
}

bool is_foreign_recipe(std::string_view text, std::string_view name) {
  const std::vector<TomlEntry> entries = read_toml(text, name);
  return std::ranges::any_of(entries, [](const TomlEntry& entry) {
    const std::string* schema = std::get_if<std::string>(&entry.value);
    return entry.key == "recipe.schema" && schema != nullptr && *schema == kProgramRecipe;
  });
}

ForeignRecipe read_foreign_recipe_file(const std::string& path, RecipeTrust trust) {
  return parse_foreign_recipe(read_file(path, kLongestToml), valid_utf8(path), trust);
}

std::string to_toml(const ForeignRecipe& recipe) {
  std::string text = claim_toml(recipe.proven, kProgramRecipe);
  if (!recipe.changes().empty()) text += "\n[pytorch]\n";
  for (const auto& [key, value] : recipe.changes())
    text += fmt::format("{} = {}\n", key, toml_value(key, value));
  if (!recipe.environment().empty()) text += "\n[environment]\n";
  for (const auto& [name, value] : recipe.environment())
    text += fmt::format("{} = {}\n", name, toml_quoted(value));
  std::string sites;
  for (const auto& [key, site] : recipe.sites)
    if (find_knob(key) != nullptr && is_site(site))
      sites += fmt::format("{} = {}\n", key, toml_quoted(valid_utf8(site)));
  if (!sites.empty()) text += "\n[sites]\n" + sites;
  return text;
}

std::string recipe_hash(const ForeignRecipe& recipe) {
  uint64_t hash = kHashStart;
  for (const auto& [key, value] : recipe.changes())
    hash = hash64(fmt::format("{} = {}\n", key, value), hash);
  for (const auto& [name, value] : recipe.environment())
    hash = hash64(fmt::format("${} = {}\n", name, value), hash);
  return fmt::format("{:016x}", hash);
}

std::string change_text(const ForeignRecipe& from, const ForeignRecipe& to) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  };
  for (const auto& [key, value] : to.changes())
    if (from.get(key) != value) add(key, value);
  for (const auto& [name, value] : to.environment()) {
    const auto before = from.environment().find(name);
    if (before == from.environment().end() || before->second != value) add(name, value);
  }
  std::string replaced;
  for (const auto& [key, value] : from.changes())
    if (to.get(key).empty())
      replaced += fmt::format("{}{} = {}", replaced.empty() ? "" : ", ", key, value);
  if (!replaced.empty()) text += " in place of " + replaced;
  return text;
}

bool is_proven_for(const ForeignRecipe& recipe, const std::vector<std::string>& command) {
  if (recipe.proven.command.empty()) return true;
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return matches(without_quotes(text), without_quotes(recipe.proven.command));
}

std::string hash_of_recipe_text(std::string_view text) {
  return is_foreign_recipe(text, "recipe")
             ? recipe_hash(parse_foreign_recipe(text, "recipe", RecipeTrust::kAnyVariable))
             : recipe_hash(parse_recipe(text, "recipe"));
}

}  // namespace ridge
