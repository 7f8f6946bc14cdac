#include "ridge/cli/optimize_model.h"

#include <CLI/CLI.hpp>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/machine/machine.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/optimize_output.h"
#include "ridge/cli/signals.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/io/file.h"
#include "ridge/io/toml_reader.h"
#include "ridge/tune/onnx/model_target.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr double kModelBudget = 120;
constexpr const char* kSubject = "model.toml";

ModelRequest make_request(const std::string& model,
                          const OptimizeModelOptions& options,
                          const OptimizeProgramOptions& both) {
  const double budget = both.budget.value_or(kModelBudget);
  check_budget(budget);
  check(options.goal.empty() || options.goal == "latency" || options.goal == "throughput",
        "--goal must be latency or throughput; got '{}'",
        options.goal);
  ModelRequest request{
      .model = model,
      .data = options.data,
      .sizes = parse_sizes(options.dims),
      .is_throughput = options.goal == "throughput",
      .python = options.python,
      .program = fs::read_symlink("/proc/self/exe").string(),
      .loop = {.budget_seconds = budget, .seed = both.seed, .is_dry = both.dry_run}};
  if (!options.against.empty()) {
    request.against = parse_name<PeerRuntime>(options.against);
    check(request.against.has_value(),
          "--against must be one of {}; got '{}'",
          names_of(PeerRuntime{}),
          options.against);
  } else if (!options.python.empty()) {
    request.against = PeerRuntime::kOnnxRuntime;
  }
  if (request.against && request.python.empty()) request.python = default_python();
  return request;
}

// `ridge ledger replay` begins with this text.
std::string subject_toml(const ModelRequest& request) {
  std::string text, sizes;
  const auto line = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) text += fmt::format("{} = {}\n", key, toml_quoted(value));
  };
  line("model", fs::absolute(request.model).string());
  line("goal", request.is_throughput ? "throughput" : "latency");
  line("data", request.data.empty() ? "" : fs::absolute(request.data).string());
  line("against", request.against ? name_of(*request.against) : "");
  line("python", request.python);
  for (const auto& [name, size] : request.sizes)
    sizes += fmt::format(
        "{}{}", sizes.empty() ? "" : ", ", toml_quoted(fmt::format("{}={}", name, size)));
  if (!sizes.empty()) text += fmt::format("dims = [{}]\n", sizes);
  return text;
}

std::unique_ptr<Target> open_target(const ModelRequest& request) {
  return model_target(request, model_processes(request));
}

LedgerRun run_of(const ModelRequest& request) {
  return {.target = fs::path(request.model).filename().string() + " on cpu",
          .config = request.model,
          .config_hash = model_hash(request.model),
          .machine = machine_fingerprint("cpu"),
          .version = RIDGE_VERSION,
          .started = utc_time(wall_ns()),
          .budget_s = request.loop.budget_seconds,
          .seed = request.loop.seed};
}

}  // namespace

std::string OptimizeModelOptions::given() const {
  if (!data.empty()) return "--data";
  if (!goal.empty()) return "--goal";
  if (!against.empty()) return "--against";
  if (!python.empty()) return "--python";
  if (!recipe.empty()) return "--output";
  return dims.empty() ? "" : "--dim";
}

void add_model_options(CLI::App& verb, OptimizeModelOptions& options) {
  verb.add_option(
          "--data", options.data, "Samples for an ONNX model: arrays by input (8 drawn ones)")
      ->type_name("FILE.npz");
  verb.add_option("--goal", options.goal, "latency or throughput of an ONNX model (latency)")
      ->type_name("GOAL");
  verb.add_option("--against",
                  options.against,
                  "onnxruntime: the baseline of an ONNX model is the "
                  "faster of both")
      ->type_name("PEER");
  verb.add_option("--python", options.python, "The Python that has it")->type_name("PYTHON");
  verb.add_option("--dim", options.dims, "Size of a named dimension of an ONNX model; repeatable")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  verb.add_option("-o,--output", options.recipe, "The recipe of an ONNX model (recipe.toml in DIR)")
      ->type_name("FILE");
}

int run_optimize_model(const std::string& model,
                       const OptimizeModelOptions& options,
                       const OptimizeProgramOptions& both) {
  apply_threads();
  const ModelRequest request = make_request(model, options, both);
  if (!options.recipe.empty()) check_place(options.recipe);
  const std::unique_ptr<Target> target = open_target(request);
  const StopSignals signals;
  if (request.loop.is_dry) {
    TrialLog log(nullptr);
    return tell_result(run_loop(*target, request.loop, log), {both.json, both.all});
  }
  const fs::path out = both.out.empty()
                           ? fs::path("runs") / (fs::path(model).stem().string() + "-optimize")
                           : fs::path(both.out);
  make_folder(out);
  write_file_atomically(out / kSubject, subject_toml(request));
  LedgerWriter ledger(out / "ledger.jsonl", run_of(request));
  TrialLog log(&ledger);
  OptimizeResult result = run_loop(*target, request.loop, log);
  if (both.price_per_hour > 0) result.summary.price_per_hour = both.price_per_hour;
  if (result.summary.gained()) {
    const fs::path place = options.recipe.empty() ? out / "recipe.toml" : fs::path(options.recipe);
    target->write_files(result.summary.recipe, place.parent_path());
  }
  return write_result(std::move(result), out, {both.json, both.all}, options.recipe);
}

std::unique_ptr<Target> model_of_ledger(const fs::path& folder) {
  const fs::path path = folder / kSubject;
  if (!fs::exists(path)) return nullptr;
  OptimizeModelOptions options;
  std::string model;
  for (const TomlEntry& entry : read_toml(read_file(path, kLongestToml), path.string())) {
    const std::string* text = std::get_if<std::string>(&entry.value);
    if (const auto* list = std::get_if<std::vector<TomlScalar>>(&entry.value)) {
      for (const TomlScalar& item : *list)
        if (const std::string* dim = std::get_if<std::string>(&item)) options.dims.push_back(*dim);
    } else if (text != nullptr) {
      if (entry.key == "model") model = *text;
      if (entry.key == "goal") options.goal = *text;
      if (entry.key == "data") options.data = *text;
      if (entry.key == "against") options.against = *text;
      if (entry.key == "python") options.python = *text;
    }
  }
  apply_threads();
  return open_target(make_request(model, options, {}));
}

}  // namespace ridge
