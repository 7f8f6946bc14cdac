// Recipes: what is read must print, read back to the same text and hash, and be fit for a
// configuration or clearly refused by it.
#include "ridge/config/recipe.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ridge/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ridge::Recipe recipe = ridge::parse_recipe(text, "fuzz");
    const std::string printed = ridge::to_toml(recipe);
    const ridge::Recipe again = ridge::parse_recipe(printed, "printed");
    if (ridge::to_toml(again) != printed) std::abort();
    if (ridge::recipe_hash(again) != ridge::recipe_hash(recipe)) std::abort();
    ridge::Settings settings;
    ridge::load_config("[train]\nsteps = 1\n", "run", recipe.changes(), settings);
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
