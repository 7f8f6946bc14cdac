#include "ridge/train/inference.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "ridge/base/clock.h"
#include "ridge/base/hash.h"
#include "ridge/base/philox.h"
#include "ridge/run/backends.h"
#include "ridge/train/checkpointing.h"
#include "ridge/train/session.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A program that updates nothing, over parameters and statistics alone.
ProgramGraphs inference_program(const nn::Training& training, std::vector<Graph> entries) {
  ProgramGraphs graphs;
  for (StateEntry& entry : training.state(false))
    if (entry.role == StateRole::kParameter || entry.role == StateRole::kStatistic)
      graphs.state.push_back(std::move(entry));
  graphs.entries = std::move(entries);
  return graphs;
}

template <typename File>
void read_state(Program& program, const File& file) {
  for (const PlanSlot& slot : program.state().slots()) {
    Tensor tensor(slot.type);
    file.read_into(slot.name, slot.type, tensor.data());
    program.state().write(slot.name, tensor);
  }
}

// The checkpoint of a run that is best, where one is marked and whole, else its newest.
OpenCheckpoint best_or_newest(const std::string& out, TrainObserver& observer) {
  const fs::path folder = checkpoint_folder(out);
  if (const auto best = best_step(folder)) try {
      return open_checkpoint(checkpoint_path(folder, *best));
    } catch (const UserError& refusal) {
      observer.on_message(
          fmt::format("the best checkpoint, step {}, is left out: {}", *best, refusal.message()));
    }
  auto newest = find_checkpoint("auto", out, observer);
  if (!newest)
    throw UserError(fmt::format("no checkpoint in '{}'", out),
                    "train first, or give the weights by --weights");
  return std::move(*newest);
}

// Fills the state and says where from.
std::string load_weights(Program& program,
                         const TrainConfig& config,
                         const std::string& weights,
                         TrainObserver& observer) {
  if (fs::is_regular_file(weights)) {
    read_state(program, *SafetensorsFile(weights));
    return weights;
  }
  if (weights.empty() && config.train.out.empty())
    throw UserError("there are no weights: the configuration has no train.out",
                    "give a file or folder by --weights");
  const OpenCheckpoint checkpoint = weights.empty() ? best_or_newest(config.train.out, observer)
                                                    : *find_checkpoint(weights, {}, observer);
  read_state(program, checkpoint);
  return checkpoint.path().string();
}

std::unique_ptr<Backend> open_backend(const std::string& device, TrainObserver& observer) {
  return make_backend(device, [&](const std::string& note) { observer.on_message(note); });
}

}  // namespace

EvalResult evaluate_model(const TrainConfig& config,
                          const std::string& weights,
                          TrainObserver& observer) {
  const auto backend = open_backend(config.train.device, observer);
  const Task task = open_task(config);
  if (task.eval_data == nullptr)
    throw UserError("the configuration keeps no samples to evaluate on",
                    "set data.eval_path or data.eval_fraction");
  const auto& sizes = task.sizes.eval;
  std::vector<Graph> entries;
  for (const nn::BatchSize& size : sizes)
    entries.push_back(task.training->evaluation(size, nn::entry_name("eval", sizes, size)));
  Program program(inference_program(*task.training, std::move(entries)), *backend);
  EvalResult result;
  result.model = config.model.kind;
  result.weights = load_weights(program, config, weights, observer);
  const int64_t start = now_ns();
  const data::BatchPlan plan{.batch = sizes[0].samples, .shuffle = false, .repeat = false};
  data::Loader loader(*task.eval_data, plan, config.loader);
  double loss = 0, correct = 0, count = 0;
  for (;;) {
    const data::Batch& batch = loader.next();
    if (batch.count == 0) break;
    const nn::BatchSize size = sizes[nn::fitting_size(sizes, batch.count, batch.longest)];
    const size_t entry = program.entry(nn::entry_name("eval", sizes, size));
    const nn::SampleTypes& sample = task.training->model().sample();
    BatchInput(program.input(entry, "x"), size.samples, sample.x).write(program, batch.fields[0]);
    BatchInput(program.input(entry, "y"), size.samples, sample.y).write(program, batch.fields[1]);
    program.run(entry);
    const auto read = [&](const char* name) {
      Tensor scalar({task.training->accumulate(), {}});
      program.read(program.output(entry, name), scalar.data());
      program.synchronize();
      return scalar.at(0);
    };
    loss += read("loss");
    count += read("count");
    correct += task.eval_data->classes() > 0 ? read("correct") : NAN;
    result.report.samples += batch.count;
  }
  result.report.loss = loss / count;
  result.report.accuracy = correct / count;
  result.report.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  return result;
}

