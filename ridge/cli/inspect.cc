#include "ridge/cli/inspect/inspect.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "ridge/cli/common/config_options.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/verbs.h"

namespace ridge {

void add_inspect(CLI::App& app, int&) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* verb = app.add_subcommand(
      "inspect",
      "Say what is in a model, or what a configuration would train: sizes, FLOPs, memory");
  verb->add_option("file",
                   options->file,
                   "A configuration (TOML), MODEL.onnx, what 'ridge capture' wrote, or a graph in "
                   "Ridge's text form")
      ->required();
  add_override_options(*verb, options->recipe, options->device, options->set);
  verb->add_option("--dim", options->dims, "Size of a named dimension of MODEL.onnx; repeatable")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  verb->add_flag("--json", options->json, "One JSON object (ridge.inspect/1)");
  verb->add_flag("--nodes", options->nodes, "Also print every node, after the passes");
  verb->add_flag("--plan", options->plan, "Also print the plan: every launch, and where bytes lie");
  verb->callback([options] {
    check_stdout();
    write_stdout(inspect(*options));
  });
}

}  // namespace ridge
