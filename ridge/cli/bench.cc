// `ridge bench MODEL`: how long a run of a model takes, alone or against another runtime.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "ridge/base/cpu/parallel.h"
#include "ridge/cli/bench/bench_model.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/verbs.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/io/file.h"
#include "ridge/tune/onnx/runtime_peer.h"

namespace ridge {
namespace {

struct BenchOptions {
  BenchRequest request;
  LoadOptions load;
  std::vector<std::string> set, dims;
  std::string json;  ///< A file, or "-"; empty: none.
  std::string against, python, recipe;
};

// Notes come with the first load alone.
std::function<LoadedModel()> opener_of(const BenchOptions& options, const LoadOptions& load) {
  const std::string& path = options.request.model;
  std::function<LoadedModel(TrainObserver&)> open;
  if (is_onnx_file(path)) {
    apply_onnx_options(path, load, settings());
    const ModelRecipe recipe = options.request.recipe.value_or(ModelRecipe{});
    open = [run = model_to_run(recipe, options.recipe, path), device = load.device](
               TrainObserver& observer) { return load_onnx_model(run, device, observer); };
  } else {
    const ModelFiles files = find_model(path, load, settings());
    open = [files](TrainObserver& observer) {
      return load_model(files.config, files.weights, observer);
    };
  }
  return [open, is_first = true]() mutable {
    if (!std::exchange(is_first, false)) {
      TrainObserver nobody;
      return open(nobody);
    }
    ProgressDisplay display(stderr);
    return open(display);
  };
}

void take_peer(BenchOptions& options) {
  if (options.against.empty()) {
    check(options.python.empty(),
          "--python is for --against; write --against {}",
          name_of(PeerRuntime::kOnnxRuntime));
    return;
  }
  options.request.against = parse_name<PeerRuntime>(options.against);
  check(options.request.against.has_value(),
        "--against must be one of {}; got '{}'",
        names_of(PeerRuntime{}),
        options.against);
  check(is_onnx_file(options.request.model),
        "'{}' is no ONNX model, which is all that --against is for; leave it out",
        options.request.model);
  check(options.load.device.empty() || options.load.device == "cpu",
        "{} is compared on the CPU, not on '{}'; leave out --device",
        title_of(*options.request.against),
        options.load.device);
  options.request.python = options.python.empty() ? default_python() : options.python;
}

void check_json_place(const BenchOptions& options) {
  if (options.json.empty() || options.json == "-") return;
  check_place(options.json);
  std::error_code ignored;
  check(!std::filesystem::equivalent(options.json, options.request.model, ignored),
        "--json would write over the model '{}'; give another file",
        options.request.model);
}

void take_recipe(BenchOptions& options) {
  if (options.recipe.empty()) return;
  BenchRequest& request = options.request;
  check(!request.tune, "--tune picks kernels by time, and a recipe has its own: leave out one");
  request.recipe = read_model_recipe(options.recipe, request.model);
  apply_settings(*request.recipe, options.recipe);
  if (request.batches.empty() && request.recipe->batch) request.batches = {*request.recipe->batch};
  for (const auto& [name, size] : request.recipe->sizes) request.dims.emplace(name, size);
}

void run_bench(BenchOptions options) {
  take_peer(options);
  check_json_place(options);
  check_stdout();
  BenchRequest& request = options.request;
  request.dims = parse_sizes(options.dims);
  take_recipe(options);
  LoadOptions load = options.load;
  for (const std::string& text : options.set) load.set.push_back(parse_set(text));
  request.open = opener_of(options, load);
  apply_threads();
  check(!request.tune || settings().get_bool("tune"),
        "--tune picks kernels by time, and the setting 'tune' is false: leave out one of them");
  const BenchReport report = bench_model(request);
  for (const BenchInput& input : report.inputs)
    if (input.is_unbounded)
      write_note(fmt::format("integers of '{}' are 0 or 1: the model does not say which may come",
                             input.name));
  for (const BenchResult& result : report.results)
    if (!result.picks.note.empty()) {
      write_note(result.picks.note);
      break;
    }
  if (!options.json.empty() && options.json != "-")
    write_file_atomically(options.json, bench_json(report));
  write_stdout(options.json == "-" ? bench_json(report) : bench_text(report));
}

}  // namespace

void add_bench(CLI::App& app, int&) {
  const auto options = std::make_shared<BenchOptions>();
  BenchRequest& request = options->request;
  CLI::App* verb = app.add_subcommand("bench", "Time runs of a model, alone or against another");
  verb->add_option(
          "model", request.model, "TOML file, folder of a run or a checkpoint, or FILE.onnx")
      ->required();
  verb->add_option("--batch", request.batches, "Sizes of the batch, as 1,8; default: 1")
      ->type_name("N,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--threads", request.threads, "Numbers of threads, as 1,2; default: all CPUs")
      ->type_name("N,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--dim", options->dims, "Size of another named dimension; repeatable")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  verb->add_option("--seconds", request.seconds, "Time for the runs of each result; default: 5");
  verb->add_option("--against",
                   options->against,
                   "onnxruntime or openvino: time it in turn, in a process of Python")
      ->type_name("PEER");
  verb->add_option(
          "--recipe", options->recipe, "What ridge optimize MODEL.onnx wrote for the model")
      ->type_name("FILE");
  verb->add_flag("--tune",
                 request.tune,
                 "First pick kernels by time, for all sessions of this machine from then on");
  verb->add_option("--python",
                   options->python,
                   "The Python that has it; default: that of $VIRTUAL_ENV, else python3");
  verb->add_option("--weights", options->load.weights, "As for eval")->type_name("PATH");
  verb->add_option("--device", options->load.device, "Where it runs (train.device)");
  verb->add_option("--set", options->set, "Any key of the file, or a setting; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb->add_option("--json", options->json, "One JSON object (ridge.bench/1), on stdout or in FILE")
      ->type_name("FILE")
      ->expected(0, 1)
      ->default_str("-");
  verb->callback([options] { run_bench(*options); });
}

}  // namespace ridge
