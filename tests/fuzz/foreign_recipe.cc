// Recipes for third-party programs: what is read must print, and read back to the same text and
// hash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/io/json.h"
#include "ridge/tune/pytorch/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Any variable, so that names and values of all kinds are printed and read back.
  constexpr auto kTrust = ridge::RecipeTrust::kAnyVariable;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ridge::ForeignRecipe recipe = ridge::parse_foreign_recipe(text, "fuzz", kTrust);
    const std::string printed = ridge::to_toml(recipe);
    // From here on a refusal is a finding.
    try {
      const ridge::ForeignRecipe again = ridge::parse_foreign_recipe(printed, "printed", kTrust);
      if (ridge::to_toml(again) != printed) std::abort();
      if (ridge::recipe_hash(again) != ridge::recipe_hash(recipe)) std::abort();
      if (!ridge::change_text(recipe, again).empty()) std::abort();
      if (!recipe.changes().empty()) ridge::parse_json(recipe.shim_json(), "shim");
      ridge::is_proven_for(recipe, {"python", std::string(text)});
    } catch (const ridge::UserError&) {
      std::abort();
    }
  } catch (const ridge::UserError&) {
  }
  return 0;
}
