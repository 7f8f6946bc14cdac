// Configurations as TOML: read with flags over them, checked, and printed back.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/settings.h"
#include "ridge/config/config.h"

namespace ridge {

/// The origin of a value; `where` is "run.toml:3:9" or "--steps".
struct ConfigOrigin {
  Source source = Source::kDefault;
  std::string where;
};

/// By key; keys that are not in it have their default.
using ConfigOrigins = std::map<std::string, ConfigOrigin, std::less<>>;

struct LoadedConfig {
  TrainConfig config;
  ConfigOrigins origins;
};

/// A value laid over the file's: from the command line, or from a recipe.
struct ConfigFlag {
  std::string key;    ///< "train.steps", or a setting: "threads"
  std::string value;  ///< TOML, where strings need no quotes and lists no brackets.
  std::string where;  ///< "--steps", "recipe.toml:3:11"
  Source source = Source::kFlag;
};

/// The flag `--set KEY=VALUE`. UserError where there is no "=".
ConfigFlag parse_set(std::string_view text);

/// Reads TOML and then the flags, those of recipes first, whatever their order. Keys that are the
/// names of settings go to `settings`. UserError, with the place, for what is no TOML, an unknown
/// key, a key of another kind, a value that its key does not allow, and values that do not go
/// together. `name` is the file's in messages.
LoadedConfig load_config(std::string_view text,
                         std::string_view name,
                         const std::vector<ConfigFlag>& flags,
                         Settings& settings);

/// load_config of the file at `path`. UserError when it cannot be read.
LoadedConfig load_config_file(const std::string& path,
                              const std::vector<ConfigFlag>& flags,
                              Settings& settings = ridge::settings());

/// UserError when values do not go together: more micro-batches than samples, say.
void check_config(const LoadedConfig& loaded);

/// Every key of the kinds in force; equal configurations have equal texts.
std::string to_toml(const TrainConfig& config);

/// Prints also the settings before it and, as comments, where each value comes from.
std::string to_toml(const LoadedConfig& loaded, const Settings& settings);

/// The reference of all keys and settings: docs/config.md.
std::string config_markdown();

}  // namespace ridge
