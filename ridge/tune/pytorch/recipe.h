// A recipe for a third-party program: what the shim changes in its processes, and what is set in
// its environment. `ridge run --recipe FILE -- CMD` applies it; without that prefix nothing is
// changed.
//
//   [pytorch]                     keys of knobs(), listed in docs/recipes_pytorch.md
//   loader.workers = 2
//   [environment]                 set over what the program's environment has
//   LD_PRELOAD = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
//   [sites]                       where in the program's text the call stands that a key is about
//   loader.workers = "train.py:53"
//   [recipe]                      what was proven of it, where, and of which command
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/config/recipe.h"
#include "ridge/tune/pytorch/knob.h"

namespace ridge {

/// Overrides in the order of knobs(), each key once. A value that its key does not allow cannot get
/// in.
class ForeignRecipe {
 public:
  /// `value` as TOML has it without quotes: "true", "2", "bf16". UserError that opens with `where`
  /// for an unknown key (nearest named) or a wrong value.
  void set(const std::string& key, const std::string& value, const std::string& where = "recipe");
  /// UserError for what is no name of a variable, and for one that Ridge sets itself.
  void set_environment(const std::string& name,
                       const std::string& value,
                       const std::string& where = "recipe");
  void erase(const std::string& key);

  /// Empty where the key is not set.
  std::string get(std::string_view key) const;
  /// In order: key, value.
  const std::vector<std::pair<std::string, std::string>>& changes() const { return changes_; }
  const std::map<std::string, std::string>& environment() const { return environment_; }
  /// Nothing is changed, whatever is said of it.
  bool empty() const { return changes_.empty() && environment_.empty(); }
  /// What the shim reads: {"loader.workers":2,...}; empty where no key is set.
  std::string shim_json() const;

  /// Key: "path:line" of the call in the program that it is about. Another form is not written.
  std::map<std::string, std::string> sites;
  /// `command` is attach::CommandTemplate::text(): {out} and {steps} stand for anything.
  RecipeClaim proven;

 private:
  std::vector<std::pair<std::string, std::string>> changes_;
  std::map<std::string, std::string> environment_;
};

/// Which variables [environment] may set: those of trusted_variables() (variables.h), or
/// any but those that Ridge sets itself, as the user asks for with --trust.
enum class RecipeTrust : uint8_t { kListedVariables, kAnyVariable };

/// Reads TOML; `name` is the file's in messages. UserError with the place, as parse_recipe().
ForeignRecipe parse_foreign_recipe(std::string_view text,
                                   std::string_view name,
                                   RecipeTrust trust = RecipeTrust::kListedVariables);
/// Whether `text` says by its schema that it is a recipe for a third-party program, as the text of
/// every ForeignRecipe does. UserError for what is no TOML.
bool is_foreign_recipe(std::string_view text, std::string_view name);
ForeignRecipe read_foreign_recipe_file(const std::string& path,
                                       RecipeTrust trust = RecipeTrust::kListedVariables);
/// Equal recipes have equal texts, which parse_foreign_recipe() reads back.
std::string to_toml(const ForeignRecipe& recipe);
/// 16 hex digits of keys and environment; what was proven and the sites do not count.
std::string recipe_hash(const ForeignRecipe& recipe);
/// recipe_hash() of the recipe, of a configuration or of a program, whose text this is. Nothing is
/// run, so any variable may stand in it. UserError for a text that is neither.
std::string hash_of_recipe_text(std::string_view text);
/// "loader.workers = 2, LD_PRELOAD = ..." of what `to` has and `from` has not, or has otherwise.
std::string change_text(const ForeignRecipe& from, const ForeignRecipe& to);
/// Whether `command` is the one that it was proven with; true where that is not said.
bool is_proven_for(const ForeignRecipe& recipe, const std::vector<std::string>& command);

}  // namespace ridge
