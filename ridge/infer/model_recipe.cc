#include "ridge/infer/model_recipe.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/base/settings.h"
#include "ridge/base/utf8.h"
#include "ridge/compile/pipeline.h"
#include "ridge/io/checksum.h"
#include "ridge/io/toml_reader.h"

namespace ridge {
namespace {

constexpr std::string_view kSession = "session", kKernels = "kernels", kSizes = "sizes",
                           kFiles = "files", kRecipe = "recipe";
constexpr int64_t kMostThreads = kMaxThreads, kMostBatch = 1 << 20, kMostInstances = kMaxThreads;
constexpr size_t kHashDigits = 16;

// A value of the file, read with messages that say where it stands.
class EntryValue {
 public:
  explicit EntryValue(const TomlEntry& entry) : entry_(entry) {}

  [[noreturn]] void refuse(const std::string& expected) const {
    throw UserError(
        fmt::format("{}: '{}' is not {}", entry_.value_place, shown_text(entry_.key), expected),
        "leave the line out, or let ridge optimize make the recipe again");
  }
  int64_t integer(int64_t most) const {
    const int64_t* number = std::get_if<int64_t>(&entry_.value);
    if (number == nullptr || *number < 1 || *number > most)
      refuse(fmt::format("an integer from 1 to {}", most));
    return *number;
  }
  bool flag() const {
    const bool* value = std::get_if<bool>(&entry_.value);
    if (value == nullptr) refuse("true or false");
    return *value;
  }
  std::string text() const {
    const std::string* value = std::get_if<std::string>(&entry_.value);
    if (value == nullptr || value->empty()) refuse("a text in quotes");
    return *value;
  }
  std::vector<std::string> texts() const {
    const auto* list = std::get_if<std::vector<TomlScalar>>(&entry_.value);
    if (list == nullptr) refuse("a list of texts");
    std::vector<std::string> texts;
    for (const TomlScalar& item : *list) {
      const std::string* text = std::get_if<std::string>(&item);
      if (text == nullptr) refuse("a list of texts");
      texts.push_back(*text);
    }
    return texts;
  }

