// The flag --trust of the verbs that read a recipe for a program in PyTorch.
#pragma once

#include <CLI/CLI.hpp>

#include "ridge/tune/pytorch/recipe.h"

namespace ridge {

inline RecipeTrust trust_of(bool is_trusted) {
  return is_trusted ? RecipeTrust::kAnyVariable : RecipeTrust::kListedVariables;
}

inline void add_trust(CLI::App& verb, bool& is_trusted) {
  verb.add_flag("--trust",
                is_trusted,
                "Take every environment variable that the recipe sets; without it only those of "
                "docs/recipes_pytorch.md");
}

}  // namespace ridge
