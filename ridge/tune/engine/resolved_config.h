// A configuration with a recipe over it, apart from the settings of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridge/config/recipe.h"
#include "ridge/config/text.h"

namespace ridge {

struct ResolvedConfig {
  LoadedConfig loaded;
  std::unique_ptr<Settings> settings;  ///< Those of the text and of the environment.
  std::string toml;                    ///< All of it, settings included: as a worker reads it.
};

/// The text, the recipe over it, the flags over that. UserError as load_config(); `name` is the
/// text's in messages.
ResolvedConfig resolve_config(const std::string& text,
                              const std::string& name,
                              const Recipe& recipe,
                              const std::vector<ConfigFlag>& flags = {});

}  // namespace ridge
