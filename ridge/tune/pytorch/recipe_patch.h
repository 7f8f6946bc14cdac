// What a recipe changes as a patch of the program's own text, for who wants to keep it without
// `ridge run`. Python's own parser finds the places: patch/recipe_patch.py. How a change is written
// stands in the table of knobs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/tune/pytorch/recipe.h"

namespace ridge {

struct PatchRequest {
  /// As it is started; empty: as it was when the recipe was proven. Only an interpreter that is
  /// named here is run: a recipe may come from anybody.
  std::vector<std::string> command{};
  std::string root = ".";  ///< The folder that sites and the command's files are paths from.
  std::string supervisor = "/proc/self/exe";
};

struct RecipePatch {
  std::string diff;                ///< For `patch -p1` in the root; empty: nothing is changed.
  std::vector<std::string> notes;  ///< What is not in it or is in it besides, and why; lines.
};

/// Reads the program's files and runs the interpreter; writes nothing. UserError where there is no
/// such folder, or no Python of 3.8 or later.
RecipePatch make_recipe_patch(const ForeignRecipe& recipe, const PatchRequest& request);

/// The script, by its name.
const std::vector<std::pair<std::string_view, std::string_view>>& patch_files();

}  // namespace ridge
