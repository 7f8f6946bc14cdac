// `ridge recipe show|diff|patch`: what a recipe for a program in PyTorch changes, and the same
// changes as a patch of the program's text.
#include "ridge/tune/pytorch/recipe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/recipe_trust.h"
#include "ridge/cli/verbs.h"
#include "ridge/tune/pytorch/recipe_patch.h"

namespace ridge {
namespace {

struct RecipeOptions {
  std::string file, other, root = ".";
  std::vector<std::string> command;
  bool json = false;
  bool is_trusted = false;

  ForeignRecipe read(const std::string& path) const {
    return read_foreign_recipe_file(path, trust_of(is_trusted));
  }
};

std::string_view class_words(SemanticClass semantic_class) {
  switch (semantic_class) {
    case SemanticClass::kBitIdentical:
      return "same bits";
    case SemanticClass::kReassociation:
      return "same formula, rounded in another order";
    case SemanticClass::kPrecision:
      return "another precision";
    case SemanticClass::kTrajectory:
      return "another computation";
  }
  return "";
}

std::string show_text(const ForeignRecipe& recipe) {
  const RecipeClaim& proven = recipe.proven;
  std::string text;
  const auto line = [&](const std::string& said) { text += plain_line(said) + "\n"; };
  line(proven.claim.empty() ? "nothing is said of what was proven" : "proven: " + proven.claim);
  if (!proven.confirmed.empty()) line("  confirmation: " + proven.confirmed);
  if (!proven.holds_back.empty()) line("  holds it back now: " + proven.holds_back);
  if (!proven.command.empty()) line("  of: " + proven.command);
  if (!proven.machine.empty()) line("  on: " + proven.machine);
  if (!proven.version.empty()) line("  by: ridge " + proven.version);
  if (recipe.empty()) line("it changes nothing: the program runs as it is");
  for (const auto& [key, value] : recipe.changes()) {
    const Knob& knob = *find_knob(key);
    line(fmt::format("{} = {}", key, value));
    line(fmt::format("  {} ({})", knob.text, class_words(knob.semantic_class)));
    if (const auto site = recipe.sites.find(key); site != recipe.sites.end())
      line("  at " + site->second);
  }
  for (const auto& [name, value] : recipe.environment()) {
    line(fmt::format("{} = {}", name, value));
    line("  in the program's environment");
  }
  return text;
}

std::string show_json(const ForeignRecipe& recipe) {
  const RecipeClaim& proven = recipe.proven;
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.recipe.show/1").field("hash", recipe_hash(recipe));
  json.key("proven").begin_object();
  json.field("claim", proven.claim).field("confirmed", proven.confirmed);
  json.field("holds_back", proven.holds_back).field("command", proven.command);
  json.field("machine", proven.machine).field("version", proven.version).end_object();
  json.key("changes").begin_array();
  for (const auto& [key, value] : recipe.changes()) {
    const Knob& knob = *find_knob(key);
    const auto site = recipe.sites.find(key);
    json.begin_object().field("key", key).field("value", value).field("text", knob.text);
    json.field("class", static_cast<int>(knob.semantic_class));
    json.field("site", site == recipe.sites.end() ? "" : site->second).end_object();
  }
  json.end_array().key("environment").begin_object();
  for (const auto& [name, value] : recipe.environment()) json.field(name, value);
  json.end_object().end_object().finish();
  return text + "\n";
}

/// Keys and variables, in order.
std::vector<std::pair<std::string, std::string>> all_changes(const ForeignRecipe& recipe) {
  std::vector<std::pair<std::string, std::string>> all = recipe.changes();
  all.insert(all.end(), recipe.environment().begin(), recipe.environment().end());
  return all;
}

int run_diff(const RecipeOptions& options) {
  const auto before = all_changes(options.read(options.file));
  const auto after = all_changes(options.read(options.other));
  std::string text;
  const auto list = [&](char sign, const auto& from, const auto& to) {
    for (const auto& change : from)
      if (std::ranges::find(to, change) == to.end())
        text += plain_line(fmt::format("{} {} = {}", sign, change.first, change.second)) + "\n";
  };
  list('-', before, after);
  list('+', after, before);
  write_stdout(text.empty() ? "both change the same\n" : text);
  return text.empty() ? kFine : kFindings;
}

void run_patch(const RecipeOptions& options) {
  const ForeignRecipe recipe = options.read(options.file);
  const RecipePatch patch =
      make_recipe_patch(recipe, {.command = options.command, .root = options.root});
  std::string text = patch.diff.empty()
                         ? "# no line of the program is to be changed\n"
                         : "# to be applied with 'patch -p1' in the folder of the program\n";
  for (const std::string& note : patch.notes) text += "# " + plain_line(note) + "\n";
  write_stdout(text + patch.diff);
}

}  // namespace

void add_recipe(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<RecipeOptions>();
  if (command) options->command = *command;
  CLI::App* verb = app.add_subcommand("recipe", "Read a recipe for a program in PyTorch");
  verb->require_subcommand(1);
  const auto check_command = [options] {
    check(options->command.empty(),
          "a command is for 'ridge recipe patch' alone; leave out '--' and what stands behind it");
  };
  CLI::App* show = verb->add_subcommand("show", "What it changes, and what was proven of it");
  show->add_option("file", options->file, "The recipe.toml of a run")->required();
  show->add_flag("--json", options->json, "One JSON object (ridge.recipe.show/1)");
  show->callback([options, check_command] {
    check_command();
    const ForeignRecipe recipe = options->read(options->file);
    write_stdout(options->json ? show_json(recipe) : show_text(recipe));
  });
  CLI::App* diff = verb->add_subcommand("diff", "What one changes and the other does not");
  diff->add_option("before", options->file, "A recipe.toml")->required();
  diff->add_option("after", options->other, "Another one; exit code 1 where they differ")
      ->required();
  diff->callback([options, check_command, &exit_code] {
    check_command();
    exit_code = run_diff(*options);
  });
  CLI::App* patch = verb->add_subcommand("patch", "The same changes as a patch of the program");
  patch->footer("ridge recipe patch FILE [--root DIR] [-- COMMAND...]    the diff is on stdout");
  patch->add_option("file", options->file, "The recipe.toml of a run")->required();
  patch->add_option("--root", options->root, "The folder of the program (.)")->type_name("DIR");
  for (CLI::App* reader : {show, diff, patch}) add_trust(*reader, options->is_trusted);
  patch->callback([options] { run_patch(*options); });
}

}  // namespace ridge
