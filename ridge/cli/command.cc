#include "ridge/cli/command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cli/inspect.h"

namespace ridge {
namespace {

enum ExitCode { kFine = 0, kUsage = 2, kInternal = 3 };

// Data for the user: a full disk or a closed pipe must not pass for success.
void write_stdout(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  check(std::fflush(stdout) == 0 && written, "cannot write to stdout");
}

// An unknown verb gets the nearest one named, which the parser would not do.
void check_verb(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  if (argc < 2) throw UserError("no verb is given", "'ridge --help' lists them");
  const std::string name = argv[1];
  if (name.starts_with('-') || std::find(verbs.begin(), verbs.end(), name) != verbs.end()) return;
  const std::string near = did_you_mean(name, verbs);
  throw UserError(fmt::format("unknown verb '{}'", name),
                  near.empty() ? "'ridge --help' lists the verbs" : near);
}

void run_verbs(CLI::App& app, int argc, char** argv) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridge " RIDGE_VERSION);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("error: {}\n", error.what());
  });

  InspectOptions options;
  CLI::App* verb = app.add_subcommand(
      "inspect", "Check a graph file and say what is in it: inputs, outputs, FLOPs, bytes, batch");
  verb->add_option("file", options.file, "A graph in Ridge's text form")->required();
  verb->add_flag("--json", options.json, "One JSON object (ridge.inspect/1)");
  verb->add_flag("--nodes", options.nodes, "Also print every node");
  check_verb(app, argc, argv);
  app.parse(argc, argv);
  if (verb->parsed()) write_stdout(inspect(options));
}

}  // namespace

int run_command(int argc, char** argv) {
  CLI::App app("Finds what holds an AI workload back, applies the cure, proves the gain.", "ridge");
  try {
    run_verbs(app, argc, argv);
    return kFine;
  } catch (const CLI::ParseError& error) {
    // Prints help and version to stdout, errors to stderr.
    return app.exit(error) == 0 ? kFine : kUsage;
  } catch (const UserError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kUsage;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "error: out of memory\n");
    return kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n", error.what());
    return kInternal;
  }
}

}  // namespace ridge
