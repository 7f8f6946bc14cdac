#include "ridge/tune/onnx/open_model.h"

#include <algorithm>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/compress/quantize_model.h"
#include "ridge/infer/load_model.h"
#include "ridge/run/observer.h"

namespace ridge {
namespace {

// A model is quantized by so many samples: more change ranges little.
constexpr size_t kQuantizedBy = 64;
// Quantizing may take this share of the budget: the rest is for the trials.
constexpr double kQuantizeShare = 0.25;

// The number of samples where nobody gives data.
constexpr size_t kDrawn = 8;

// A model that is opened, or runs in f64, for longer without an answer hangs.
constexpr double kAnswerSeconds = 600;

double seconds_since(int64_t ns) { return static_cast<double>(now_ns() - ns) * 1e-9; }

class SessionModel final : public OpenModel {
 public:
  SessionModel(const WorkerOptions& options,
               const ModelJob& job,
               const std::string& recipe,
               size_t count,
               std::string outputs_path)
      : options_(options), job_(job), recipe_(recipe) {
    const ModelRecipe parsed =
        recipe.empty() ? ModelRecipe{} : parse_model_recipe(recipe, "recipe");
    samples_ = parsed.batch.value_or(1) * parsed.instances;
    is_quantized_ = !parsed.quantized.empty();
    start();
    if (count > 0) outputs_ = worker_->outputs(count, outputs_path);
  }

  Block run(int64_t steps) override { return worker_->run(steps, runs_); }
  void warm(int64_t steps) override {
    std::vector<double> uncounted;
    worker_->run(steps, uncounted);
  }
  void revive() override {
    if (!worker_->is_running()) start();
  }
  void work_until(int64_t until_ns) override {
    options_.deadline_ns = until_ns;
    worker_->work_until(until_ns);
  }
  double open_seconds() const override { return open_seconds_; }
  const SessionFacts& facts() const override { return worker_->facts(); }
  const SampleOutputs& outputs() const override { return outputs_; }
  int64_t samples() const override { return samples_; }
  bool is_quantized() const override { return is_quantized_; }
  std::vector<double> take_runs() override { return std::exchange(runs_, {}); }

 private:
  void start() {
    const int64_t begun = now_ns();
    worker_ = std::make_unique<ModelWorker>(options_, job_, recipe_);
    open_seconds_ = seconds_since(begun);
  }

  WorkerOptions options_;
  const ModelJob& job_;
  std::string recipe_;
  int64_t samples_ = 1;
  bool is_quantized_ = false;
  std::unique_ptr<ModelWorker> worker_;
  double open_seconds_ = 0;
  SampleOutputs outputs_;
  std::vector<double> runs_;
};

class RivalModel final : public OpenModel {
 public:
  RivalModel(const PeerRequest& request, int64_t batch) : samples_(batch) {
    const int64_t begun = now_ns();
    peer_.emplace(request);
    open_seconds_ = seconds_since(begun);
    facts_.first_seconds = peer_->first_seconds();
    facts_.peak_bytes = peer_->peak_bytes().value_or(0);
  }

  Block run(int64_t steps) override { return peer_->run(steps); }
  void warm(int64_t steps) override { peer_->warm(steps); }
  double open_seconds() const override { return open_seconds_; }
  const SessionFacts& facts() const override { return facts_; }
  const SampleOutputs& outputs() const override { return outputs_; }
  int64_t samples() const override { return samples_; }
  std::vector<double> take_runs() override { return peer_->take_runs(); }
  const std::string& version() const { return peer_->version(); }

 private:
  std::optional<RuntimePeer> peer_;
  int64_t samples_;
  double open_seconds_ = 0;
  SessionFacts facts_;
  SampleOutputs outputs_;
};

class ModelProcesses final : public ModelRunners {
 public:
  explicit ModelProcesses(const ModelRequest& request) : request_(request), folder_("model") {
    job_.model = request.model;
    job_.samples = folder_.path() + "/samples.npz";
    job_.folder = folder_.path();
    TrainObserver nobody;
    const LoadedModel model = load_onnx_model(request.model, {}, nobody);
    job_.inputs = model.source->inputs();
    job_.outputs = model.source->outputs();
    samples_ = request.data.empty() ? drawn_samples(*model.source, request.sizes, kDrawn)
                                    : read_npz_samples(request.data, job_.inputs, job_.outputs);
    write_samples(job_.samples, samples_.samples, job_.inputs);
  }

