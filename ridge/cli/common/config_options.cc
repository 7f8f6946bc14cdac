#include "ridge/cli/common/config_options.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/cli/common/output.h"
#include "ridge/config/recipe.h"
#include "ridge/run/backends.h"

namespace ridge {
namespace {

using Flags = std::vector<ConfigFlag>;

// Whether the file with the flags alone is what the recipe was proven on.
bool is_proven_for(const Recipe& recipe, const std::string& file, const Flags& flags) {
  try {
    Settings scratch;
    return config_hash(load_config_file(file, flags, scratch).config) == recipe.proven.config;
  } catch (const UserError&) {
    return false;  // of use with the recipe only
  }
}

// Returns the origin of the value that a key has in the end.
ConfigOrigin origin_of(const std::string& key, const LoadedConfig& loaded) {
  const auto found = loaded.origins.find(key);
  if (found != loaded.origins.end()) return found->second;
  const Settings::Origin origin = settings().origin(key);
  return {origin.source, origin.where};
}

// Notes values of the recipe that others override, and a machine that its claim does not cover.
void report_recipe(const Recipe& recipe, const ConfigOptions& options, const LoadedConfig& loaded) {
  for (const ConfigFlag& change : recipe.changes()) {
    const ConfigOrigin origin = origin_of(change.key, loaded);
    if (origin.source != Source::kRecipe)
      write_stderr(fmt::format("note: {}: {} = {} gives way to {} {}\n",
                               change.where,
                               change.key,
                               change.value,
                               name_of(origin.source),
                               origin.where));
  }
  apply_threads();  // the machine's fingerprint has their number
  const std::string& machine = recipe.proven.machine;
  if (!machine.empty() && machine != device_fingerprint(loaded.config.train.device))
    write_stderr(fmt::format("note: {}: proven on another machine, or with other threads: {}\n",
                             options.recipe,
                             machine));
}

}  // namespace

void add_config_options(CLI::App& verb, ConfigOptions& options) {
  verb.add_option("config", options.file, "TOML file; docs/config.md lists its keys")->required();
  add_override_options(verb, options.recipe, options.device, options.set);
}

void add_override_options(CLI::App& verb,
                          std::string& recipe,
                          std::string& device,
                          std::vector<std::string>& set) {
  verb.add_option("--recipe", recipe, "TOML file of values that win over the file's")
      ->type_name("FILE");
  verb.add_option("--device", device, "Where it runs (train.device)");
  verb.add_option("--set", set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);  // or it would take the file for a second value
}

LoadedConfig load_config_options(const ConfigOptions& options, Flags flags) {
  Flags all;
  for (const std::string& text : options.set) all.push_back(parse_set(text));
  for (ConfigFlag& flag : flags)
    if (!flag.value.empty()) all.push_back(std::move(flag));
  if (!options.device.empty()) all.push_back({"train.device", options.device, "--device"});
  if (options.recipe.empty()) return load_config_file(options.file, all);
  const Recipe recipe = read_recipe_file(options.recipe);
  const bool is_proven = recipe.proven.config.empty() || is_proven_for(recipe, options.file, all);
  all.insert(all.begin(), recipe.changes().begin(), recipe.changes().end());
  const LoadedConfig loaded = load_config_file(options.file, all);
  if (!is_proven)
    write_stderr(fmt::format("note: {}: proven on another configuration\n", options.recipe));
  report_recipe(recipe, options, loaded);
  return loaded;
}

}  // namespace ridge
