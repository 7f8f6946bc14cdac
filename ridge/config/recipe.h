// A recipe: a sparse set of overrides of configuration keys and settings, with what was proven of
// it. Its TOML is that of a configuration file, plus the table [recipe].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/config/keys.h"
#include "ridge/config/text.h"
#include "ridge/io/recipe_claim.h"

namespace ridge {

/// Overrides in canonical order (settings, then keys as docs/config.md lists them), each key once.
/// A value that its key does not allow cannot get in.
class Recipe {
 public:
  /// Overrides `key`, in place of what was there. `value` is as ConfigFlag has it. UserError that
  /// opens with `where`, for an unknown key (nearest named) or a value that it does not allow.
  void set(const std::string& key, const std::string& value, const std::string& where = "recipe");

  /// To go before the flags that load_config() is given. Values are TOML; Source::kRecipe.
  const std::vector<ConfigFlag>& changes() const { return changes_; }
  bool empty() const { return changes_.empty(); }

  RecipeClaim proven;

 private:
  friend Recipe parse_recipe(std::string_view text, std::string_view name);

  void put(const TomlEntry& places, FunctionRef<TomlValue(const ConfigField&)> read);

  std::vector<ConfigFlag> changes_;
};

/// Reads TOML; `name` is the file's in messages. UserError with the place, as load_config().
Recipe parse_recipe(std::string_view text, std::string_view name);
/// parse_recipe of the file at `path`. UserError when it cannot be read.
Recipe read_recipe_file(const std::string& path);

/// Equal recipes have equal texts, which parse_recipe() reads back.
std::string to_toml(const Recipe& recipe);

/// 16 hex digits of the overrides; what was proven does not count.
std::string recipe_hash(const Recipe& recipe);

/// 16 hex digits of all keys that the speed of a step may depend on: not train.out, seeds, numbers
/// of steps, evaluation or checkpoints.
std::string config_hash(const TrainConfig& config);

}  // namespace ridge
