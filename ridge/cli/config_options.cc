#include "ridge/cli/config_options.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace ridge {

void add_config_options(CLI::App& verb, ConfigOptions& options) {
  verb.add_option("config", options.file, "TOML file; docs/config.md lists its keys")->required();
  add_override_options(verb, options.device, options.set);
}

void add_override_options(CLI::App& verb, std::string& device, std::vector<std::string>& set) {
  verb.add_option("--device", device, "Where it runs (train.device)");
  verb.add_option("--set", set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);  // or it would take the file for a second value
}

LoadedConfig load_config_options(const ConfigOptions& options, std::vector<ConfigFlag> flags) {
  std::vector<ConfigFlag> all;
  for (const std::string& text : options.set) all.push_back(parse_set(text));
  for (ConfigFlag& flag : flags)
    if (!flag.value.empty()) all.push_back(std::move(flag));
  if (!options.device.empty()) all.push_back({"train.device", options.device, "--device"});
  return load_config_file(options.file, all);
}

}  // namespace ridge
