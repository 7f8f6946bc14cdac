#include "ridge/cli/quantize/quantize.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/cli/common/output.h"
#include "ridge/cli/common/progress.h"
#include "ridge/cli/quantize/report.h"
#include "ridge/export/onnx/onnx_export.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/open_model.h"
#include "ridge/io/npy.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using compress::EditableModel;
using compress::GainMeasure;
using compress::QuantizeData;
using compress::QuantizeMethod;
using compress::QuantizeOptions;
using compress::QuantizeResult;
using compress::RangeMethod;

// The number of samples where nobody gives data; and the most that are read, which with labels are
// more, since the share of right answers is counted.
constexpr size_t kDrawn = 16;
constexpr int64_t kMostLabelled = 4096;
constexpr const char* kLabels = "labels";

struct QuantizeVerb {
  std::string model, weights, data, method = "static", ranges, gain = "time", output;
  std::vector<std::string> keep, dims;
  std::optional<double> max_drop;
  std::optional<bool> correct_bias;
  bool equalize = false, eval = false, json = false;
};

template <NamedEnum E>
E parse_option(const char* flag, const std::string& text) {
  const std::optional<E> value = parse_name<E>(text);
  check(value.has_value(), "{} must be one of {}; got '{}'", flag, names_of(E{}), text);
  return *value;
}

// A model that Ridge has trained, as an ONNX model in a folder that is gone with it.
class ExportedModel {
 public:
  ExportedModel(const std::string& model, const std::string& weights) {
    ProgressDisplay progress(stderr);
    const ModelFiles files = find_model(model, {.weights = weights}, settings());
    const TrainedModel trained = open_trained_model(files.config, files.weights, progress);
    export_onnx(*trained.source, *trained.weights.tensors, metadata_of(trained), path());
    progress.clear_bar();
  }
  std::string path() const { return folder_.path() + "/model.onnx"; }

 private:
  attach::PrivateFolder folder_{"model"};
};

void check_files(const QuantizeVerb& verb) {
  check_place(verb.output);
  check(!is_onnx_file(verb.model) || verb.weights.empty(),
        "--weights '{}' is for a model that Ridge has trained; an ONNX model has its own",
        verb.weights);
  std::error_code ignored;
  if (fs::equivalent(verb.model, verb.output, ignored))
    throw UserError(fmt::format("'{}' would be replaced", verb.model), "give -o another file");
  if (verb.eval && verb.data.empty())
    throw UserError("--eval needs samples with labels", "give --data FILE.npz");
}

std::vector<int64_t> read_labels(const std::string& path, size_t samples) {
  const MappedFile file(path);
  const NpzView arrays(file.bytes(), path);
  if (!arrays.contains(kLabels))
    throw UserError(fmt::format("{}: there is no array '{}'", path, kLabels),
                    "--eval takes the class of each sample from it");
  const Tensor labels = arrays.read(kLabels);
  check(is_integer(labels.type().dtype) && labels.type().rank() == 1 &&
            labels.elements() >= static_cast<int64_t>(samples),
        "{}: '{}' is {}; expected an integer for each sample",
        path,
        kLabels,
        to_string(labels.type()));
  std::vector<int64_t> result;
  for (size_t i = 0; i < samples; ++i)
    result.push_back(static_cast<int64_t>(labels.at(static_cast<int64_t>(i))));
  return result;
}

QuantizeData read_data(const QuantizeVerb& verb, const std::string& path) {
  const OnnxSource source{OnnxModel(path)};
  if (verb.data.empty()) return {.samples = drawn_samples(source, parse_sizes(verb.dims), kDrawn)};
  const int64_t most = verb.eval ? kMostLabelled : kMostSamples;
  QuantizeData data{.samples =
                        read_npz_samples(verb.data, source.inputs(), source.outputs(), most)};
  if (verb.eval) data.labels = read_labels(verb.data, data.samples.samples.size());
  return data;
}

