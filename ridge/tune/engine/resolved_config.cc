#include "ridge/tune/engine/resolved_config.h"

namespace ridge {

ResolvedConfig resolve_config(const std::string& text,
                              const std::string& name,
                              const Recipe& recipe,
                              const std::vector<ConfigFlag>& flags) {
  ResolvedConfig config;
  config.settings = std::make_unique<Settings>();
  config.settings->read_environment();
  std::vector<ConfigFlag> all = recipe.changes();
  all.insert(all.end(), flags.begin(), flags.end());
  config.loaded = load_config(text, name, all, *config.settings);
  config.toml = to_toml(config.loaded, *config.settings);
  return config;
}

}  // namespace ridge
