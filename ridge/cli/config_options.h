// The options by which verbs are told their configuration.
#pragma once

#include <string>
#include <vector>

#include "ridge/train/config_text.h"

namespace CLI {
class App;
}

namespace ridge {

struct ConfigOptions {
  std::string file;              ///< Path of the TOML file.
  std::string device;            ///< Short for `--set train.device=...`; empty: not given.
  std::vector<std::string> set;  ///< "KEY=VALUE"
};

/// Adds the positional `config`, --device and --set.
void add_config_options(CLI::App& verb, ConfigOptions& options);

/// Adds --device and --set alone.
void add_override_options(CLI::App& verb, std::string& device, std::vector<std::string>& set);

/// Reads the file, lays --set over it, then `flags`, then --device. Settings among them go to
/// settings(). UserError for what is wrong in any, or does not go together.
LoadedConfig load_config_options(const ConfigOptions& options, std::vector<ConfigFlag> flags = {});

}  // namespace ridge
