#include "ridge/cli/command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/export/export.h"
#include "ridge/cli/quantize/quantize.h"
#include "ridge/cli/verbs.h"

namespace ridge {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 fine, 1 findings or a failed check, 2 wrong usage or input, 3 a fault of "
    "Ridge,\n"
    "130 or 143 stopped by a signal after saving; with a command behind '--' that command's own.\n"
    "'ridge VERB --help' lists the options of a verb.";

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  return verbs;
}

// An unknown verb gets the nearest one named, which the parser would not do. `words` are what
// follows `command`, which is `ridge` or a verb with verbs of its own.
void check_verb(CLI::App& app, const std::string& command, std::span<char*> words) {
  const std::vector<std::string> verbs = verbs_of(app);
  if (verbs.empty()) return;
  if (words.empty())
    throw UserError("no verb is given", fmt::format("'{} --help' lists them", command));
  const std::string name = words[0];
  if (name.starts_with('-')) return;
  if (std::find(verbs.begin(), verbs.end(), name) != verbs.end())
    return check_verb(*app.get_subcommand(name), command + " " + name, words.subspan(1));
  const std::string near = did_you_mean(name, verbs);
  throw UserError(fmt::format("unknown verb '{}'", name),
                  near.empty() ? fmt::format("'{} --help' lists the verbs", command) : near);
}

// Likewise an unknown option. Does nothing when what is left over is no option.
void check_options(const CLI::App& app, const std::string& command) {
  for (const CLI::App* verb : app.get_subcommands()) {
    const std::string name = command + verb->get_name();
    for (const std::string& word : verb->remaining()) {
      if (!word.starts_with("--")) continue;
      std::vector<std::string> known;
      for (const CLI::Option* option : verb->get_options())
        for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
      const std::string near = did_you_mean(word.substr(0, word.find('=')), known);
      throw UserError(fmt::format("unknown option '{}' of '{}'", word, name),
                      near.empty() ? fmt::format("'ridge {} --help' lists them", name) : near);
    }
    check_options(*verb, name + " ");
  }
}

// Puts the option parser's message into the form of our own errors.
std::string parse_failure(const CLI::App* app, const CLI::Error& error) {
  std::string text = error.what(), verb;
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    verb += app->get_name() + " ";
  }
  return fmt::format("error: {}; 'ridge {}--help' lists what may be given\n", text, verb);
}

// Cuts what stands behind the first `--` off where the verb takes a command: to the parser it
// would be more arguments of ours.
ForeignCommand take_command(std::vector<char*>& words) {
  constexpr std::string_view kTakers[] = {
      "doctor", "watch", "optimize", "run", "capture", "recipe", "ledger"};
  if (words.size() < 2 || std::ranges::find(kTakers, words[1]) == std::end(kTakers)) return {};
  const auto dashes =
      std::ranges::find_if(words, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes == words.end()) return {};
  std::vector<std::string> command(dashes + 1, words.end());
  words.erase(dashes, words.end());
  if (command.empty()) {
    std::string before;
    for (const char* word : std::span(words).subspan(1)) before += fmt::format(" {}", word);
    throw UserError("no command stands behind '--'",
                    fmt::format("for example: ridge{} -- python train.py", before));
  }
  return command;
}

int run_verb(CLI::App& app, std::vector<char*> words) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridge " RIDGE_VERSION);
  app.failure_message(parse_failure);
  int exit_code = kFine;
  const ForeignCommand command = take_command(words);
  add_inspect(app, exit_code);
  add_train(app, exit_code);
  add_eval(app, exit_code);
  add_predict(app, exit_code);
  add_bench(app, exit_code);
  add_generate(app, exit_code);
  add_export(app, exit_code);
  add_quantize(app, exit_code);
  add_optimize(app, exit_code, command);
  add_run(app, exit_code, command);
  add_capture(app, exit_code, command);
  add_recipe(app, exit_code, command);
  add_doctor(app, exit_code, command);
  add_watch(app, exit_code, command);
  add_calibrate(app, exit_code);
  add_ledger(app, exit_code, command);
  app.footer(kFooter);  // after the verbs, which would inherit it
  check_verb(app, "ridge", std::span(words).subspan(std::min<size_t>(words.size(), 1)));
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ExtrasError&) {
    check_options(app, "");
    throw;
  }
  return exit_code;
}

}  // namespace

int run_command(int argc, char** argv) {
  CLI::App app("Finds what holds an AI workload back, applies the cure, proves the gain.", "ridge");
  try {
    const std::vector<char*> words(argv, argv + argc);
    if (const std::optional<int> exit_code = run_supervise(words)) return *exit_code;
    return run_verb(app, words);
  } catch (const CLI::ParseError& error) {
    // Prints help and version to stdout, errors to stderr.
    if (app.exit(error) != 0) return kUsage;
    if (std::cout.flush().good()) return kFine;
    write_stderr("error: cannot write to stdout\n");
    return kUsage;
  } catch (const UserError& error) {
    write_stderr(fmt::format("error: {}\n", error.what()));
    return kUsage;
  } catch (const std::filesystem::filesystem_error& error) {
    write_stderr(fmt::format("error: {}\n", error.what()));
    return kUsage;
  } catch (const std::bad_alloc&) {
    write_stderr("error: out of memory\n");
    return kUsage;
  } catch (const std::exception& error) {
    write_stderr(fmt::format("internal error: {}\n", error.what()));
    return kInternal;
  }
}

}  // namespace ridge
