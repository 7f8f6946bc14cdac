// Training steps on demand: bench/training_step.py has them run in turn with the peer's.
//
//   bench_training_step CONFIG THREADS FOLDER [TRACE] [KEY=VALUE...]
//
// Writes the parameters that it starts from and the batches that it takes in turn into FOLDER, then
// a line that describes the run. Then it reads a number of steps a line from stdin, runs so many
// and answers with the seconds that they took, the last loss, and the memory that was taken since
// just before the plan's. TRACE receives a Chrome trace of all launches, which slows them a little.
// Keys are those of the configuration: train.device=cuda.
#include <fmt/core.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/device_memory.h"
#include "bench/exit_code.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/trace/chrome_trace.h"
#include "ridge/base/trace/trace.h"
#include "ridge/config/text.h"
#include "ridge/data/kept_batch.h"
#include "ridge/data/loader.h"
#include "ridge/io/safetensors.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuning.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/training_run.h"

namespace {

// The peer keeps as many batches in memory.
constexpr size_t kBatches = 16;

std::vector<ridge::data::KeptBatch> keep_batches(const ridge::Task& task,
                                                 const ridge::TrainConfig& config) {
  ridge::data::Loader loader(
      *task.train_data,
      {.batch = config.train.batch, .shuffle = true, .seed = config.train.seed},
      config.loader);
  std::vector<ridge::data::KeptBatch> kept;
  while (kept.size() < kBatches) kept.emplace_back(loader.next(), task.train_data->fields());
  return kept;
}

void save_batches(const std::filesystem::path& path,
                  const ridge::Task& task,
                  const std::vector<ridge::data::KeptBatch>& batches) {
  std::vector<ridge::TensorView> views;
  for (size_t b = 0; b < batches.size(); ++b)
    for (size_t i = 0; i < task.train_data->fields().size(); ++i) {
      const ridge::data::FieldType& field = task.train_data->fields()[i];
      std::vector<int64_t> shape = field.shape;
      shape.insert(shape.begin(), batches[b].batch().count);
      views.push_back({fmt::format("{}{}", i == 0 ? "x" : "y", b),
                       {field.dtype, shape},
                       batches[b].batch().fields[i]});
    }
  ridge::save_safetensors(path, views);
}

std::string quoted_names(const std::vector<ridge::nn::ParameterSpec>& parameters) {
  std::string text;
  for (const auto& each : parameters)
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", each.name);
  return text;
}

struct Request {
  std::string config;
  int threads = 1;
  std::filesystem::path folder, trace;
  std::vector<ridge::ConfigFlag> flags;
};

void run(const Request& request) {
  using namespace ridge;
  const TrainConfig config = load_config_file(request.config, request.flags).config;
  const int threads = request.threads;
  const std::filesystem::path& folder = request.folder;
  const std::string& device = config.train.device;
  set_num_threads(threads);
  parallel_for(threads, 1, [](int64_t, int64_t) {});
  const auto backend = make_backend(device);
  Task task = open_task(config);
  int64_t before = 0;
  Tuning tuning(device, false);
  task.choose = tuning.choose(kernels_of(config));
  ProgramOptions options = program_options(config, task);
  options.before_memory = [&](const Plan&) {
    release_free_memory();
    before = bytes_taken(device);
  };
  const std::vector<data::KeptBatch> batches = keep_batches(task, config);
  TrainingRun training(task, config, *backend, options);
  save_safetensors(folder / "parameters.safetensors", training.tensors(false));
  save_batches(folder / "batches.safetensors", task, batches);
  release_free_memory();
  const Plan& plan = training.program().plan();
  fmt::print("{{\"planned\": {}, \"state\": {}, \"threads\": {}, \"parameters\": [{}]}}\n",
             plan.total_bytes(),
             plan.state_bytes,
             threads,
             quoted_names(task.training->parameters()));
  std::fflush(stdout);
  const bool is_traced = !request.trace.empty();
  if (is_traced) start_tracing();
  int64_t step = 0;
  for (int count; std::scanf("%d", &count) == 1;) {
    const int64_t start = now_ns();
    for (int i = 0; i < count; ++i, ++step)
      training.run_step(batches[static_cast<size_t>(step) % kBatches].batch(), step, 1000000);
    // The host waits for the last step alone, which is how the peer is timed.
    const double loss = training.last_result().loss;
    const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
    fmt::print("{{\"seconds\": {:.9f}, \"loss\": {:.9g}, \"measured\": {}}}\n",
               seconds,
               loss,
               bytes_taken(device) - before);
    std::fflush(stdout);
  }
  if (is_traced) {
    std::ofstream file(request.trace);
    write_chrome_trace(drain_trace(), file);
  }
}

Request parse(int argc, char** argv) {
  Request request;
  request.config = argv[1];
  request.threads = std::atoi(argv[2]);
  request.folder = argv[3];
  ridge::check(request.threads >= 1, "'{}' is no number of threads", argv[2]);
  for (int i = 4; i < argc; ++i)
    if (const std::string word = argv[i]; word.find('=') != word.npos)
      request.flags.push_back(ridge::parse_set(word));
    else
      request.trace = word;
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: bench_training_step CONFIG THREADS FOLDER [TRACE] [KEY=VALUE...]\n");
    return 2;
  }
  return ridge::bench::exit_code([&] { run(parse(argc, argv)); });
}
