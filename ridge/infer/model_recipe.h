// A recipe for a model: how a session of it is compiled, and how it is run. `ridge optimize
// MODEL.onnx` writes it; `ridge predict|bench --recipe FILE` and SessionOptions::recipe of ridge.h
// read it.
//
//   [session]
//   threads = 2                   the settings "threads" and "cpu.pin" of the process
//   pin = true
//   batch = 16                    rows of a run
//   instances = 2                 runs that go on at once
//   precision = "bf16"            see CompileChoices, as for the next four
//   passes_off = ["join_loops"]
//   pick = "timed"
//   kernels_off = ["winograd"]
//   quantized = "m.int8.onnx"     a file beside the recipe, which is run in the model's place
//   [kernels]
//   0123456789abcdef = "winograd"
//   [sizes]                       of the named dimensions that it was proven for
//   T = 128
//   [files]                       that lie beside the recipe, by name, with their model_hash()
//   "m.int8.onnx" = "0123456789abcdef"
//   [recipe]                      the claim, the machine, and `config`, the hash of the model
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/infer/compile_choices.h"
#include "ridge/infer/model_session.h"
#include "ridge/io/recipe_claim.h"

namespace ridge {

struct ModelRecipe {
  /// Another runtime that runs the model, by the name of its module in Python; empty: Ridge.
  std::string runtime = {};
  std::optional<int64_t> threads = {}, batch = {};
  std::optional<bool> pin = {};
  int64_t instances = 1;
  /// The name of a model beside the recipe that is run in the place of the one that it is for;
  /// empty: there is none.
  std::string quantized = {};
  CompileChoices choices = {};
  Binding sizes = {};
  std::map<std::string, std::string> files = {};  ///< model_hash() of files that it names.
  RecipeClaim proven = {};

  /// Nothing is changed, whatever is said of it.
  bool empty() const;
};

/// Reads TOML; `name` is the file's in messages. UserError with the place for an unknown key (the
/// nearest is named), a wrong value, and a recipe of another kind.
ModelRecipe parse_model_recipe(std::string_view text, std::string_view name);
/// The same of a file, for the model at the path `model`. UserError where it was made for another.
ModelRecipe read_model_recipe(const std::string& path, const std::string& model);
/// The path of the model that is run with the recipe at `path`, or in that folder: `model`, or the
/// quantized one. UserError where that is absent, or another one than `files` says.
std::string model_to_run(const ModelRecipe& recipe,
                         const std::string& path,
                         const std::string& model);
/// Whether `text` says by its schema that it is a recipe for a model, as every one does that
/// to_toml() writes. UserError for what is no TOML.
bool is_model_recipe(std::string_view text, std::string_view name);
/// Equal recipes have equal texts, which parse_model_recipe() reads back.
std::string to_toml(const ModelRecipe& recipe);
/// 16 hexadecimal digits of what it changes; sizes, files and what was proven do not count.
std::string recipe_hash(const ModelRecipe& recipe);

/// 16 hexadecimal digits of the model's file: of its size, its first and its last 4 MiB.
std::string model_hash(const std::string& path);

/// Gives the settings of the process their values of the recipe, below those of the environment and
/// of flags, and puts them into force; `where` names it in messages.
void apply_settings(const ModelRecipe& recipe, const std::string& where);
/// The limits of a session with that many bindings.
ProgramLimits limits_of(const ModelRecipe& recipe, size_t bindings);

}  // namespace ridge
