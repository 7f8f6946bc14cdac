// Evaluation over weights that are written one by one, and over weights that are loaded and packed,
// in turn.
//
//   bench_evaluation [--pairs N] [--batch B]... CONFIG...
//
// Prints a line a batch: seconds a run over written weights, and how many times as fast a run is
// over loaded ones, with the interval of the median of the pairs; what it takes from the file to
// the first result, and the anonymous memory of each way.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/first_values.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/config/text.h"
#include "ridge/infer/weights.h"
#include "ridge/io/safetensors.h"
#include "ridge/run/backends.h"
#include "ridge/train/process_memory.h"
#include "ridge/train/task.h"

namespace {

using namespace ridge;

struct Request {
  std::vector<std::string> configs;
  std::vector<int64_t> batches;
  int pairs = 30;
};

double seconds_since(int64_t start) { return static_cast<double>(now_ns() - start) * 1e-9; }

// A file of first values, deleted with this object.
class WeightsFile {
 public:
  WeightsFile(const std::vector<StateEntry>& entries, Backend& backend)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("bench_evaluation_{}.safetensors", now_ns())) {
    bench::with_first_values(entries, backend, [&](std::span<const TensorView> views) {
      save_safetensors(path_, views);
    });
  }
  ~WeightsFile() { std::filesystem::remove(path_); }
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// A program with a state of its own, ready to run, and what it took to come so far.
struct Way {
  Way(ProgramGraphs graphs, Backend& backend, const TrainConfig& config, const std::string& path)
      : state(backend) {
    const int64_t start = now_ns();
    TrainObserver observer;
    load_weights(state, graphs.state, open_weights(config, path, observer));
    finish(std::move(graphs), inference_options(), start);
  }
  Way(ProgramGraphs graphs, Backend& backend, const std::string& path) : state(backend) {
    const int64_t start = now_ns();
    const SafetensorsFile file(path);
    state.declare(graphs.state);
    for (const StateEntry& entry : graphs.state) state.write(entry.name, file->read(entry.name));
    finish(std::move(graphs), {}, start);
  }
  // Zeros as inputs, which later results may write over.
  void run() {
    for (const PlanSlot& slot : program->plan().entries[0].inputs) {
      zeros.resize(std::max(zeros.size(), static_cast<size_t>(slot.place.bytes)));
      program->write(program->input(0, slot.name), zeros.data());
    }
    program->run(0);
    program->synchronize();
  }

  State state;
  std::unique_ptr<Program> program;
  std::vector<std::byte> zeros;
  double first_seconds = 0;  ///< From the file to the first result.
  int64_t bytes = 0;         ///< Growth of anonymous memory.

 private:
  void finish(ProgramGraphs graphs, const ProgramOptions& options, int64_t start) {
    program = std::make_unique<Program>(std::move(graphs), state, options);
    run();
    first_seconds = seconds_since(start);
    run();  // which packs
  }
};

// The growth of memory while `make` runs.
template <typename Make>
std::unique_ptr<Way> measured(const Make& make) {
  release_free_memory();
  const int64_t before = resident_anonymous_bytes();
  std::unique_ptr<Way> way = make();
  release_free_memory();
  way->bytes = resident_anonymous_bytes() - before;
  return way;
}

void measure(const Task& task, const TrainConfig& config, int64_t batch, int pairs) {
  const std::unique_ptr<Backend> backend = make_backend("cpu");
  const auto graphs = [&] {
    ProgramGraphs made{.state = task.training->model_state(), .entries = {}};
    made.entries.push_back(task.training->evaluation(batch));
    return made;
  };
  const WeightsFile file(graphs().state, *backend);
  const auto written =
      measured([&] { return std::make_unique<Way>(graphs(), *backend, file.path()); });
  const auto loaded =
      measured([&] { return std::make_unique<Way>(graphs(), *backend, config, file.path()); });
  std::vector<double> ratios, seconds;
  for (int pair = 0; pair < pairs; ++pair) {
    double times[2] = {};
    for (const bool second : {false, true}) {
      const bool is_loaded = second != (pair % 2 == 1);
      const int64_t start = now_ns();
      (is_loaded ? loaded : written)->run();
      times[is_loaded] += seconds_since(start);
    }
    ratios.push_back(times[0] / times[1]);
    seconds.push_back(times[0]);
  }
  const auto interval = median_interval(ratios, 0.95);
  const double mib = 1 << 20;
  fmt::print(
      "  batch {:2}: {:8.2f} ms written; loaded {:.3f} ({:.3f} to {:.3f}) times as fast; first "
      "result "
      "{:.3f} and {:.3f} s; anonymous memory {:.1f} and {:.1f} MiB, planned {:.1f} and {:.1f}\n",
      batch,
      median(seconds) * 1e3,
      median(ratios),
      interval ? interval->low : 0.0,
      interval ? interval->high : 0.0,
      written->first_seconds,
      loaded->first_seconds,
      static_cast<double>(written->bytes) / mib,
      static_cast<double>(loaded->bytes) / mib,
      static_cast<double>(written->program->plan().total_bytes()) / mib,
      static_cast<double>(loaded->program->plan().total_bytes()) / mib);
  std::fflush(stdout);
}

void run(const Request& request) {
  for (const std::string& path : request.configs) {
    const TrainConfig config = load_config_file(path, {}).config;
    const Task task = open_task(config);
    fmt::print("{}, {} threads\n", path, num_threads());
    for (const int64_t batch : request.batches) measure(task, config, batch, request.pairs);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--pairs" && has_value)
      request.pairs = std::atoi(argv[++i]);
    else if (word == "--batch" && has_value)
      request.batches.push_back(std::atoi(argv[++i]));
    else
      request.configs.push_back(word);
  }
  if (request.batches.empty()) request.batches = {1, 8};
  if (request.configs.empty() || request.pairs < 6) {
    fmt::print(stderr, "usage: bench_evaluation [--pairs N] [--batch B]... CONFIG...\n");
    return 2;
  }
  return ridge::bench::exit_code([&] { run(request); });
}