// Whether a model was written: its drop is within the limit.
bool run_quantize(const QuantizeVerb& verb) {
  check_stdout();
  check_files(verb);
  check(verb.max_drop.value_or(0) >= 0, "--max-drop must not be negative");
  QuantizeOptions options{.method = parse_option<QuantizeMethod>("--method", verb.method),
                          .correct_bias = verb.correct_bias,
                          .equalize = verb.equalize,
                          .max_drop = verb.max_drop,
                          .keep = verb.keep,
                          .gain = parse_option<GainMeasure>("--gain", verb.gain)};
  if (!verb.ranges.empty()) options.ranges = parse_option<RangeMethod>("--ranges", verb.ranges);
  apply_threads();
  std::optional<ExportedModel> exported;
  if (!is_onnx_file(verb.model)) exported.emplace(verb.model, verb.weights);
  const std::string path = exported ? exported->path() : verb.model;
  const QuantizeData data = read_data(verb, path);
  if (data.samples.is_drawn)
    write_note("ranges and errors are of drawn samples: --data FILE.npz takes yours");
  const EditableModel model((fs::path(path)));
  const QuantizeResult result = quantize_model(model, data, options);
  QuantizeFiles files{.model = verb.model, .floats = path};
  if (result.passed()) {
    files.output = verb.output;
    files.data_file = result.model.write(verb.output);
  }
  const QuantizeReport report{result, options, data.samples, files};
  write_stdout(verb.json ? json_report(report) : text_report(report));
  return result.passed();
}

}  // namespace

void add_quantize(CLI::App& app, int& exit_code) {
  const auto verb = std::make_shared<QuantizeVerb>();
  CLI::App* sub =
      app.add_subcommand("quantize", "Write an ONNX model with products of bytes (INT8)");
  sub->add_option("model",
                  verb->model,
                  "MODEL.onnx, in f32; or a TOML file, or folder of a run or a checkpoint")
      ->required();
  sub->add_option("--weights", verb->weights, "As for eval, of a model that Ridge has trained")
      ->type_name("PATH");
  sub->add_option(
         "--data",
         verb->data,
         "Samples: arrays by input; half for calibration, a quarter for the choice of sites, a "
         "quarter for the statement (16 drawn ones)")
      ->type_name("FILE.npz");
  sub->add_option(
      "--method",
      verb->method,
      "static: ranges of activations from samples; dynamic: from each run, for products "
      "alone (static)");
  sub->add_option("--ranges", verb->ranges, "minmax, percentile or mse (that of the least error)");
  sub->add_flag("--equalize", verb->equalize, "Move sizes of weights between convolutions before");
  CLI::Option* const corrects = sub->add_flag_callback(
      "--correct-bias",
      [verb] { verb->correct_bias = true; },
      "Biases keep the means of results (where that lowers the error)");
  sub->add_flag_callback(
         "--no-correct-bias", [verb] { verb->correct_bias = false; }, "Biases stay as they are")
      ->excludes(corrects);
  sub->add_option("--max-drop",
                  verb->max_drop,
                  "Power of the error over that of the output (1); with --eval points of accuracy "
                  "(0.5)")
      ->type_name("PERCENT");
  sub->add_flag("--eval", verb->eval, "The array 'labels' of the samples has their classes");
  sub->add_option("--gain",
                  verb->gain,
                  "What the order of sites weighs errors against: measured time, or flops (time)");
  sub->add_option("--keep", verb->keep, "Name of a node that stays as it is; repeatable")
      ->type_name("SITE")
      ->allow_extra_args(false);
  sub->add_option("--dim", verb->dims, "Size of a named dimension, without --data; repeatable")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  sub->add_option("-o,--output", verb->output, "The ONNX model that is written")
      ->type_name("FILE.onnx")
      ->required();
  sub->add_flag("--json", verb->json, "One JSON object (ridge.quantize/1)");
  constexpr int kFailedCheck = 1;  // as cli/command.h has it
  sub->callback([verb, &exit_code] {
    if (!run_quantize(*verb)) exit_code = kFailedCheck;
  });
}

}  // namespace ridge
