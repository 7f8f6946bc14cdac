// `ridge run --recipe FILE -- CMD...`: runs a program of the user's with what a recipe changes, and
// says what became of it. Without the prefix the program is as it was.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "ridge/attach/process/program.h"
#include "ridge/attach/shim.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/machine/machine.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/recipe_trust.h"
#include "ridge/cli/verbs.h"
#include "ridge/tune/pytorch/recipe.h"

namespace ridge {
namespace {

struct RecipeRunOptions {
  std::string recipe;
  std::vector<std::string> command;
  bool is_quiet = false;
  bool is_trusted = false;
};

void say(std::string_view text) { write_stderr(plain_line(fmt::format("ridge: {}", text)) + "\n"); }

// Processor and CPUs. What comes before them names a device, and which one the program takes is not
// known yet; what comes behind them is how Ridge itself computes.
std::string_view hardware_in(std::string_view machine) {
  constexpr std::string_view kEnd = " CPUs;";
  machine = machine.substr(std::min(machine.find(';'), machine.size()));
  return machine.substr(0, machine.find(kEnd));
}

void report_claim(const ForeignRecipe& recipe, const RecipeRunOptions& options) {
  const std::string name = valid_utf8(options.recipe);
  const std::string& machine = recipe.proven.machine;
  if (!machine.empty() && hardware_in(machine) != hardware_in(machine_fingerprint("cpu")))
    say(fmt::format("note: {}: proven on another machine: {}", name, machine));
  if (!is_proven_for(recipe, options.command))
    say(fmt::format("note: {}: proven for another command: {}", name, recipe.proven.command));
}

// The loader of programs would complain in every process, and go on without it.
void check_preload(const ForeignRecipe& recipe, const std::string& name) {
  const auto found = recipe.environment().find("LD_PRELOAD");
  if (found == recipe.environment().end()) return;
  std::string_view rest = found->second;
  while (!rest.empty()) {
    const std::string path(rest.substr(0, rest.find_first_of(": ")));
    rest.remove_prefix(std::min(path.size() + 1, rest.size()));
    std::error_code ignored;
    check(path.find('/') == std::string::npos || std::filesystem::exists(path, ignored),
          "{}: there is no '{}', which LD_PRELOAD names; install it here, or take it out of the "
          "recipe",
          name,
          path);
  }
}

/// Returns the process whose steps are the training; if none makes steps, one that knows the
/// recipe.
attach::ProcessFacts main_process(const std::vector<attach::ProcessFacts>& all) {
  const auto is_less = [](const attach::ProcessFacts& a, const attach::ProcessFacts& b) {
    if ((a.steps > 0) != (b.steps > 0)) return b.steps > 0;
    if (a.rank != b.rank) return a.rank > b.rank;
    if (a.steps != b.steps) return a.steps < b.steps;
    return a.knobs.size() < b.knobs.size();
  };
  const auto most = std::ranges::max_element(all, is_less);
  return most == all.end() ? attach::ProcessFacts{} : *most;
}

std::string became(const attach::KnobFacts& knob) {
  const std::string where = knob.site.empty() ? "" : " at " + knob.site;
  const std::string once =
      knob.seconds < 0.05 ? "" : fmt::format(" ({:.1f} s, once)", knob.seconds);
  const std::string why = knob.text.empty() ? "" : ": " + knob.text;
  if (knob.state == "applied") return "applied" + where + once + why;
  if (knob.state == "refused") return "refused" + where + why;
  return "never came: the program did nothing that it is for" + why;
}

class RecipeRun {
 public:
  RecipeRun(const ForeignRecipe& recipe, const RecipeRunOptions& options)
      : recipe_(recipe), options_(options) {
    // Without keys there is nothing to be done within the program.
    if (!recipe.changes().empty())
      shim_.emplace(attach::ShimOptions{
          .profiled_steps = 0, .keeps_spans = false, .recipe = recipe.shim_json()});
  }

  int run() {
    attach::ProgramRequest request{.command = options_.command};
    if (shim_) {
      request.environment = shim_->environment();
      request.folders = {shim_->path()};
    }
    for (const auto& variable : recipe_.environment()) request.environment.push_back(variable);
    attach::Program program(request);
    std::optional<attach::ProgramSignals> signals(std::in_place, program);
    std::optional<attach::ProgramEnd> end;
    while (!end) end = program.wait(-1);
    // The report below can be interrupted.
    signals.reset();
    if (!options_.is_quiet) report(*end);
    return end->exit_code;
  }

 private:
  void report(const attach::ProgramEnd& end) const {
    if (!end.trouble.empty()) say(end.trouble);
    if (end.signal != 0)
      say(fmt::format("the program was ended by signal {} ({}) after {}",
                      end.signal,
                      strsignal(end.signal),
                      duration_text(end.seconds)));
    for (const auto& [name, value] : recipe_.environment())
      say(fmt::format("{} = {}: set", name, value));
    if (shim_) report_knobs();
  }

  void report_knobs() const {
    const attach::ProcessFacts process = main_process(shim_->facts());
    if (process.knobs.empty())
      return say("nothing within the program was changed: " + why(process));
    for (const auto& [key, value] : recipe_.changes()) {
      const auto knob = std::ranges::find(process.knobs, key, &attach::KnobFacts::key);
      say(fmt::format(
          "{} = {}: {}",
          key,
          value,
          knob == process.knobs.end() ? "refused: it is not known here" : became(*knob)));
    }
  }

  std::string why(const attach::ProcessFacts& process) const {
    if (!shim_->was_loaded())
      return "no Python that it ran looks for sitecustomize (it is no Python program, or runs with "
             "-I, -E or -S, or replaces PYTHONPATH)";
    if (process.pid == 0) return "no process of it imported torch";
    std::string notes;
    for (const std::string& note : process.notes) notes += (notes.empty() ? "" : "; ") + note;
    return notes.empty() ? "the program ended too early" : notes;
  }

  const ForeignRecipe& recipe_;
  const RecipeRunOptions& options_;
  std::optional<attach::ShimFolder> shim_;
};

int run_with_recipe(const RecipeRunOptions& options) {
  const ForeignRecipe recipe =
      read_foreign_recipe_file(options.recipe, trust_of(options.is_trusted));
  check(!options.command.empty(),
        "no command was given; put it behind '--': ridge run --recipe FILE -- python train.py");
  check_preload(recipe, valid_utf8(options.recipe));
  if (!options.is_quiet) report_claim(recipe, options);
  try {
    return RecipeRun(recipe, options).run();
  } catch (const attach::ProgramError& error) {
    write_stderr(fmt::format("error: {}\n", error.what()));
    return error.exit_code();
  }
}

}  // namespace

void add_run(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<RecipeRunOptions>();
  if (command) options->command = *command;
  CLI::App* verb = app.add_subcommand("run", "Run a program in PyTorch as a recipe says");
  verb->footer(
      "ridge run --recipe FILE -- COMMAND...    its streams and exit code are kept; nothing of it "
      "is edited");
  verb->add_option("--recipe", options->recipe, "What 'ridge optimize -- COMMAND' handed back")
      ->type_name("FILE")
      ->required();
  verb->add_flag("--quiet", options->is_quiet, "Do not say what became of the recipe");
  add_trust(*verb, options->is_trusted);
  verb->callback([options, &exit_code] { exit_code = run_with_recipe(*options); });
}

}  // namespace ridge
