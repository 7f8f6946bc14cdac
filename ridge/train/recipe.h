// A recipe: a sparse set of overrides of configuration keys and settings, with what was proven of
// it. Its TOML is that of a configuration file, plus the table [recipe].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/train/config_keys.h"
#include "ridge/train/config_text.h"
#include "ridge/train/toml_reader.h"

namespace ridge {

/// What a recipe's maker says of it; texts for people, empty where unknown.
struct RecipeClaim {
  std::string version;    ///< Of Ridge that made it.
  std::string claim;      ///< "1.84 times as fast (1.79 to 1.90, 95 %)"
  std::string plan;       ///< Hash of the plan that was timed.
  std::string config;     ///< config_hash() of the configuration that it was proven on.
  std::string machine;    ///< machine_fingerprint() of where it was.
  std::string command{};  ///< Of a recipe for a program of others (tune/foreign_recipe.h).
  bool operator==(const RecipeClaim&) const = default;
};

/// What recipe.schema says: of a configuration, and of a program of others (tune/foreign_recipe.h).
inline constexpr std::string_view kConfigRecipe = "ridge.recipe/1";
inline constexpr std::string_view kProgramRecipe = "ridge.recipe.pytorch/1";

/// UserError for a recipe of the other kind than the one that was asked for.
[[noreturn]] void refuse_recipe_kind(std::string_view place, bool is_config);
/// An entry of the table [recipe] into `proven`. UserError with its place for an unknown key, a
/// value that is no string, or another schema.
void take_claim(const TomlEntry& entry, std::string_view schema, RecipeClaim& proven);
/// The table [recipe] as TOML.
std::string claim_toml(const RecipeClaim& proven, std::string_view schema);

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