namespace {

void check_request(const GenerateRequest& request) {
  check(request.config.model.kind == "gpt",
        "text comes from a model of kind gpt; this configuration has '{}'",
        request.config.model.kind);
  const int64_t vocab = request.config.model.gpt.vocab;
  check(vocab >= 1 && vocab <= 256,
        "text is generated byte by byte: model.vocab must be 1 to 256; got {}",
        vocab);
  check(request.tokens >= 1, "--tokens must be at least 1; got {}", request.tokens);
  check(request.temperature >= 0 && std::isfinite(request.temperature),
        "--temperature must be a number from 0 up; got {}",
        request.temperature);
  check(request.top_k >= 0, "--top-k must be at least 0; got {}", request.top_k);
  for (const char c : request.prompt)
    check(static_cast<unsigned char>(c) < vocab,
          "the prompt has byte {}, but the model knows only {} tokens",
          static_cast<unsigned char>(c),
          vocab);
}

// Draws one of the likeliest tokens, by softmax(logits / temperature).
int64_t draw(const std::vector<double>& logits, const GenerateRequest& request, int64_t position) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (request.temperature == 0) return order[0];
  if (request.top_k > 0 && request.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(request.top_k));
  const double largest = logits[static_cast<size_t>(order[0])];
  std::vector<double> sums;
  double sum = 0;
  for (int64_t token : order)
    sums.push_back(sum +=
                   std::exp((logits[static_cast<size_t>(token)] - largest) / request.temperature));
  const RngKey key{request.seed, static_cast<uint64_t>(position), hash64("generate")};
  const double at = random_f64(key, 0) * sum;
  for (size_t i = 0; i + 1 < sums.size(); ++i)
    if (at < sums[i]) return order[i];
  return order.back();
}

}  // namespace

void generate(const GenerateRequest& request,
              TrainObserver& observer,
              FunctionRef<void(std::string_view)> sink) {
  check_request(request);
  const auto backend = open_backend(request.config.train.device, observer);
  const int64_t length = request.config.data.context;
  const TensorType tokens{DType::kI64, {length}};
  const nn::Training training(nn::make_model(request.config.model, {tokens, tokens}),
                              request.config.optimizer);
  std::vector<Graph> entries;
  entries.push_back(training.logits(1));
  Program program(inference_program(training, std::move(entries)), *backend);
  load_weights(program, request.config, request.weights, observer);

  std::vector<int64_t> text{};
  for (const char c : request.prompt) text.push_back(static_cast<unsigned char>(c));
  if (text.empty()) text.push_back(0);
  const DataSlot x = program.input(0, "x"), out = program.output(0, "logits");
  Tensor window({DType::kI64, {length}});
  Tensor all(program.plan().entries[0].outputs[0].type);
  const int64_t vocab = request.config.model.gpt.vocab;
  for (int64_t i = 0; i < request.tokens; ++i) {
    // The last tokens, from the left: what stands behind them no position sees.
    const int64_t known = std::min(length, static_cast<int64_t>(text.size()));
    for (int64_t t = 0; t < length; ++t)
      window.set(t,
                 t < known ? static_cast<double>(text[text.size() - static_cast<size_t>(known - t)])
                           : 0.0);
    program.write(x, window.data());
    program.run(0);
    program.read(out, all.data());
    program.synchronize();
    std::vector<double> logits;
    for (int64_t v = 0; v < vocab; ++v) logits.push_back(all.at((known - 1) * vocab + v));
    const int64_t token = draw(logits, request, i);
    text.push_back(token);
    const char byte = static_cast<char>(token);
    sink({&byte, 1});
  }
}

}  // namespace ridge
