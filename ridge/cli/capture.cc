// `ridge capture --out FILE -- CMD...`: runs a program in PyTorch with its model compiled by Ridge,
// and keeps the graphs that were: for `ridge inspect`, and for reports of faults.
#include "ridge/import/aten/capture.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "ridge/attach/process/program.h"
#include "ridge/attach/shim.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/cli/command.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/verbs.h"
#include "ridge/io/file.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct CaptureOptions {
  std::string out = "model.graph";
  std::vector<std::string> command;
};

void say(std::string_view text) { write_stderr(plain_line(fmt::format("ridge: {}", text)) + "\n"); }

// The files of ridge/torch/_capture.py: by process, in the order in which they were compiled.
std::vector<std::string> graphs_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> graphs;
  for (const fs::path& file : files) graphs.push_back(read_file(file));
  return graphs;
}

std::string why_nothing(const attach::ShimFolder& shim) {
  if (!shim.was_loaded())
    return "no Python that the program ran looks for sitecustomize (it is no Python program, or "
           "runs with -I, -E or -S, or replaces PYTHONPATH)";
  std::string why = "no process of the program imported torch";
  for (const attach::ProcessFacts& process : shim.facts()) {
    why = "the program called no model";
    for (const attach::KnobFacts& knob : process.knobs)
      if (knob.state == "refused") return knob.text;
  }
  return why;
}

int capture(const CaptureOptions& options) {
  check(!options.command.empty(),
        "no command was given; put it behind '--': ridge capture --out FILE -- python train.py");
  check_place(options.out);
  const attach::ShimFolder shim(
      {.profiled_steps = 0, .keeps_spans = false, .recipe = R"({"model.compile":"ridge"})"});
  const fs::path folder = fs::path(shim.path()) / "graphs";
  fs::create_directory(folder);
  attach::ProgramRequest request{
      .command = options.command, .environment = shim.environment(), .folders = {shim.path()}};
  request.environment.emplace_back("RIDGE_TORCH_CAPTURE", folder.string());
  attach::Program program(request);
  std::optional<attach::ProgramSignals> signals(std::in_place, program);
  std::optional<attach::ProgramEnd> end;
  while (!end) end = program.wait(-1);
  signals.reset();
  if (!end->trouble.empty()) say(end->trouble);
  const std::vector<std::string> graphs = graphs_in(folder);
  if (graphs.empty()) {
    say("no graph was captured: " + why_nothing(shim));
    return end->exit_code != 0 ? end->exit_code : kFindings;
  }
  const std::string text = aten::capture_of(graphs);
  (void)aten::parse_capture(text, options.out);  // the program may have written anything there
  write_file_atomically(options.out, text);
  say(fmt::format("{} graphs are in {}; 'ridge inspect' reads them", graphs.size(), options.out));
  return end->exit_code;
}

}  // namespace

void add_capture(CLI::App& app, int& exit_code, const ForeignCommand& command) {
  const auto options = std::make_shared<CaptureOptions>();
  if (command) options->command = *command;
  CLI::App* verb =
      app.add_subcommand("capture", "Keep the graphs of the model that a program in PyTorch runs");
  verb->footer(
      "ridge capture --out FILE -- COMMAND...    its streams and exit code are kept; its model is "
      "compiled by Ridge, as torch.compile(model, backend=\"ridge\") would");
  verb->add_option("--out", options->out, "The file, which 'ridge inspect' reads")
      ->type_name("FILE")
      ->capture_default_str();
  verb->callback([options, &exit_code] {
    try {
      exit_code = capture(*options);
    } catch (const attach::ProgramError& error) {
      write_stderr(fmt::format("error: {}\n", error.what()));
      exit_code = error.exit_code();
    }
  });
}

}  // namespace ridge
