#include "ridge/io/recipe_claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

constexpr std::string_view kTable = "recipe.";

struct ClaimField {
  std::string_view name;
  std::string RecipeClaim::* text;
};

constexpr std::array kClaimFields = {ClaimField{"version", &RecipeClaim::version},
                                     ClaimField{"claim", &RecipeClaim::claim},
                                     ClaimField{"confirmed", &RecipeClaim::confirmed},
                                     ClaimField{"holds_back", &RecipeClaim::holds_back},
                                     ClaimField{"plan", &RecipeClaim::plan},
                                     ClaimField{"config", &RecipeClaim::config},
                                     ClaimField{"machine", &RecipeClaim::machine},
                                     ClaimField{"command", &RecipeClaim::command}};

}  // namespace

void refuse_recipe_kind(std::string_view place, std::string_view schema) {
  if (schema == kModelRecipe)
    throw UserError(fmt::format("{}: this recipe is for a model", place),
                    "apply it with 'ridge predict MODEL --recipe FILE'");
  if (schema == kConfigRecipe)
    throw UserError(fmt::format("{}: this recipe is for a configuration of ridge", place),
                    "apply it with 'ridge train CONFIG --recipe FILE'");
  throw UserError(fmt::format("{}: this recipe is for a program in PyTorch", place),
                  "apply it with 'ridge run --recipe FILE -- COMMAND'");
}

void take_claim(const TomlEntry& entry, std::string_view schema, RecipeClaim& proven) {
  const std::string name = entry.key.substr(std::min(kTable.size(), entry.key.size()));
  const std::string* text = std::get_if<std::string>(&entry.value);
  if (entry.is_table || text == nullptr)
    throw UserError(fmt::format("{}: recipe.{} is no string", entry.value_place, shown_text(name)),
                    "put its value in quotes");
  if (name == "schema") {
    if (*text == schema) return;
    if (*text == kConfigRecipe || *text == kProgramRecipe || *text == kModelRecipe)
      refuse_recipe_kind(entry.value_place, *text);
    throw UserError(
        fmt::format("{}: the schema is '{}', not {}", entry.value_place, shown_text(*text), schema),
        "use the version of ridge that made the recipe");
  }
  std::vector<std::string> known = {"schema"};
  for (const ClaimField& field : kClaimFields) {
    if (field.name == name) {
      proven.*field.text = valid_utf8(*text);
      return;
    }
    known.emplace_back(field.name);
  }
  throw UserError(fmt::format("{}: unknown key 'recipe.{}'", entry.key_place, shown_text(name)),
                  did_you_mean(name, known));
}

std::string claim_toml(const RecipeClaim& proven, std::string_view schema) {
  std::string text = fmt::format("[recipe]\nschema = {}\n", toml_quoted(schema));
  for (const ClaimField& field : kClaimFields)
    if (const std::string& said = proven.*field.text; !said.empty())
      text += fmt::format("{} = {}\n", field.name, toml_quoted(valid_utf8(said)));
  return text;
}

}  // namespace ridge