  const ModelSamples& samples() override { return samples_; }

  std::unique_ptr<OpenModel> open(const std::string& recipe,
                                  size_t count,
                                  int64_t until_ns) override {
    if (recipe.find("runtime = ") != std::string::npos) {
      const ModelRecipe parsed = parse_model_recipe(recipe, "recipe");
      std::string name;
      if (auto rival = open_rival(parsed.batch.value_or(1), name)) return rival;
      throw UserError(fmt::format("the recipe is of '{}', which is not asked for", parsed.runtime),
                      fmt::format("give --against {} --python PYTHON", parsed.runtime));
    }
    make_quantized(recipe, until_ns);
    return std::make_unique<SessionModel>(
        options(until_ns), job_, recipe, count, folder_.path() + "/outputs.npz");
  }

  std::string file(const std::string& name) const override { return folder_.path() + "/" + name; }

  SampleOutputs wide_outputs(ModelRole role,
                             size_t count,
                             int64_t until_ns,
                             double& seconds) override {
    ModelWorker worker(options(until_ns), job_, {}, role);
    return worker.outputs(count, folder_.path() + "/wide.npz", &seconds);
  }

  std::unique_ptr<OpenModel> open_rival(int64_t batch, std::string& name) override {
    if (!request_.against) return nullptr;
    const NamedTensors data = batch_of(samples_, job_.inputs, 0, batch);
    auto rival = std::make_unique<RivalModel>(PeerRequest{.runtime = *request_.against,
                                                          .python = request_.python,
                                                          .model = request_.model,
                                                          .threads = num_threads(),
                                                          .inputs = &data,
                                                          .supervisor = request_.program},
                                              batch);
    name = fmt::format("{} {}", title_of(*request_.against), rival->version());
    return rival;
  }

 private:
  // The model of the recipe's file, where it is not there yet. All sites within the limit are
  // taken: a trial measures what they gain, and the same samples make the same file.
  void make_quantized(const std::string& recipe, int64_t until_ns) {
    const std::string name = recipe.empty() ? "" : parse_model_recipe(recipe, "recipe").quantized;
    if (name.empty() || std::filesystem::exists(file(name))) return;
    compress::QuantizeOptions options{.gain = compress::GainMeasure::kFlops};
    const double share = kQuantizeShare * request_.loop.budget_seconds;
    const int64_t last_ns = std::min(until_ns, now_ns() + static_cast<int64_t>(1e9 * share));
    options.on_progress = [last_ns, share](const std::string& what) {
      if (now_ns() > last_ns)
        throw VariantFailed(fmt::format(
            "to quantize the model takes longer than {:.0f} s ({}): give a longer --budget",
            share,
            what));
    };
    for (const auto method :
         {compress::QuantizeMethod::kStatic, compress::QuantizeMethod::kDynamic})
      if (name == quantized_name(request_.model, method)) options.method = method;
    try {
      const compress::QuantizeResult result = compress::quantize_model(
          compress::EditableModel(std::filesystem::path(request_.model)), {few_samples()}, options);
      if (!result.passed())
        throw VariantFailed(
            fmt::format("the error is {:.2g} % of the power of output '{}', limit {} %",
                        result.drop,
                        result.output,
                        result.limit));
      result.model.write(file(name));
    } catch (const UserError& error) {
      throw VariantFailed(error.message());
    }
  }

  ModelSamples few_samples() const {
    ModelSamples few = samples_;
    few.samples.resize(std::min(few.samples.size(), kQuantizedBy));
    return few;
  }

  WorkerOptions options(int64_t until_ns) const {
    return {.program = request_.program, .answer_seconds = kAnswerSeconds, .deadline_ns = until_ns};
  }

  ModelRequest request_;
  attach::PrivateFolder folder_;
  ModelJob job_;
  ModelSamples samples_;
};

}  // namespace

std::string quantized_name(const std::string& model, compress::QuantizeMethod method) {
  return fmt::format("{}.{}.onnx", std::filesystem::path(model).stem().string(), name_of(method));
}

std::unique_ptr<ModelRunners> model_processes(const ModelRequest& request) {
  return std::make_unique<ModelProcesses>(request);
}

}  // namespace ridge
