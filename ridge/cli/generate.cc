// `ridge generate CONFIG`: text from a trained language model.
#include "ridge/infer/generate.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/config_options.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/verbs.h"

namespace ridge {
namespace {

struct GenerateOptions {
  ConfigOptions config;
  GenerateRequest request;
  bool json = false;
};

void run_generate(const GenerateOptions& options) {
  GenerateRequest request = options.request;
  request.config = load_config_options(options.config).config;
  apply_threads();
  ProgressDisplay progress(stderr);
  const int64_t start = now_ns();
  if (!options.json) {
    bool begun = false;  // the prompt appears once the model is known to be good
    generate(request, progress, [&](std::string_view bytes) {
      if (!begun) write_stdout(request.prompt);
      begun = true;
      write_stdout(bytes);
    });
    return write_stdout("\n");
  }
  std::string made, text;
  generate(request, progress, [&](std::string_view bytes) { made += bytes; });
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.generate/1").field("prompt", request.prompt);
  json.field("text", made).field("tokens", request.tokens).field("seed", request.seed);
  json.field("seconds", static_cast<double>(now_ns() - start) * 1e-9).end_object().finish();
  write_stdout(text + "\n");
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  const auto options = std::make_shared<GenerateOptions>();
  GenerateRequest& request = options->request;
  CLI::App* verb = app.add_subcommand("generate", "Let a trained language model write");
  add_config_options(*verb, options->config);
  verb->add_option("--weights", request.weights, "As for eval")->type_name("PATH");
  verb->add_option("--prompt", request.prompt, "Text to go on from");
  verb->add_option("--tokens", request.tokens, "Tokens to write; default: 200");
  verb->add_option("--temperature",
                   request.temperature,
                   "0 takes the likeliest token; higher is wilder; default: 0.8");
  verb->add_option(
      "--top-k", request.top_k, "Draw from the likeliest so many; 0: all; default: 40");
  verb->add_option("--seed", request.seed, "The same seed writes the same text; default: 0");
  verb->add_flag("--json", options->json, "One JSON object (ridge.generate/1)");
  verb->callback([options] { run_generate(*options); });
}

}  // namespace ridge