 private:
  const TomlEntry& entry_;
};

std::vector<std::string> pass_names(const EntryValue& value) {
  std::vector<std::string> names = value.texts();
  for (const std::string& name : names)
    if (std::ranges::find(pipeline(), name, &PassInfo::name) == pipeline().end())
      value.refuse("a list of names of passes");
  return names;
}

DType precision_of(const EntryValue& value) {
  const std::string name = value.text();
  if (name != "f32" && name != "bf16") value.refuse("\"f32\" or \"bf16\"");
  return *parse_dtype(name);
}

KernelPick pick_of(const EntryValue& value) {
  const std::optional<KernelPick> pick = parse_name<KernelPick>(value.text());
  if (!pick) value.refuse(fmt::format("one of {}", names_of(KernelPick{})));
  return *pick;
}

std::string file_name_of(const EntryValue& value) {
  std::string name = value.text();
  if (std::filesystem::path(name).filename() != name || name == "." || name == "..")
    value.refuse("the name of a file beside the recipe");
  return name;
}

struct SessionKey {
  std::string_view name;
  void (*set)(ModelRecipe& recipe, const EntryValue& value);
};
constexpr std::array kSessionKeys = {
    SessionKey{"runtime", [](ModelRecipe& r, const EntryValue& v) { r.runtime = v.text(); }},
    SessionKey{"threads",
               [](ModelRecipe& r, const EntryValue& v) { r.threads = v.integer(kMostThreads); }},
    SessionKey{"pin", [](ModelRecipe& r, const EntryValue& v) { r.pin = v.flag(); }},
    SessionKey{"batch",
               [](ModelRecipe& r, const EntryValue& v) { r.batch = v.integer(kMostBatch); }},
    SessionKey{
        "instances",
        [](ModelRecipe& r, const EntryValue& v) { r.instances = v.integer(kMostInstances); }},
    SessionKey{"precision",
               [](ModelRecipe& r, const EntryValue& v) { r.choices.precision = precision_of(v); }},
    SessionKey{"passes_off",
               [](ModelRecipe& r, const EntryValue& v) { r.choices.passes_off = pass_names(v); }},
    SessionKey{"pick", [](ModelRecipe& r, const EntryValue& v) { r.choices.pick = pick_of(v); }},
    SessionKey{"quantized",
               [](ModelRecipe& r, const EntryValue& v) { r.quantized = file_name_of(v); }},
    SessionKey{"kernels_off",
               [](ModelRecipe& r, const EntryValue& v) { r.choices.kernels_off = v.texts(); }}};

void take_session(const std::string& name, const TomlEntry& entry, ModelRecipe& recipe) {
  const auto key = std::ranges::find(kSessionKeys, name, &SessionKey::name);
  if (key != kSessionKeys.end()) return key->set(recipe, EntryValue(entry));
  std::vector<std::string> known;
  for (const SessionKey& each : kSessionKeys) known.emplace_back(each.name);
  throw UserError(fmt::format("{}: unknown key 'session.{}'", entry.key_place, shown_text(name)),
                  did_you_mean(name, known));
}

bool is_hash(const std::string& text) {
  return text.size() == kHashDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A key that is no bare one stands in quotes, as a text does.
std::string unquoted(const std::string& key) {
  if (!key.starts_with('"') && !key.starts_with('\'')) return key;
  return EntryValue(read_toml("key = " + key, key).at(0)).text();
}

void take_entry(const TomlEntry& entry, ModelRecipe& recipe) {
  const size_t dot = std::min(entry.key.find('.'), entry.key.size());
  const std::string table = entry.key.substr(0, dot);
  const std::string name = unquoted(entry.key.substr(std::min(dot + 1, entry.key.size())));
  if (entry.is_table &&
      (table == kSession || table == kKernels || table == kSizes || table == kFiles))
    return;
  if (table == kSession) return take_session(name, entry, recipe);
  if (table == kKernels) {
    if (!is_hash(name))
      throw UserError(
          fmt::format("{}: '{}' is no hash of a node", entry.key_place, shown_text(name)),
          "let ridge optimize make the recipe again");
    recipe.choices.kernels[name] = EntryValue(entry).text();
    return;
  }
  if (table == kSizes) {
    recipe.sizes[name] = EntryValue(entry).integer(int64_t{1} << 40);
    return;
  }
  if (table == kFiles) {
    recipe.files[name] = EntryValue(entry).text();
    return;
  }
  throw UserError(fmt::format("{}: unknown table '{}'", entry.key_place, shown_text(table)),
                  did_you_mean(table,
                               {std::string(kSession),
                                std::string(kKernels),
                                std::string(kSizes),
                                std::string(kFiles),
                                std::string(kRecipe)}));
}

bool is_claim(const TomlEntry& entry) {
  return entry.key == kRecipe || entry.key.starts_with(fmt::format("{}.", kRecipe));
}

std::string list_toml(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + toml_quoted(text);
  return "[" + list + "]";
}

// All that it changes.
std::string changes_toml(const ModelRecipe& recipe) {
  std::string session, kernels;
  const auto line = [&](std::string_view key, const std::string& value) {
    session += fmt::format("{} = {}\n", key, value);
  };
  const CompileChoices& choices = recipe.choices;
  if (!recipe.runtime.empty()) line("runtime", toml_quoted(recipe.runtime));
  if (recipe.threads) line("threads", fmt::format("{}", *recipe.threads));
  if (recipe.pin) line("pin", *recipe.pin ? "true" : "false");
  if (recipe.batch) line("batch", fmt::format("{}", *recipe.batch));
  if (recipe.instances != 1) line("instances", fmt::format("{}", recipe.instances));
  if (choices.precision != DType::kF32) line("precision", toml_quoted(name_of(choices.precision)));
  if (!recipe.quantized.empty()) line("quantized", toml_quoted(recipe.quantized));
  if (!choices.passes_off.empty()) line("passes_off", list_toml(choices.passes_off));
  if (choices.pick != KernelPick::kFirst) line("pick", toml_quoted(name_of(choices.pick)));
  if (!choices.kernels_off.empty()) line("kernels_off", list_toml(choices.kernels_off));
  for (const auto& [hash, name] : choices.kernels)
    kernels += fmt::format("{} = {}\n", hash, toml_quoted(name));
  return (session.empty() ? "" : "\n[session]\n" + session) +
         (kernels.empty() ? "" : "\n[kernels]\n" + kernels);
}

}  // namespace

bool ModelRecipe::empty() const { return changes_toml(*this).empty(); }

ModelRecipe parse_model_recipe(std::string_view text, std::string_view name) {
  ModelRecipe recipe;
  for (const TomlEntry& entry : read_toml(text, name)) {
    if (!is_claim(entry))
      take_entry(entry, recipe);
    else if (!entry.is_table)
      take_claim(entry, kModelRecipe, recipe.proven);
  }
  return recipe;
}

ModelRecipe read_model_recipe(const std::string& path, const std::string& model) {
  ModelRecipe recipe = parse_model_recipe(read_file(path, kLongestToml), valid_utf8(path));
  if (!recipe.runtime.empty())
    throw UserError(fmt::format("'{}' is of the runtime '{}'", path, shown_text(recipe.runtime)),
                    "give a recipe that ridge optimize has proven");
  if (const std::string& of = recipe.proven.config; !of.empty() && of != model_hash(model))
    throw UserError(
        fmt::format("the recipe '{}' was made for another model than '{}'", path, model),
        fmt::format("run ridge optimize {}", model));
  return recipe;
}

std::string model_to_run(const ModelRecipe& recipe,
                         const std::string& path,
                         const std::string& model) {
  if (recipe.quantized.empty()) return model;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const std::string quantized = (folder / recipe.quantized).string();
  if (!fs::exists(quantized, ignored))
    throw UserError(
        fmt::format(
            "'{}' is missing, which the recipe '{}' runs in the model's place", quantized, path),
        "copy it beside the recipe, as ridge optimize wrote it");
  const auto proven = recipe.files.find(recipe.quantized);
  if (proven != recipe.files.end() && proven->second != model_hash(quantized))
    throw UserError(
        fmt::format("'{}' is another file than the recipe '{}' was proven with", quantized, path),
        fmt::format("run ridge optimize {}", model));
  return quantized;
}

bool is_model_recipe(std::string_view text, std::string_view name) {
  for (const TomlEntry& entry : read_toml(text, name))
    if (entry.key == "recipe.schema")
      if (const std::string* schema = std::get_if<std::string>(&entry.value))
        return *schema == kModelRecipe;
  return false;
}

std::string to_toml(const ModelRecipe& recipe) {
  std::string sizes, files;
  for (const auto& [name, size] : recipe.sizes)
    sizes += fmt::format("{} = {}\n", toml_quoted(valid_utf8(name)), size);
  for (const auto& [name, hash] : recipe.files)
    files += fmt::format("{} = {}\n", toml_quoted(valid_utf8(name)), toml_quoted(hash));
  return claim_toml(recipe.proven, kModelRecipe) + changes_toml(recipe) +
         (sizes.empty() ? "" : "\n[sizes]\n" + sizes) +
         (files.empty() ? "" : "\n[files]\n" + files);
}

std::string recipe_hash(const ModelRecipe& recipe) {
  return fmt::format("{:016x}", hash64(changes_toml(recipe)));
}

std::string model_hash(const std::string& path) {
  constexpr size_t kEnd = size_t{4} << 20;
  const MappedFile file(path);
  const Bytes bytes = file.bytes();
  const std::string size = fmt::format("{}", bytes.size());
  Checksum sum;
  sum.update(as_bytes(size));
  sum.update(bytes.first(std::min(kEnd, bytes.size())));
  sum.update(bytes.last(std::min(kEnd, bytes.size())));
  return checksum_text(sum.value());
}

void apply_settings(const ModelRecipe& recipe, const std::string& where) {
  if (recipe.threads)
    settings().set("threads", fmt::format("{}", *recipe.threads), Source::kRecipe, where);
  if (recipe.pin) settings().set("cpu.pin", *recipe.pin ? "true" : "false", Source::kRecipe, where);
  if (recipe.threads || recipe.pin) apply_threads();
}

ProgramLimits limits_of(const ModelRecipe& recipe, size_t bindings) {
  return {.bindings = bindings,
          .programs = static_cast<size_t>(recipe.instances),
          .choices = recipe.choices};
}

}  // namespace ridge
