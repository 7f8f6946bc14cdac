// The table [recipe] that each kind of recipe has: what was proven of it, where, and of what.
#pragma once

#include <string>
#include <string_view>

#include "ridge/io/toml_reader.h"

namespace ridge {

/// The claim that a recipe's maker attaches to it; texts for people, empty where unknown.
struct RecipeClaim {
  std::string version;  ///< Version of Ridge that made it.
  std::string claim;    ///< "1.84 times as fast (1.79 to 1.90, 95 %)"
  std::string plan;     ///< Hash of the plan that was timed.
  std::string config;   ///< config_hash() of the configuration that it was proven on.
  std::string machine;  ///< machine_fingerprint() of where it was.
  /// Losses of longer runs were compared, or what holds back what was proven, in words.
  std::string confirmed{}, holds_back{};
  std::string command{};  ///< Command of a third-party program (tune/pytorch/recipe.h).
  bool operator==(const RecipeClaim&) const = default;
};

/// Values of recipe.schema: for a configuration, for a third-party program
/// (tune/pytorch/recipe.h), and for a model (infer/model_recipe.h).
inline constexpr std::string_view kConfigRecipe = "ridge.recipe/1";
inline constexpr std::string_view kProgramRecipe = "ridge.recipe.pytorch/1";
inline constexpr std::string_view kModelRecipe = "ridge.recipe.model/1";

/// UserError for a recipe of that schema, one of these, where another kind was asked for.
[[noreturn]] void refuse_recipe_kind(std::string_view place, std::string_view schema);
/// An entry of the table [recipe] into `proven`. UserError with its place for an unknown key, a
/// value that is no string, or another schema.
void take_claim(const TomlEntry& entry, std::string_view schema, RecipeClaim& proven);
/// The table [recipe] as TOML.
std::string claim_toml(const RecipeClaim& proven, std::string_view schema);

}  // namespace ridge
