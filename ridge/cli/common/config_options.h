// The options by which verbs get their configuration.
#pragma once

#include <string>
#include <vector>

#include "ridge/config/text.h"

namespace CLI {
class App;
}

namespace ridge {

struct ConfigOptions {
  std::string file;              ///< Path of the TOML file.
  std::string recipe = {};       ///< Path of a recipe; empty: none.
  std::string device;            ///< Short for `--set train.device=...`; empty: not given.
  std::vector<std::string> set;  ///< "KEY=VALUE"
};

/// Adds the positional `config`, --recipe, --device and --set.
void add_config_options(CLI::App& verb, ConfigOptions& options);

/// Adds --recipe, --device and --set alone.
void add_override_options(CLI::App& verb,
                          std::string& recipe,
                          std::string& device,
                          std::vector<std::string>& set);

/// Reads the file, lays the recipe over it, then --set, then `flags`, then --device. Settings among
/// them go to settings(). Notes on stderr where the recipe was proven on something else, or is
/// overridden itself. UserError for what is wrong in any, or does not go together.
LoadedConfig load_config_options(const ConfigOptions& options, std::vector<ConfigFlag> flags = {});

}  // namespace ridge
